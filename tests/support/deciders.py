"""Databases that decide for tests: SQLite, PostgreSQL, MySQL, and sessions to them."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.errors import Unavailable
from coordinator.transaction import Transaction
from tests.support.database_server import DatabaseServer
from txaware import participants
from txaware.messaging import Messaging

DATABASES = ["sqlite", "postgres", "mysql"]
KINDS = [*DATABASES, *[f"sqlalchemy {database}" for database in DATABASES]]


class Decider:
    """One connection to a database with a table of what was handled."""

    def __init__(
        self,
        kind: str,
        messaging: Messaging,
        place: "Path | DatabaseServer",
        *,
        relay: bool = False,
    ) -> None:
        self.kind = kind
        self.messaging = messaging
        self._place = place
        self._relay = relay
        self._stack = ExitStack()
        if kind.startswith("sqlalchemy"):
            self._open_session()
        else:
            self.connection = connection_to(place)
            self._stack.callback(self.connection.close)
            options: dict[str, Any] = {"relay": relay}
            if isinstance(place, DatabaseServer):
                options["outbox"] = True
            make: Any = getattr(participants, kind)
            self.participant = make(messaging, self.connection, **options)

    def _open_session(self) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        place = self._place
        is_file = isinstance(place, Path)
        url = f"sqlite:///{place}" if is_file else place.session_url  # type: ignore[union-attr]
        engine = create_engine(url)
        self._stack.callback(engine.dispose)
        self.session = self._stack.enter_context(Session(engine))
        self.participant = participants.sqlalchemy(
            self.messaging, self.session, outbox=True, relay=self._relay
        )

    def another(self, *, relay: bool = False) -> "Decider":
        """Another connection to the same database."""
        return Decider(self.kind, self.messaging, self._place, relay=relay)

    def execute(self, statement: str) -> None:
        """Executes a statement in the block."""
        if self.kind.startswith("sqlalchemy"):
            from sqlalchemy import text

            self.session.execute(text(statement))
        else:
            self.connection.execute(statement)

    def commit(self) -> None:
        """Commits what was executed outside of a block."""
        owner = self.session if self.kind.startswith("sqlalchemy") else self.connection
        owner.commit()

    def handle(self, payload: bytes) -> None:
        """Writes a row for what was handled."""
        self.execute(f"INSERT INTO handled VALUES ('{payload.decode()}')")

    def rows(self, query: str = "SELECT what FROM handled") -> list[Any]:
        """What is committed, looked at from outside."""
        connection = connection_to(self._place)
        try:
            return [row[0] for row in connection.execute(query).fetchall()]
        finally:
            connection.close()

    def notes(self) -> int:
        """How many items are noted in the inbox."""
        [count] = self.rows("SELECT count(*) FROM txaware_inbox_items")
        return int(count)

    def close(self) -> None:
        """Closes the connection."""
        self._stack.close()


def connection_to(place: "Path | DatabaseServer") -> Any:
    """A connection of a program's own."""
    if isinstance(place, DatabaseServer):
        return place.connect()
    return sqlite3.connect(place, timeout=60, check_same_thread=False)


@pytest.fixture(params=["leveldb", "http"])
def decider_messaging(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Messaging]:
    """A store in this process, and behind a server."""
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as owner, ExitStack() as stack:
        if request.param == "leveldb":
            yield owner
            return
        server = stack.enter_context(owner.serve())
        yield stack.enter_context(txaware.connect(server.url))


@pytest.fixture(params=KINDS)
def decider(
    request: pytest.FixtureRequest, decider_messaging: Messaging, tmp_path: Path
) -> Iterator[Decider]:
    """Every database that decides, in turn."""
    place: Path | DatabaseServer = tmp_path / "shop.db"
    database = request.param.rpartition(" ")[2]
    if database != "sqlite":
        place = request.getfixturevalue(f"{database}_server")
    connection = connection_to(place)
    connection.execute("CREATE TABLE handled (what text)")
    connection.commit()
    connection.close()
    opened = Decider(request.param, decider_messaging, place)
    yield opened
    opened.close()


@contextmanager
def killed_behind_the_commit(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A block whose process is killed when its database has committed."""
    kind = type(messaging.coordinator)

    def killed(coordinator: Any, tx: Transaction) -> None:
        coordinator.invalidate(tx)
        raise Unavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit", killed)
        yield
