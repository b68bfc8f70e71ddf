"""Participants for asyncio: the same ones, whose steps an event loop takes.

A block of asyncio has a thread, in which the participant is called as everywhere. It
hands its steps to the event loop, which has the connection. Where a database decides
the block alone, the event loop takes the steps before the participant is called, and no
thread is needed (`DecidesInLoop`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from txaware.client.aio.async_messaging import AsyncMessaging, messaging_of
from txaware.client.aio.async_transaction import DecidesInLoop, seen_through
from txaware.consume import Inbox
from txaware.errors import BadRequest
from txaware.model.messages import MessageId, Page
from txaware.model.start_places import StartAt
from txaware.participants.asyncpg_connection import AsyncpgConnection
from txaware.participants.database_steps import InLoop, Steps, awaited, library_of
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.postgres import MarkedPostgres, Postgres
from txaware.participants.postgres_outbox import DecidingPostgres
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


class StepsAhead:
    """Steps that an event loop takes ahead, how they ended, and those that wait."""

    def __init__(self) -> None:
        self._ends: dict[str, BaseException | None] = {}
        self._waiting: list[Steps[None]] = []

    async def take(self, call: str, steps: Steps[None]) -> bool:
        """Takes the steps of a call to their end; tells whether they did not fail."""
        try:
            await awaited(steps)
        except BaseException as error:
            self._ends[call] = error
            return False
        self._ends[call] = None
        return True

    def fail(self, call: str, error: BaseException) -> None:
        """Has a call raise."""
        self._ends[call] = error

    def end(self, call: str, steps: Steps[None]) -> None:
        """Ends a call as its steps have ended; those that were not taken wait."""
        if call not in self._ends:
            self._waiting.append(steps)
            return
        steps.close()
        error = self._ends[call]
        if error is not None:
            raise error

    async def write(self) -> None:
        """Takes the steps that wait."""
        waiting, self._waiting = self._waiting, []
        for steps in waiting:
            await awaited(steps)


class AwaitedDatabase(DecidingDatabase, DecidesInLoop):
    """A database that decides its blocks, over a connection of asyncio."""

    block = BLOCK
    _awaited: AsyncMessaging
    # There while the event loop takes the steps of a block, which has no thread.
    _ahead: StepsAhead | None = None
    # False where its begin waits for nothing.
    _begins_with_steps = True

    async def begin_ahead(self) -> None:
        """Begins its transaction; raises where it is in another block."""
        if self._tx is not None or self._ahead is not None:
            raise self._busy("another task" if self._tx is None else self._tx.label)
        self._ahead = ahead = StepsAhead()
        begun = ahead.take("begin", self._begun())
        if not self._begins_with_steps:
            await begun
            return
        cancelled = await seen_through(begun)
        if cancelled is not None:
            await seen_through(ahead.take("rollback", self._rollback()))
            ahead.fail("begin", cancelled)

    def _begun(self) -> Steps[None]:
        if "_place" not in self.__dict__:
            self.__dict__["_place"] = yield from self._name()
        self._require_idle()
        if not self.is_open:
            yield asyncio.to_thread(self.open)
        yield from self._begin()

    async def write_ahead(self) -> None:
        """Writes the rows of what was published and pushed."""
        if self._ahead is not None:
            await self._ahead.write()

    async def commit_ahead(self) -> bool:
        """Commits, or else rolls back."""
        ahead = self._ahead
        if ahead is None:
            return False
        has_committed = await ahead.take("commit", self._commit())
        if not has_committed:
            await ahead.take("rollback", self._rollback())
        return has_committed

    async def roll_back_ahead(self) -> None:
        """Rolls back."""
        if self._ahead is not None:
            await self._ahead.take("rollback", self._rollback())

    def leave_loop(self) -> None:
        """Has its steps taken for a thread, or for the next block, from now on."""
        self._ahead = None

    def _begin_block(self) -> None:
        if self._ahead is None:
            super()._begin_block()
        else:
            self._take("begin", self._begin())

    def _take(self, call: str, steps: Steps[None]) -> None:
        if self._ahead is None:
            super()._take(call, steps)
        else:
            self._ahead.end(call, steps)

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
    return deciding(AsyncSqlite, awaited, connection, relay=relay, drive=drive)


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
        return deciding(AsyncDecidingPostgres, awaited, connection, **options)
    return kind(messaging_of(awaited), connection, drive=lent_by or InLoop())


D = TypeVar("D", bound=AwaitedDatabase)


def deciding(
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


def checked_async(messaging: object, *, taker: str) -> AsyncMessaging:
    """Returns an `AsyncMessaging`; connections of asyncio are for nothing else."""
    if isinstance(messaging, AsyncMessaging):
        return messaging
    raise BadRequest(
        f"{taker} with a connection of asyncio joins blocks of asyncio ({BLOCK}: ...), "
        f"and takes the AsyncMessaging of txaware.connect_async, not {messaging!r:.100}"
    )
