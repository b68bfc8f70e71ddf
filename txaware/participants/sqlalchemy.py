"""A session of SQLAlchemy, to one of three databases, that takes part in blocks."""

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from coordinator.interfaces import Coordinator
from coordinator.joining import require_own
from coordinator.transaction import Transaction
from txaware.consume import Inbox
from txaware.consume.inbox import KeepsPositions
from txaware.errors import BadRequest, MisusedTransaction
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.model.start_places import StartAt
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.database_steps import library_of, told_pool
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.mysql import LentMysql
from txaware.participants.mysql_outbox import DecidingMysql
from txaware.participants.postgres import MarkedPostgres
from txaware.participants.postgres_outbox import DecidingPostgres
from txaware.participants.prepared_database import PreparedDatabase
from txaware.participants.sqlite import Sqlite
from txaware.queue.participants_of_threads import DatabaseConnection

R = TypeVar("R")

Database = DecidingDatabase | PreparedDatabase


class SqlalchemySession(KeepsPositions, DatabaseConnection):
    """A session whose connection takes part, as its pool has lent it for a block."""

    flushes_last = True

    def __init__(
        self, messaging: Messaging, session: Any, *, outbox: bool, relay: bool
    ) -> None:
        self.session = session
        self._messaging = messaging
        self._outbox = outbox
        self._relay = relay
        self._database: Database | None = None
        self._last: Database | None = None

    @property
    def _inner(self) -> Any:
        """The session whose calls block."""
        return self.session

    def _call(self, work: Callable[[Any], R]) -> R:
        """Does some work with that session."""
        return work(self._inner)

    def _lent(self) -> Any:
        """Returns the connection of the driver, as the pool lends it."""
        with told_pool():
            return self._call(
                lambda session: session.connection().connection.driver_connection
            )

    def _ended(self, how: str) -> None:
        self._call(lambda session: getattr(session, how)())

    @property
    def transaction_aware_name(self) -> str:  # type: ignore[override]
        """The name of its database in a block."""
        database = self._database
        return database.transaction_aware_name if database else "sqlalchemy session"

    @property
    def decides(self) -> bool:  # type: ignore[override]
        """True when the database's own commit decides the block."""
        if self._database is not None:
            return self._database.decides
        try:
            dialect = self._inner.get_bind().dialect.name
        except Exception:  # it has several, and is not in a block
            return False
        return self._outbox or dialect == "sqlite"

    @property
    def prepares(self) -> bool:  # type: ignore[override]
        """True when its transaction is prepared."""
        return self._database is not None and self._database.prepares

    @property
    def shares_journal(self) -> bool:  # type: ignore[override]
        """As its database says."""
        return self._database is not None and self._database.shares_journal

    def consumer(
        self, topic: str, *, group: str, start: StartAt = None, inclusive: bool = True
    ) -> Inbox:
        """Returns a reader of a topic whose position commits with the session."""
        place: dict[str, Any] = {"start": start, "inclusive": inclusive}
        return Inbox(self._messaging, self, topic, group=group, **place)

    @property
    def outbox(self) -> DatabaseOutbox:
        """Returns the outbox: what waits there, and what could not be carried over."""
        return self._deciding("outbox").outbox

    def require_block(self, call: str) -> None:
        """Raises `MisusedTransaction` where no block of it is open here."""
        self._deciding(call).require_block(call)

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as the block sees it."""
        return self._deciding("poll").position(group, topic)

    def committed_position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as it is committed."""
        return self._deciding("position").committed_position(group, topic)

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""
        self._deciding("poll").save_position(group, topic, position)

    def save_apart(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group outside of a block; on disk when it returns."""
        self._deciding("subscribe").save_apart(group, topic, position)

    def is_away(self, error: BaseException) -> bool:
        """Tells whether an error says that the database is away, or locked."""
        cause = getattr(error, "orig", None) or error
        database = self._database or self._last
        return isinstance(database, DecidingDatabase) and database.is_away(cause)

    def relay(self) -> int:
        """Carries over now what has committed; see `participants.sqlite`."""
        return self._deciding("relay").relay()

    def close(self) -> None:
        """Closes the session."""
        self._ended("close")

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block whose outcome its own coordinator would not know."""
        own, name = self._messaging.coordinator, self.transaction_aware_name
        require_own(name, own, coordinator, block=self.block)

    def start_tx(self, tx: Transaction) -> None:
        """Begins the session's transaction."""
        self._end_of_unknown()
        self._require_idle()
        try:
            database = self._database_of(self._lent())
            database.start_tx(tx)
        except BaseException:
            self._ended("rollback")
            raise
        self._database = self._last = database

    def _require_idle(self) -> None:
        if self._inner.in_transaction():
            raise MisusedTransaction(
                f"{self.transaction_aware_name} has a transaction open that began "
                f"before the block; commit it or roll it back first"
            )

    def take_block(self, context: Any) -> None:
        """Takes what is published in the block, where its database decides."""
        if self._database is not None:
            self._database.take_block(context)

    def commit_tx(self) -> bool:
        """Flushes the session, and prepares or commits."""
        if self._database is None:
            raise MisusedTransaction("the session has not begun")
        self._ended("flush")
        return self._database.commit_tx()

    def post_tx_commit(self) -> None:
        """Ends the session's transaction, which has committed."""
        if self._database is None:
            return
        try:
            self._database.post_tx_commit()
        finally:
            self._database = None
            self._ended("commit")

    def rollback_tx(self) -> bool:
        """Rolls back."""
        database, self._database = self._database, None
        try:
            return database is None or database.rollback_tx()
        finally:
            self._ended("rollback")

    def _deciding(self, call: str) -> DecidingDatabase:
        """Returns its database, as one that decides; looks it up between blocks."""
        database = self._database
        if database is None:
            if self._inner.in_transaction():
                raise MisusedTransaction(
                    f"{call}() is for a block of the session, or between two of its "
                    f"transactions; commit it or roll it back first"
                )
            try:
                database = self._database_of(self._lent())
            finally:
                self._ended("rollback")
        if not isinstance(database, DecidingDatabase):
            raise MisusedTransaction(
                f"{database.transaction_aware_name} prepares its transactions, and has "
                f"no outbox and no inbox; say participants.sqlalchemy(..., outbox=True)"
            )
        return database

    def _end_of_unknown(self) -> None:
        """Ends an earlier block, whose outcome nobody knew, as it ended."""
        database = self._database
        if not isinstance(database, PreparedDatabase):
            return
        has_committed = database.end_of_unknown()
        if has_committed is not None:
            self._database = None
            if has_committed:
                self._ended("commit")
            else:
                self._ended("rollback")

    def _database_of(self, connection: Any) -> Database:
        if isinstance(connection, sqlite3.Connection):
            return Sqlite(self._messaging, connection, in_background=self._relay)
        library = library_of(connection)
        if library == "pymysql":
            if self._outbox:
                return DecidingMysql(
                    self._messaging, connection, in_background=self._relay
                )
            return LentMysql(self._messaging, connection)
        if library != "psycopg":
            raise BadRequest(
                f"sessions to SQLite, to PostgreSQL by psycopg 3 "
                f"(postgresql+psycopg://...) and to MySQL by PyMySQL "
                f"(mysql+pymysql://...) take part; this one has a {connection!r}"
            )
        if self._outbox:
            return DecidingPostgres(
                self._messaging, connection, in_background=self._relay
            )
        return MarkedPostgres(self._messaging, connection)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.transaction_aware_name}>"
