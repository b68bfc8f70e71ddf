"""The contract of participants: ours keep it, and those that break it are found."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from coordinator.transaction import Transaction
from tests.support.database_server import DatabaseServer
from tests.support.mysql import MysqlServer
from tests.support.postgres import PostgresServer
from txaware import Messaging, participants
from txaware.testing import ParticipantContract
from txaware.testing.participant_contract import Made


class TestTable(ParticipantContract):
    def make(self, messaging: Messaging) -> Any:
        return messaging.table("accounts")

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        participant.put(key, value)

    def read(self, participant: Any, key: bytes) -> bytes | None:
        value: bytes | None = participant.get(key)
        return value


class TestTableWithoutConflicts(TestTable):
    names_keys = False

    def make(self, messaging: Messaging) -> Any:
        return messaging.table("accounts", conflicts="none")


class TestFiles(ParticipantContract):
    @pytest.fixture(autouse=True)
    def _places(self, tmp_path: Path) -> Iterator[None]:
        self._next = (tmp_path / f"{number}" for number in range(100))
        with ExitStack() as self._opened:
            yield

    def make(self, messaging: Messaging) -> Any:
        files = participants.files(messaging, next(self._next))
        return self._opened.enter_context(files)

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        participant.write(key.decode(), value)

    def read(self, participant: Any, key: bytes) -> bytes | None:
        value: bytes | None = participant.read(key.decode())
        return value


class TestSqlite(ParticipantContract):
    names_keys = False
    decides = True

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        self.path = tmp_path / "shop.db"
        with ExitStack() as self.opened:
            yield

    def make(self, messaging: Messaging) -> Any:
        connection = self.opened.enter_context(closing(sqlite3.connect(self.path)))
        connection.execute("CREATE TABLE pairs (key BLOB PRIMARY KEY, value BLOB)")
        return participants.sqlite(messaging, connection, relay=False)

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        put = "INSERT OR REPLACE INTO pairs VALUES (?, ?)"
        participant.connection.execute(put, (key, value))

    def read(self, participant: Any, key: bytes) -> bytes | None:
        get = "SELECT value FROM pairs WHERE key = ?"
        found = participant.connection.execute(get, (key,)).fetchone()
        return None if found is None else bytes(found[0])


class TestPostgres(TestSqlite):
    decides = False
    outbox = False

    @pytest.fixture(autouse=True)
    def connect(self, postgres_server: PostgresServer) -> Iterator[None]:
        self.connection = postgres_server.connect()
        yield
        self.connection.close()

    def make(self, messaging: Messaging) -> Any:
        self.connection.execute(
            "CREATE TABLE pairs (key bytea PRIMARY KEY, value bytea)"
        )
        self.connection.commit()
        if self.outbox:
            return participants.postgres(
                messaging, self.connection, outbox=True, relay=False
            )
        return participants.postgres(messaging, self.connection)

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        put = """INSERT INTO pairs VALUES (%s, %s)
            ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
        self.connection.execute(put, (key, value))

    def read(self, participant: Any, key: bytes) -> bytes | None:
        get = "SELECT value FROM pairs WHERE key = %s"
        found = self.connection.execute(get, (key,)).fetchone()
        return None if found is None else bytes(found[0])


class TestPostgresThatDecides(TestPostgres):
    decides = True
    outbox = True


class TestMysql(TestSqlite):
    decides = False
    outbox = False

    @pytest.fixture(autouse=True)
    def connect(self, mysql_server: MysqlServer) -> Iterator[None]:
        self.connection = mysql_server.connect()
        yield
        self.connection.close()

    def make(self, messaging: Messaging) -> Any:
        self.connection.execute(
            "CREATE TABLE pairs (name varbinary(20) PRIMARY KEY, value longblob)"
        )
        if self.outbox:
            return participants.mysql(
                messaging, self.connection, outbox=True, relay=False
            )
        return participants.mysql(messaging, self.connection)

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        self.connection.execute("REPLACE INTO pairs VALUES (%s, %s)", (key, value))

    def read(self, participant: Any, key: bytes) -> bytes | None:
        get = "SELECT value FROM pairs WHERE name = %s"
        found = self.connection.execute(get, (key,)).fetchone()
        return None if found is None else bytes(found[0])


class TestMysqlThatDecides(TestMysql):
    decides = True
    outbox = True


class TestSqlalchemy(TestSqlite):
    @pytest.fixture(autouse=True)
    def sessions(self, place: None) -> Iterator[None]:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        orm = pytest.importorskip("sqlalchemy.orm")
        self.text, engine = sqlalchemy.text, sqlalchemy.create_engine(self.url())
        with engine.begin() as connection:
            connection.execute(self.text(self.schema))
        with orm.Session(engine) as self.session:
            yield
        engine.dispose()

    schema = "CREATE TABLE pairs (key BLOB PRIMARY KEY, value BLOB)"

    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def make(self, messaging: Messaging) -> Any:
        return participants.sqlalchemy(messaging, self.session, relay=False)

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        put = self.text(
            "INSERT INTO pairs VALUES (:key, :value) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        participant.session.execute(put, {"key": key, "value": value})

    def read(self, participant: Any, key: bytes) -> bytes | None:
        get = self.text("SELECT value FROM pairs WHERE key = :key")
        found = participant.session.execute(get, {"key": key}).scalar()
        return None if found is None else bytes(found)


class TestSqlalchemyPrepared(TestSqlalchemy):
    decides = False
    schema = "CREATE TABLE pairs (key bytea PRIMARY KEY, value bytea)"
    server: DatabaseServer

    @pytest.fixture(autouse=True)
    def place(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server

    def url(self) -> str:
        return self.server.session_url

    def make(self, messaging: Messaging) -> Any:
        """Recovers first: later the coordinator may fail."""
        shop = super().make(messaging)
        with messaging.transaction(shop):
            return shop


class TestSqlalchemyPreparedInMysql(TestSqlalchemyPrepared):
    schema = "CREATE TABLE pairs (name varbinary(20) PRIMARY KEY, value longblob)"

    @pytest.fixture(autouse=True)
    def place(self, mysql_server: MysqlServer) -> None:
        self.server = mysql_server

    def write(self, participant: Any, key: bytes, value: bytes) -> None:
        put = self.text("REPLACE INTO pairs VALUES (:key, :value)")
        participant.session.execute(put, {"key": key, "value": value})

    def read(self, participant: Any, key: bytes) -> bytes | None:
        get = self.text("SELECT value FROM pairs WHERE name = :key")
        found = participant.session.execute(get, {"key": key}).scalar()
        return None if found is None else bytes(found)


class Versions:
    """A table in memory, as a user may write one; faults are named in `broken`."""

    transaction_aware_name = "versions"

    def __init__(self, *broken: str) -> None:
        self.rows: list[tuple[bytes, int, bytes]] = []
        self._broken = broken
        self._changed: set[bytes] = set()
        self._new: list[tuple[bytes, int, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._changed.add(key)
        self._new.append((key, self.tx.write_pointer, value))

    def get(self, key: bytes) -> bytes | None:
        seen = [
            value
            for name, pointer, value in [*self.rows, *self._new]
            if name == key and (self._sees_all or self.tx.is_visible(pointer))
        ]
        return seen[-1] if seen else None

    @property
    def _sees_all(self) -> bool:
        return "visibility" in self._broken

    def start_tx(self, tx: Transaction) -> None:
        self.tx = tx
        self._changed, self._new = set(), []

    def update_tx(self, tx: Transaction) -> None:
        if "update" not in self._broken:
            self.tx = tx
        if "checkpoint" in self._broken:
            self.rows = [row for row in self.rows if row[1] not in tx.pointers]

    def get_tx_changes(self) -> list[bytes]:
        if "no keys" in self._broken:
            return []
        return [b"any"] if "always" in self._broken else sorted(self._changed)

    def commit_tx(self) -> bool:
        self.rows += self._new
        self._new = []
        return "answer" not in self._broken

    def post_tx_commit(self) -> None:
        if "forgets" in self._broken:
            self.rows.clear()

    def rollback_tx(self) -> bool:
        if "rollback" not in self._broken:
            self.rows = [row for row in self.rows if row[1] not in self.tx.pointers]
        return True


class TestVersions(TestTable):
    broken: tuple[str, ...] = ()

    def make(self, messaging: Messaging) -> Any:
        return Versions(*self.broken)


def findings(contract: ParticipantContract) -> Iterator[str]:
    for name in dir(contract):
        if name.startswith("test_"):
            try:
                getattr(contract, name)()
            except Exception:
                yield name


def test_a_participant_that_keeps_it_has_no_findings() -> None:
    assert list(findings(TestVersions())) == []


@pytest.mark.parametrize(
    "fault", ["no keys", "always", "answer", "forgets", "rollback", "checkpoint"]
)
def test_each_fault_is_found(fault: str) -> None:
    contract = TestVersions()
    contract.broken = (fault,)
    assert list(findings(contract))


def test_what_is_not_said_is_asked_for() -> None:
    with pytest.raises(NotImplementedError, match="say how your participant is made"):
        ParticipantContract().test_what_was_not_written_is_none()
    assert Made.__doc__
