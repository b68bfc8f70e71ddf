"""A session of SQLAlchemy for asyncio that takes part, with the database it has."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs

from coordinator.transaction import Transaction
from txaware.client.aio.async_messaging import AsyncMessaging, messaging_of
from txaware.client.aio.async_transaction import DecidesInLoop
from txaware.consume import Inbox
from txaware.errors import BadRequest, MisusedTransaction
from txaware.model.start_places import StartAt
from txaware.participants.asyncio_participants import (
    BLOCK,
    AsyncDecidingPostgres,
    AsyncInbox,
    AsyncSqlite,
    AwaitedDatabase,
    StepsAhead,
    async_postgres,
    checked_async,
    deciding,
)
from txaware.participants.asyncpg_connection import AsyncpgConnection
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.database_steps import InLoop, Steps, library_of, told_pool
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.outbox_row import Columns
from txaware.participants.postgres_block import failed, require_idle, require_whole
from txaware.participants.postgres_link import POSTGRES, driver
from txaware.participants.postgres_outbox import SYNCED, XID
from txaware.participants.sqlalchemy import SqlalchemySession
from txaware.participants.sqlite import path_of

R = TypeVar("R")

# What a pool knows of a connection: its file of SQLite, or the name of its database.
PLACE = "txaware place"


@attrs.frozen
class Lent:
    """A connection of a driver, as a session has it, and what its pool knows of it."""

    connection: Any
    known: dict[Any, Any]
    is_autocommit: bool

    @classmethod
    def by(cls, session: Any) -> "Lent":
        """Has a session begin, and returns its connection."""
        connection = session.connection()
        dbapi = connection.connection.dbapi_connection
        return cls(
            connection.connection.driver_connection,
            connection.info,
            bool(getattr(dbapi, "autocommit", False)),
        )


class LentDatabase(AwaitedDatabase):
    """A database over the connection of a session, whose end is the session's own.

    The transaction of the session is what the block began as long as it is the same
    object, so that nobody has to mark it in the database.
    """

    _session: Any
    _mark: object
    # What the pool keeps for the connection.
    known: dict[Any, Any]

    def _marked(self) -> None:
        self._mark = self._session.sync_session.get_transaction()

    def _require_marked(self) -> None:
        if self._session.sync_session.get_transaction() is not self._mark:
            raise self._ended_within()

    def _ended_within(self) -> MisusedTransaction:
        return MisusedTransaction(
            f"the transaction of {self.transaction_aware_name} was ended inside of its "
            f"block, by commit() or rollback(); the end of the block commits. What "
            f"came after that call is rolled back"
        )

    def _rollback(self) -> Steps[None]:
        yield self._session.rollback()


class LentSqlite(LentDatabase, AsyncSqlite):
    """A file of SQLite, over the connection of a session."""

    def _name(self) -> Steps[str]:
        if PLACE not in self.known:
            self.known[PLACE] = yield from path_of(self.connection)
        self._path = self.known[PLACE]
        return f"sqlite {self._path}"

    def _begin(self) -> Steps[None]:
        self._marked()
        yield from self._begin_immediate()

    def _commit(self) -> Steps[None]:
        self._require_marked()
        if not self.connection.in_transaction:
            raise self._ended_within()
        yield self._session.commit()
        yield from self._has_committed()

    def _rollback(self) -> Steps[None]:
        yield from super()._rollback()
        yield from self._restore_synchronous()


class LentPostgres(LentDatabase, AsyncDecidingPostgres):
    """PostgreSQL, over the connection of a session."""

    is_autocommit = False
    _begins_with_steps = False
    # The id of the transaction, once a row of the outbox has told it.
    _xid: str | None = None

    def _name(self) -> Steps[str]:
        if PLACE not in self.known:
            self.known[PLACE] = yield from super()._name()
        name: str = self.known[PLACE]
        return name

    def _require_idle(self) -> None:
        if not isinstance(self.connection, AsyncpgConnection) or self.is_autocommit:
            require_idle(self.connection, self.transaction_aware_name)

    def _begin(self) -> Steps[None]:
        yield from ()
        self._marked()
        self._xid = None

    def _insert(self, rows: Sequence[Columns]) -> Steps[None]:
        first, *others = rows
        inserted = POSTGRES.rows(self.connection, POSTGRES.insert, *first)
        [[_, self._xid]] = yield from inserted
        if others:
            yield from super()._insert(others)

    def _commit(self) -> Steps[None]:
        self._require_marked()
        xid = yield from self._whole()
        try:
            yield self._session.commit()
        except (Exception, asyncio.CancelledError):
            ask = self._relay.rows.has_committed
            if xid is None or not (yield asyncio.to_thread(ask, xid)):
                raise

    def _whole(self) -> Steps[str | None]:
        """Returns the id of the transaction; refuses one in which a statement failed.

        asyncpg does not tell that one has, so PostgreSQL is asked.
        """
        connection, xid = self.connection, self._xid
        is_told = not isinstance(connection, AsyncpgConnection)
        if is_told:
            idle = driver().pq.TransactionStatus.IDLE
            is_open = connection.info.transaction_status is not idle
        else:
            is_open = connection.given.is_in_transaction()
        if not is_open and xid is None:
            return None  # it has done nothing
        if not is_open:
            raise self._ended_within()
        if is_told:
            require_whole(connection, self.transaction_aware_name)
        try:
            if self._noted:
                yield from POSTGRES.rows(connection, SYNCED)
            if xid is None or not is_told:
                [[xid]] = yield from POSTGRES.rows(connection, XID)
        except driver().errors.InFailedSqlTransaction as error:
            raise failed(self.transaction_aware_name) from error
        return xid


class AsyncSqlalchemySession(SqlalchemySession, DecidesInLoop):
    """An AsyncSession whose connection takes part, as its pool has lent it."""

    block = BLOCK
    # There while the event loop takes the steps of a block, which has no thread.
    _ahead: StepsAhead | None = None
    _next: LentDatabase

    def __init__(
        self, messaging: AsyncMessaging, session: Any, *, outbox: bool, relay: bool
    ) -> None:
        super().__init__(messaging_of(messaging), session, outbox=outbox, relay=relay)
        self._awaited = messaging
        self._drive = InLoop()

    async def begin_ahead(self) -> None:
        """Begins the session's transaction; raises where it is in another block."""
        if self._database is not None or self._ahead is not None:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is in the block of another task, and a "
                f"session has one at a time; open another session"
            )
        self._ahead = ahead = StepsAhead()
        await ahead.take("begin", self._begun())

    def _begun(self) -> Steps[None]:
        self._require_idle()
        try:
            with told_pool():
                lent = yield self.session.run_sync(Lent.by)
            self._next = self._database_of(lent)
            yield self._next.begin_ahead()
        except BaseException:
            yield self.session.rollback()
            raise

    async def write_ahead(self) -> None:
        """Writes the rows of what was published and pushed."""
        if self._ahead is not None:
            await self._ahead.write()
        if self._database is not None:
            await self._next.write_ahead()

    async def commit_ahead(self) -> bool:
        """Flushes and commits the session, or else rolls it back."""
        ahead = self._ahead
        if ahead is None:
            return False
        if not await ahead.take("flush", self._steps("flush")):
            await self.roll_back_ahead()
            return False
        has_committed = await self._next.commit_ahead()
        await ahead.take("commit" if has_committed else "rollback", _nothing())
        return has_committed

    async def roll_back_ahead(self) -> None:
        """Rolls the session back."""
        if self._ahead is not None:
            await self._next.roll_back_ahead()
            await self._ahead.take("rollback", _nothing())

    def leave_loop(self) -> None:
        """Has its steps taken for a thread, or for the next block, from now on."""
        if self._ahead is not None:
            self._ahead = None
            if self._database is not None:
                self._next.leave_loop()

    def start_tx(self, tx: Transaction) -> None:
        """Begins the session's transaction, unless the event loop has."""
        ahead = self._ahead
        if ahead is None:
            super().start_tx(tx)
            return
        ahead.end("begin", _nothing())
        try:
            self._next.start_tx(tx)
        except BaseException:
            self._ended("rollback")
            raise
        self._database = self._last = self._next

    @property
    def _inner(self) -> Any:
        return self.session.sync_session

    def _call(self, work: Callable[[Any], R]) -> R:
        def steps() -> Any:
            return (yield self.session.run_sync(work))

        return self._drive(steps())  # type: ignore[no-any-return]

    def _steps(self, how: str) -> Steps[None]:
        yield getattr(self.session, how)()

    def _ended(self, how: str) -> None:
        if self._ahead is None:
            super()._ended(how)
        else:
            self._ahead.end(how, self._steps(how))

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

    def _lent(self) -> Any:
        with told_pool():
            return self._call(Lent.by)

    def _database_of(self, lent: Any) -> Any:
        connection, library = lent.connection, library_of(lent.connection)
        options: dict[str, Any] = {"relay": self._relay, "drive": self._drive}
        if library == "aiosqlite":
            made: Any = deciding(LentSqlite, self._awaited, connection, **options)
        elif library not in ("psycopg", "asyncpg"):
            raise BadRequest(
                f"sessions of asyncio to SQLite by aiosqlite, and to PostgreSQL by "
                f"psycopg 3 or asyncpg, take part; this one has a {connection!r:.100}"
            )
        elif not self._outbox:
            return self._prepared(connection, library)
        else:
            if library == "asyncpg":
                begin = partial(self.session.run_sync, _first_statement)
                connection = AsyncpgConnection(connection, lent=True, begin=begin)
            made = deciding(LentPostgres, self._awaited, connection, **options)
            made.is_autocommit = lent.is_autocommit
        made._session, made.known = self.session, lent.known
        return made

    def _prepared(self, connection: Any, library: str) -> Any:
        if library == "asyncpg":  # its session begins at the first statement
            self._call(_first_statement)
        return async_postgres(
            self._awaited, connection, outbox=False, relay=False, lent_by=self._drive
        )


def _first_statement(session: Any) -> None:
    session.connection().exec_driver_sql("SELECT 1")


def _nothing() -> Steps[None]:
    yield from ()


def async_session(
    messaging: object, session: Any, *, outbox: bool, relay: bool
) -> AsyncSqlalchemySession:
    """Makes a participant of an AsyncSession."""
    awaited = checked_async(messaging, taker="participants.sqlalchemy")
    return AsyncSqlalchemySession(awaited, session, outbox=outbox, relay=relay)
