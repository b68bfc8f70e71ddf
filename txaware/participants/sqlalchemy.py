"""A session of SQLAlchemy, to SQLite or PostgreSQL, that takes part in transactions."""

import sqlite3
from typing import TYPE_CHECKING, Any

from coordinator.interfaces import Coordinator
from coordinator.joining import require_own
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, MisusedTransaction
from txaware.messaging import Messaging
from txaware.participants.postgres import Postgres, postgres, prepared_beside
from txaware.participants.postgres_block import mark_begin, require_marked
from txaware.participants.postgres_outbox import DecidingPostgres
from txaware.participants.sqlite import Sqlite, sqlite

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Database = Sqlite | Postgres | DecidingPostgres


def sqlalchemy(
    messaging: Messaging,
    session: "Session",
    *,
    outbox: bool = False,
    relay: bool = True,
) -> "SqlalchemySession":
    """Makes a participant of a session of SQLAlchemy 2.

    It does what `participants.sqlite` and `participants.postgres` do with the session's
    connection; `outbox` is for PostgreSQL, and `relay` for both. The end of the block
    flushes and commits the session.
    """
    if not hasattr(session, "connection") or not hasattr(session, "flush"):
        raise BadRequest(f"{session!r:.200} is no session of SQLAlchemy")
    return SqlalchemySession(messaging, session, outbox=outbox, relay=relay)


class SqlalchemySession:
    """A session whose connection takes part, as its pool has lent it for a block."""

    flushes_last = True

    def __init__(
        self, messaging: Messaging, session: "Session", *, outbox: bool, relay: bool
    ) -> None:
        self.session = session
        self._messaging = messaging
        self._outbox = outbox
        self._relay = relay
        self._database: Database | None = None

    @property
    def transaction_aware_name(self) -> str:
        """The name of its database in a block."""
        database = self._database
        return database.transaction_aware_name if database else "sqlalchemy session"

    @property
    def decides(self) -> bool:
        """True when the database's own commit decides the block."""
        return getattr(self._database, "decides", False)

    @property
    def prepares(self) -> bool:
        """True when its transaction is prepared."""
        return getattr(self._database, "prepares", False)

    @property
    def shares_journal(self) -> bool:
        """As its database says."""
        return getattr(self._database, "shares_journal", False)

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block whose outcome its own coordinator would not know."""
        own = self._messaging.coordinator
        require_own(self.transaction_aware_name, own, coordinator)

    def start_tx(self, tx: Transaction) -> None:
        """Begins the session's transaction."""
        self._end_of_unknown()
        if self.session.in_transaction():
            raise MisusedTransaction(
                f"{self.transaction_aware_name} has a transaction open that began "
                f"before the block; commit it or roll it back first"
            )
        try:
            database = self._database_of(
                self.session.connection().connection.driver_connection
            )
            database.start_tx(tx)
        except BaseException:
            self.session.rollback()
            raise
        self._database = database

    def take_block(self, context: Any) -> None:
        """Takes what is published in the block, where its database decides."""
        if isinstance(self._database, Sqlite | DecidingPostgres):
            self._database.take_block(context)

    def update_tx(self, tx: Transaction) -> None:
        """Does nothing: the transaction of the database goes on."""

    def get_tx_changes(self) -> tuple[bytes, ...]:
        """Returns no keys: the database has locks of its own."""
        return ()

    def commit_tx(self) -> bool:
        """Flushes the session, and prepares or commits."""
        if self._database is None:
            raise MisusedTransaction("the session has not begun")
        self.session.flush()
        return self._database.commit_tx()

    def post_tx_commit(self) -> None:
        """Ends the session's transaction, which has committed."""
        if self._database is None:
            return
        try:
            self._database.post_tx_commit()
        finally:
            self._database = None
            self.session.commit()

    def rollback_tx(self) -> bool:
        """Rolls back."""
        database, self._database = self._database, None
        try:
            return database is None or database.rollback_tx()
        finally:
            self.session.rollback()

    def _end_of_unknown(self) -> None:
        """Ends an earlier block, whose outcome nobody knew, as it ended."""
        database = self._database
        if not isinstance(database, Postgres):
            return
        has_committed = database.end_of_unknown()
        if has_committed is not None:
            self._database = None
            if has_committed:
                self.session.commit()
            else:
                self.session.rollback()

    def _database_of(self, connection: Any) -> Database:
        if isinstance(connection, sqlite3.Connection):
            return sqlite(self._messaging, connection, relay=self._relay)
        if type(connection).__module__.partition(".")[0] != "psycopg":
            raise BadRequest(
                f"sessions to SQLite, and to PostgreSQL by psycopg 3 "
                f"(postgresql+psycopg://...), take part; this one has a {connection!r}"
            )
        if self._outbox:
            return postgres(self._messaging, connection, outbox=True, relay=self._relay)
        prepared = prepared_beside(self._messaging, connection)
        return LentPostgres(self._messaging, connection, prepared)

    def __repr__(self) -> str:
        return f"<SqlalchemySession: {self.transaction_aware_name}>"


class LentPostgres(Postgres):
    """A participant whose connection may be rolled back inside of the block.

    A session of SQLAlchemy does so when a flush fails, and has to be able to: the error
    would be another one else. So psycopg does not guard the transaction.
    """

    def _begin(self, name: str) -> None:
        mark_begin(self.connection)

    def _prepare(self, name: str) -> None:
        require_marked(self.connection, self.transaction_aware_name)
        super()._prepare(name)

    def _let_go(self) -> None:
        self.connection.rollback()
