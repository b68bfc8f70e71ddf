"""The outbox alone: messages and items are rows of the program's own transaction.

Nothing of ours has to be there but the database: a relay carries them over once a
server is.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from txaware.errors import BadRequest, MisusedTransaction
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.messages import MessageOptions, Outgoing, outgoing
from txaware.model.partitions import full_name
from txaware.model.queues import checked_push, delay_until_s
from txaware.model.requests import Payload
from txaware.model.settings import Settings
from txaware.model.signatures import unpacked
from txaware.model.topics import QueueName
from txaware.model.traced_messages import sent
from txaware.participants.asyncpg_connection import AsyncpgConnection
from txaware.participants.database_steps import (
    Steps,
    awaited,
    in_thread,
    library_of,
    told_pool,
)
from txaware.participants.database_tables import made_tables, missing
from txaware.participants.mysql_block import is_marked, mark
from txaware.participants.mysql_link import MYSQL, MysqlLink
from txaware.participants.outbox_row import (
    Columns,
    columns_of,
    columns_of_item,
    new_token,
)
from txaware.participants.postgres_link import (
    POSTGRES,
    driver,
    is_asyncio,
)
from txaware.participants.sql_dialect import SqlDialect
from txaware.participants.sqlite_link import SQLITE
from txaware.publish.publisher import checked_many, checked_size_bytes

if TYPE_CHECKING:
    from aiosqlite import Connection as AiosqliteConnection
    from asyncpg import Connection as GivenAsyncpgConnection
    from psycopg import AsyncConnection, Connection
    from pymysql.connections import Connection as MysqlConnection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


SAVEPOINT = "txaware_rows"
HAS_TABLES = "txaware has its tables"
# Made once: each has all its fields checked, and a request makes an outbox.
DEFAULTS = Settings()


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
        self._limit_bytes = (settings or DEFAULTS).message_limit_bytes
        # What is known of the connection; that of a session's outlives it in the pool.
        self._known: dict[Any, Any] = {}
        self._made_some = False
        self._token = new_token()

    def published(self, topic: str, payloads: Iterable[Payload]) -> Steps[None]:
        """Writes messages."""
        name, messages = full_name(topic), self._checked(payloads)
        columns = partial(columns_of, name.removeprefix("default:"))
        with sent("publish", name, messages) as carried:
            yield from self._write(columns, carried)

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
        delay_s = delay_until_s(at, delay_s, self._clock_ms)
        options = checked_push("", delay_s, priority)
        columns = partial(columns_of_item, name, options=options)
        with sent("push", name, items) as carried:
            yield from self._write(columns, carried)

    def _checked(self, payloads: Iterable[Payload]) -> list[Payload]:
        checked = list(checked_many(payloads))
        for one in checked:
            checked_size_bytes(one, self._limit_bytes)
        return checked

    def _write(
        self, columns: Callable[..., Columns], payloads: Sequence[Payload]
    ) -> Steps[None]:
        if not payloads:
            return
        connection = yield from self._connection()
        dialect = dialect_of(connection)
        if dialect.is_outside(connection):
            raise MisusedTransaction(
                "the connection is in autocommit and has no transaction open, so the "
                "row would commit without yours: begin one first"
            )
        if HAS_TABLES not in self._known:
            yield from self._make_tables(dialect, connection)
        now_ms, token = self._clock_ms(), (yield from self._token_of(connection))
        rows = [columns(one, token=token, now_ms=now_ms) for one in payloads]
        yield from dialect.change_many(connection, dialect.insert_alone, rows)

    def _token_of(self, connection: Any) -> Steps[bytes]:
        """Returns the token for rows, in MySQL one for all of a transaction.

        In PostgreSQL the rows have another one in any case.
        """
        if dialect_of(connection) is MYSQL:
            if not (yield from is_marked(connection, SAVEPOINT)):
                self._token = new_token()
            yield from mark(connection, SAVEPOINT)
            return self._token
        return new_token()

    def _make_tables(self, dialect: SqlDialect, connection: Any) -> Steps[None]:
        """Makes what is missing: in the transaction, where that does not commit it."""
        lacking = yield from missing(dialect, connection)
        if lacking and not dialect.makes_tables_within:
            with closing(MysqlLink.beside(connection)) as link:
                made_tables(link)
        elif lacking:
            if dialect.alone:  # others may make them just now
                yield from dialect.change(connection, dialect.alone)
                lacking = yield from missing(dialect, connection)
            for statement in lacking:
                yield from dialect.change(connection, statement)
            # A rollback takes them away again.
            self._made_some = True
        if not self._made_some:
            self._known[HAS_TABLES] = True

    def _connection(self) -> Steps[Any]:
        """Returns the connection of the driver; a session begins with it."""
        given = self._given
        if hasattr(given, "sync_session"):
            with told_pool():
                given, self._known = yield given.run_sync(_begun)
        elif hasattr(given, "get_bind"):
            with told_pool():
                given, self._known = _begun(given)
        if library_of(given) == "asyncpg":
            return AsyncpgConnection(given, lent=True)
        return given

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._given!r:.100}>"


class Outbox(WritesRows):
    """The outbox of a connection or session whose calls block; see `txaware.outbox`."""

    @unpacked
    def publish(
        self,
        topic: str,
        payload: bytes | Outgoing,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Writes one message, as `Publisher.publish` takes it, with the transaction."""
        self.publish_all(topic, [outgoing(payload, options)])

    def publish_all(self, topic: str, payloads: Iterable[Payload]) -> None:
        """Writes many messages, in order."""
        in_thread(self.published(topic, payloads))

    @unpacked
    def push(
        self,
        queue: str,
        payload: bytes | Outgoing,
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Writes one item, as `Queue.push` takes it, with the transaction."""
        item = outgoing(payload, options)
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

    @unpacked
    async def publish(
        self,
        topic: str,
        payload: bytes | Outgoing,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Writes one message, as `Publisher.publish` takes it, with the transaction."""
        await self.publish_all(topic, [outgoing(payload, options)])

    async def publish_all(self, topic: str, payloads: Iterable[Payload]) -> None:
        """Writes many messages, in order."""
        await awaited(self.published(topic, payloads))

    @unpacked
    async def push(
        self,
        queue: str,
        payload: bytes | Outgoing,
        *,
        delay_s: float = 0,
        at: datetime | None = None,
        priority: int = 0,
        **options: Unpack[MessageOptions],
    ) -> None:
        """Writes one item, as `Queue.push` takes it, with the transaction."""
        item = outgoing(payload, options)
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


def outbox(
    connection: "sqlite3.Connection | Connection[Any] | MysqlConnection | Session",
) -> Outbox:
    """Returns the outbox of a database, over a connection or session of yours.

    It takes one of sqlite3, psycopg or PyMySQL, or a session of SQLAlchemy over these.
    What it publishes and pushes are rows, in the transaction that is open there and
    that the program commits itself. No server has to be there: a relay (`txaware outbox
    relay`) carries the rows over when there is one.
    """
    library = library_of(connection)
    if (
        isinstance(connection, sqlite3.Connection)
        or library == "pymysql"
        or (library == "psycopg" and isinstance(connection, driver().Connection))
    ):
        return Outbox(connection)
    if hasattr(connection, "get_bind") and not hasattr(connection, "sync_session"):
        return Outbox(connection)
    raise _wrong(
        connection,
        "a connection of sqlite3, psycopg or PyMySQL, or a Session of SQLAlchemy; for "
        "those of asyncio there is txaware.outbox_async",
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


def dialect_of(connection: Any) -> SqlDialect:
    """Returns how the database of a connection is spoken to."""
    library = library_of(connection)
    if isinstance(connection, sqlite3.Connection) or library == "aiosqlite":
        return SQLITE
    return MYSQL if library == "pymysql" else POSTGRES


def _begun(session: Any) -> tuple[Any, dict[Any, Any]]:
    """Begins a session's transaction; returns the connection of its driver.

    With it comes what is known of that for as long as it is open.
    """
    connection = session.connection()
    lent = connection.connection.driver_connection
    # It begins at the first statement.
    if library_of(lent) == "asyncpg" and not lent.is_in_transaction():
        connection.exec_driver_sql("SELECT 1")
    return lent, connection.info


def _wrong(connection: object, takes: str) -> BadRequest:
    return BadRequest(f"an outbox takes {takes}; {connection!r:.100} is none")
