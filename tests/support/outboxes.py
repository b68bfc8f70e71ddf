"""A shop with an outbox, in each database, beside every implementation."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.messagings import Site, committed, lent_site
from txaware import participants
from txaware.messaging import Messaging
from txaware.participants.database_steps import library_of
from txaware.participants.databases import open_outbox
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import OutboxRows
from txaware.participants.sqlite_outbox import SqliteOutbox


class Shop:
    """A database with orders, its participant, and topics `t` and `u`."""

    def __init__(
        self, site: Site, connect: Callable[[], Any], rows: Callable[[], OutboxRows]
    ) -> None:
        self.site = site
        self.connect = connect
        self._rows = rows
        self._relays: list[OutboxRelay[OutboxRows]] = []
        self._connections: list[Any] = []
        for topic in ("t", "u"):
            site.messaging.create_topic(topic)
        self.participant = self.opened()
        self.connection.execute("CREATE TABLE orders (who TEXT)")
        self.connection.commit()

    @property
    def messaging(self) -> Messaging:
        """The messaging, as it is open now."""
        return self.site.messaging

    @property
    def connection(self) -> Any:
        """The connection of the participant."""
        return self.participant.connection

    def opened(self) -> DecidingDatabase:
        """A participant over a connection of its own."""
        connection = self.connect()
        self._connections.append(connection)
        options: dict[str, Any] = {"relay": False}
        if isinstance(connection, sqlite3.Connection):
            return participants.sqlite(self.messaging, connection, **options)
        is_mysql = library_of(connection) == "pymysql"
        make: Any = participants.mysql if is_mysql else participants.postgres
        made: DecidingDatabase = make(
            self.messaging, connection, outbox=True, **options
        )
        return made

    def relay_of_another(self, **options: Any) -> OutboxRelay[OutboxRows]:
        """A relay as another process has it."""
        relay = OutboxRelay(self.messaging, self._rows(), **options)
        self._relays.append(relay)
        return relay

    def publish(self, topic: str, *payloads: bytes) -> None:
        """Publishes in a block of its own."""
        with self.messaging.transaction(self.participant):
            for payload in payloads:
                self.messaging.publisher(topic).publish(payload)

    def set_aside(self) -> dict[str, int]:
        """How many rows are set aside, for what."""
        found = self.participant.outbox.set_aside()
        return {f"{one.topic}{'*' * one.is_queue}": one.count for one in found}

    def read(self, topic: str = "t") -> list[bytes]:
        """What readers of what is committed get."""
        return committed(self.messaging, topic)

    def reopen(self, **settings: Any) -> None:
        """Opens the messaging and the participant again."""
        self.site.open(**settings)
        self.participant = self.opened()

    def close(self) -> None:
        """Closes all that was opened."""
        for one in [*self._relays, *self._connections]:
            one.close()


@pytest.fixture(
    params=[
        ("sqlite", "memory"),
        ("sqlite", "leveldb"),
        ("sqlite", "http"),
        pytest.param(("sqlite", "hbase"), marks=pytest.mark.hbase),
        ("postgres", "leveldb"),
        ("postgres", "http"),
        ("mysql", "leveldb"),
        ("mysql", "http"),
    ],
    ids="-".join,
)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Each database in turn, beside every implementation."""
    database, request.param = request.param
    with ExitStack() as stack:
        site = stack.enter_context(lent_site(request, tmp_path))
        opened = shop_of(request, site, tmp_path, database)
        stack.callback(opened.close)
        yield opened


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def lasting_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """Each database in turn, beside a directory."""
    site = Site("leveldb", tmp_path)
    opened = shop_of(request, site, tmp_path, request.param)
    yield opened
    opened.close()
    site.close()


def shop_of(
    request: pytest.FixtureRequest, site: Site, directory: Path, database: str
) -> Shop:
    """A shop in such a database."""
    path = directory / "shop.db"
    if database == "sqlite":
        return Shop(site, lambda: sqlite3.connect(path), lambda: SqliteOutbox(path))
    server = request.getfixturevalue(f"{database}_server")
    return Shop(site, server.connect, lambda: open_outbox(server.url))
