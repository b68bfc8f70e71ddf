"""Participants for asyncio: the same ones, whose steps an event loop takes.

A block of asyncio has a thread, in which the participant is called as everywhere. It
hands its steps to the event loop, which has the connection.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from txaware.client.aio.async_messaging import AsyncMessaging, messaging_of
from txaware.consume import Inbox
from txaware.errors import BadRequest
from txaware.model.messages import MessageId, Page
from txaware.model.start_places import StartAt
from txaware.participants.asyncpg_connection import AsyncpgConnection
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.database_steps import InLoop, library_of
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.postgres import MarkedPostgres, Postgres
from txaware.participants.postgres_outbox import DecidingPostgres
from txaware.participants.sqlalchemy import SqlalchemySession
from txaware.participants.sqlite import Sqlite

R = TypeVar("R")

BLOCK = "async with messaging.transaction(...)"


class AsyncInbox:
    """The promises of `Inbox`, awaited."""

    def __init__(self, messaging: AsyncMessaging, make: Callable[[], Inbox]) -> None:
        self._messaging = messaging
        self._make = make
        self._made: Inbox | None = None

    async def poll(self, limit: int = 100) -> Page:
        """Returns the next messages, at most `limit`, in the block of this task."""
        return await self._run(lambda: self._inbox.poll(limit))

    async def peek(self, limit: int = 100) -> Page:
        """Returns the messages that a block would poll now; the group stays."""
        return await self._run(lambda: self._inbox.peek(limit))

    async def seek(self, start: StartAt, *, inclusive: bool = True) -> None:
        """Goes on from another place, with the block."""
        await self._run(lambda: self._inbox.seek(start, inclusive=inclusive))

    async def position(self) -> MessageId | None:
        """Returns the message after which the next block goes on."""
        return await self._run(lambda: self._inbox.position)

    async def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; comes before the block."""
        return await self._run(lambda: self._inbox.wait(timeout_s))

    @property
    def _inbox(self) -> Inbox:
        if self._made is None:
            self._made = self._make()
        return self._made

    async def _run(self, call: Callable[[], R]) -> R:
        return await self._messaging.in_thread(call)


class AwaitedDatabase(DecidingDatabase):
    """A database that decides its blocks, over a connection of asyncio."""

    block = BLOCK
    _awaited: AsyncMessaging

    def consumer(  # type: ignore[override]
        self, topic: str, *, group: str, start: StartAt = None, inclusive: bool = True
    ) -> AsyncInbox:
        """Returns a reader of a topic whose position commits with this database."""
        place: dict[str, Any] = {"start": start, "inclusive": inclusive}
        make = partial(Inbox, self.messaging, self, topic, group=group, **place)
        return AsyncInbox(self._awaited, make)

    async def relay(self) -> int:  # type: ignore[override]
        """Carries over now what has committed; returns how many messages these were."""
        return await self._awaited.in_thread(super().relay)

    def require_any_thread(self) -> None:
        """Takes any thread: the event loop has the connection."""


class AsyncSqlite(AwaitedDatabase, Sqlite):
    """A connection of aiosqlite, whose commit decides the block."""


class AsyncDecidingPostgres(AwaitedDatabase, DecidingPostgres):
    """A connection to PostgreSQL for asyncio, whose own commit decides the block."""


class AsyncPostgres(Postgres):
    """A connection of psycopg for asyncio, whose transaction is prepared."""

    block = BLOCK

    async def settle(self) -> None:  # type: ignore[override]
        """Waits until others see the rows of all blocks that have ended by now."""
        await asyncio.to_thread(super().settle)


class AsyncMarkedPostgres(MarkedPostgres, AsyncPostgres):
    """A connection whose transaction is prepared, and that nobody else guards."""


def async_sqlite(
    messaging: object, connection: Any, *, relay: bool, drive: InLoop | None = None
) -> AsyncSqlite:
    """Makes a participant of a connection of aiosqlite."""
    awaited = checked_async(messaging, taker="participants.sqlite")
    return _deciding(AsyncSqlite, awaited, connection, relay=relay, drive=drive)


def async_postgres(
    messaging: object,
    connection: Any,
    *,
    outbox: bool,
    relay: bool,
    lent_by: InLoop | None = None,
) -> "AsyncPostgres | AsyncMarkedPostgres | AsyncDecidingPostgres":
    """Makes a participant of an asyncio connection of psycopg or asyncpg.

    `lent_by` drives the session that has lent it, and may roll it back.
    """
    awaited = checked_async(messaging, taker="participants.postgres")
    kind: type[AsyncPostgres | AsyncMarkedPostgres] = AsyncPostgres
    if library_of(connection) == "asyncpg":
        connection = AsyncpgConnection(connection, lent=lent_by is not None)
        kind = AsyncMarkedPostgres
    elif lent_by is not None:
        kind = AsyncMarkedPostgres
    if outbox:
        options: dict[str, Any] = {"relay": relay, "drive": lent_by}
        return _deciding(AsyncDecidingPostgres, awaited, connection, **options)
    return kind(messaging_of(awaited), connection, drive=lent_by or InLoop())


D = TypeVar("D", bound=AwaitedDatabase)


def _deciding(
    kind: type[D],
    messaging: AsyncMessaging,
    connection: Any,
    *,
    relay: bool,
    drive: InLoop | None,
) -> D:
    made = kind(
        messaging_of(messaging),
        connection,
        in_background=relay,
        drive=drive or InLoop(),
    )
    made._awaited = messaging
    return made


class AsyncSqlalchemySession(SqlalchemySession):
    """An AsyncSession whose connection takes part, as its pool has lent it."""

    block = BLOCK

    def __init__(
        self, messaging: AsyncMessaging, session: Any, *, outbox: bool, relay: bool
    ) -> None:
        super().__init__(messaging_of(messaging), session, outbox=outbox, relay=relay)
        self._awaited = messaging
        self._drive = InLoop()

    @property
    def _inner(self) -> Any:
        return self.session.sync_session

    def _call(self, work: Callable[[Any], R]) -> R:
        def steps() -> Any:
            return (yield self.session.run_sync(work))

        return self._drive(steps())  # type: ignore[no-any-return]

    def consumer(  # type: ignore[override]
        self, topic: str, *, group: str, start: StartAt = None, inclusive: bool = True
    ) -> AsyncInbox:
        """Returns a reader of a topic whose position commits with the session."""
        place: dict[str, Any] = {"start": start, "inclusive": inclusive}
        make = partial(Inbox, self._messaging, self, topic, group=group, **place)
        return AsyncInbox(self._awaited, make)

    async def relay(self) -> int:  # type: ignore[override]
        """Carries over now what has committed; returns how many messages these were."""
        return await self._awaited.in_thread(
            lambda: DecidingDatabase.relay(self._deciding("relay"))
        )

    @property
    def outbox(self) -> DatabaseOutbox:
        """Returns the outbox; it is looked up in a thread."""
        return self._deciding("outbox").outbox

    def _database_of(self, connection: Any) -> Any:
        library = library_of(connection)
        if library == "aiosqlite":
            return async_sqlite(
                self._awaited, connection, relay=self._relay, drive=self._drive
            )
        if library not in ("psycopg", "asyncpg"):
            raise BadRequest(
                f"sessions of asyncio to SQLite by aiosqlite, and to PostgreSQL by "
                f"psycopg 3 or asyncpg, take part; this one has a {connection!r:.100}"
            )
        if library == "asyncpg":  # its session begins at the first statement
            self._call(lambda session: session.connection().exec_driver_sql("SELECT 1"))
        options: dict[str, Any] = {"outbox": self._outbox, "relay": self._relay}
        return async_postgres(self._awaited, connection, lent_by=self._drive, **options)


def async_session(
    messaging: object, session: Any, *, outbox: bool, relay: bool
) -> AsyncSqlalchemySession:
    """Makes a participant of an AsyncSession."""
    awaited = checked_async(messaging, taker="participants.sqlalchemy")
    return AsyncSqlalchemySession(awaited, session, outbox=outbox, relay=relay)


def checked_async(messaging: object, *, taker: str) -> AsyncMessaging:
    """Returns an `AsyncMessaging`; connections of asyncio are for nothing else."""
    if isinstance(messaging, AsyncMessaging):
        return messaging
    raise BadRequest(
        f"{taker} with a connection of asyncio joins blocks of asyncio ({BLOCK}: ...), "
        f"and takes the AsyncMessaging of txaware.connect_async, not {messaging!r:.100}"
    )
