"""The outbox alone: messages and items are rows of the program's own transaction.

Nothing of ours has to be there but the database: a relay carries them over once a
server is.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from txaware.errors import BadRequest, MisusedTransaction
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.messages import Outgoing, outgoing
from txaware.model.queues import checked_push, delay_until_s
from txaware.model.requests import Payload
from txaware.model.settings import Settings
from txaware.model.topics import QueueName, TopicName
from txaware.model.traced_messages import sent
from txaware.participants.asyncpg_connection import AsyncpgConnection
from txaware.participants.database_steps import Steps, awaited, in_thread
from txaware.participants.database_tables import (
    ALONE,
    missing_in_postgres,
    missing_in_sqlite,
)
from txaware.participants.outbox_row import (
    Columns,
    columns_of,
    columns_of_item,
    new_token,
)
from txaware.participants.postgres_link import driver, is_asyncio, library_of
from txaware.participants.postgres_outbox import INSERT_BY_TRANSACTION
from txaware.participants.sqlite_outbox import INSERT
from txaware.publish.publisher import checked_many, checked_size_bytes

if TYPE_CHECKING:
    from aiosqlite import Connection as AiosqliteConnection
    from asyncpg import Connection as GivenAsyncpgConnection
    from psycopg import AsyncConnection, Connection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


class WritesRows:
    """Writes rows in the transaction that is open on a connection or session."""

    def __init__(
        self,
        given: Any,
        *,
        clock_ms: ClockMs = system_clock_ms,
        settings: Settings | None = None,
    ) -> None:
        self._given = given
        self._clock_ms = clock_ms
        self._limit_bytes = (settings or Settings()).message_limit_bytes
        self._has_tables = False
        self._made_some = False

    def published(self, topic: str, payloads: Iterable[Payload]) -> Steps[None]:
        """Writes messages."""
        name, messages = str(TopicName.parse(topic)), self._checked(payloads)
        columns = partial(columns_of, name.removeprefix("default:"))
        options: dict[str, Any] = {"token": new_token(), "now_ms": self._clock_ms()}
        with sent("publish", name, messages) as carried:
            yield from self._write([columns(one, **options) for one in carried])

    def pushed(
        self,
        queue: str,
        payloads: Iterable[Payload],
        *,
        delay_s: float,
        at: datetime | None,
        priority: int,
    ) -> Steps[None]:
        """Writes items."""
        name, items = str(QueueName.parse(queue)), self._checked(payloads)
        columns = partial(columns_of_item, name)
        delay_s = delay_until_s(at, delay_s, self._clock_ms)
        chosen = checked_push("", delay_s, priority)
        options: dict[str, Any] = {"token": new_token(), "now_ms": self._clock_ms()}
        with sent("push", name, items) as carried:
            yield from self._write([columns(one, chosen, **options) for one in carried])

    def _checked(self, payloads: Iterable[Payload]) -> list[Payload]:
        checked = list(checked_many(payloads))
        for one in checked:
            checked_size_bytes(one, self._limit_bytes)
        return checked

    def _write(self, rows: Sequence[Columns]) -> Steps[None]:
        if not rows:
            return
        connection = yield from self._connection()
        is_sqlite = isinstance(connection, sqlite3.Connection)
        if is_sqlite or library_of(connection) == "aiosqlite":
            yield from self._write_to_sqlite(connection, rows)
        else:
            yield from self._write_to_postgres(connection, rows)

    def _write_to_sqlite(self, connection: Any, rows: Sequence[Columns]) -> Steps[None]:
        if connection.isolation_level is None and not connection.in_transaction:
            raise _autocommit()
        if not self._has_tables:
            lacking = yield from missing_in_sqlite(connection)
            for statement in lacking:
                yield connection.execute(statement)
            self._has_tables = self._found(lacking)
        yield connection.executemany(INSERT, rows)

    def _write_to_postgres(
        self, connection: Any, rows: Sequence[Columns]
    ) -> Steps[None]:
        idle = driver().pq.TransactionStatus.IDLE
        if connection.autocommit and connection.info.transaction_status is idle:
            raise _autocommit()
        if not self._has_tables:
            lacking = yield from missing_in_postgres(connection)
            if lacking:  # others may make them just now
                yield connection.execute(ALONE)
                for statement in (yield from missing_in_postgres(connection)):
                    yield connection.execute(statement)
            self._has_tables = self._found(lacking)
        yield connection.cursor().executemany(INSERT_BY_TRANSACTION, rows)

    def _found(self, lacking: list[str]) -> bool:
        """Tells whether all tables are there for good; a rollback takes made ones."""
        self._made_some = self._made_some or bool(lacking)
        return not self._made_some

    def _connection(self) -> Steps[Any]:
        """Returns the connection of the driver; a session begins with it."""
        given = self._given
        if hasattr(given, "sync_session"):
            given = yield given.run_sync(_begun)
        elif hasattr(given, "get_bind"):
            given = _begun(given)
        if library_of(given) == "asyncpg":
            return AsyncpgConnection(given, lent=True)
        return given

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._given!r:.100}>"


class Outbox(WritesRows):
    """The outbox of a connection or session whose calls block; see `txaware.outbox`."""

    def publish(
        self,
        topic: str,
        payload: bytes | Outgoing,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
    ) -> None:
        """Writes one message, as `Publisher.publish` takes it, with the transaction."""
        self.publish_all(topic, [outgoing(payload, key, headers, expire_after_s)])

    def publish_all(self, topic: str, payloads: Iterable[Payload]) -> None:
        """Writes many messages, in order."""
        in_thread(self.published(topic, payloads))

    def push(
        self,
        queue: str,
        payload: bytes | Outgoing,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        expire_after_s: float | None = None,
    ) -> None:
        """Writes one item, as `Queue.push` takes it, with the transaction."""
        item = outgoing(payload, key, headers, expire_after_s)
        self.push_all(queue, [item], delay_s=delay_s, at=at, priority=priority)

    def push_all(
        self,
        queue: str,
        payloads: Iterable[Payload],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
    ) -> None:
        """Writes many items, in order."""
        in_thread(
            self.pushed(queue, payloads, delay_s=delay_s, at=at, priority=priority)
        )


class AsyncOutbox(WritesRows):
    """The outbox of a connection or session of asyncio; see `txaware.outbox_async`."""

    async def publish(
        self,
        topic: str,
        payload: bytes | Outgoing,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
    ) -> None:
        """Writes one message, as `Publisher.publish` takes it, with the transaction."""
        await self.publish_all(topic, [outgoing(payload, key, headers, expire_after_s)])

    async def publish_all(self, topic: str, payloads: Iterable[Payload]) -> None:
        """Writes many messages, in order."""
        await awaited(self.published(topic, payloads))

    async def push(
        self,
        queue: str,
        payload: bytes | Outgoing,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        expire_after_s: float | None = None,
    ) -> None:
        """Writes one item, as `Queue.push` takes it, with the transaction."""
        item = outgoing(payload, key, headers, expire_after_s)
        await self.push_all(queue, [item], delay_s=delay_s, at=at, priority=priority)

    async def push_all(
        self,
        queue: str,
        payloads: Iterable[Payload],
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
    ) -> None:
        """Writes many items, in order."""
        await awaited(
            self.pushed(queue, payloads, delay_s=delay_s, at=at, priority=priority)
        )


def outbox(connection: "sqlite3.Connection | Connection[Any] | Session") -> Outbox:
    """Returns the outbox of a database, over a connection or session of yours.

    It takes one of sqlite3 or psycopg, or a session of SQLAlchemy to either. What it
    publishes and pushes are rows, in the transaction that is open there and that the
    program commits itself. No server has to be there: a relay (`txaware outbox relay`)
    carries the rows over when there is one.
    """
    if isinstance(connection, sqlite3.Connection) or (
        library_of(connection) == "psycopg"
        and isinstance(connection, driver().Connection)
    ):
        return Outbox(connection)
    if hasattr(connection, "get_bind") and not hasattr(connection, "sync_session"):
        return Outbox(connection)
    raise _wrong(
        connection,
        "a connection of sqlite3 or psycopg, or a Session of SQLAlchemy; for those of "
        "asyncio there is txaware.outbox_async",
    )


def outbox_async(
    connection: "AiosqliteConnection | AsyncConnection[Any] | GivenAsyncpgConnection | "
    "AsyncSession",
) -> AsyncOutbox:
    """Returns the outbox of a database, over a connection or session of asyncio.

    It takes one of aiosqlite, psycopg (`AsyncConnection`) or asyncpg, or an
    `AsyncSession` of SQLAlchemy over these. See `outbox`.
    """
    if (
        library_of(connection) == "aiosqlite"
        or is_asyncio(connection)
        or hasattr(connection, "sync_session")
    ):
        return AsyncOutbox(connection)
    raise _wrong(
        connection,
        "a connection of aiosqlite, psycopg (AsyncConnection) or asyncpg, or an "
        "AsyncSession of SQLAlchemy; for those that block there is txaware.outbox",
    )


def _begun(session: Any) -> Any:
    """Begins a session's transaction; returns the connection of its driver."""
    connection = session.connection()
    lent = connection.connection.driver_connection
    if library_of(lent) == "asyncpg":  # it begins at the first statement
        connection.exec_driver_sql("SELECT 1")
    return lent


def _wrong(connection: object, takes: str) -> BadRequest:
    return BadRequest(f"an outbox takes {takes}; {connection!r:.100} is none")


def _autocommit() -> MisusedTransaction:
    return MisusedTransaction(
        "the connection is in autocommit and has no transaction open, so the row would "
        "commit without yours: begin one first"
    )
