"""PostgreSQL: your SQL commits with the messages, by a prepared transaction."""

import asyncio
import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from coordinator.interfaces import Coordinator
from coordinator.joining import require_own
from coordinator.outcome import Outcome
from coordinator.transaction import Transaction
from txaware.errors import (
    MisusedTransaction,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants.database_steps import (
    Drives,
    Steps,
    closed,
    in_thread,
)
from txaware.participants.postgres_block import (
    mark_begin,
    require_idle,
    require_marked,
    require_whole,
)
from txaware.participants.postgres_link import (
    PostgresLink,
    driver,
    name_of,
)
from txaware.participants.prepared_transactions import PreparedTransactions
from txaware.queue.participants_of_threads import DatabaseConnection

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)


def prepared_beside(
    messaging: Messaging, connection: "Connection[Any]"
) -> PreparedTransactions:
    """Returns what is prepared where a connection leads, recovered at the first use."""

    def make() -> PreparedTransactions:
        return _opened(messaging, PostgresLink.beside(connection))

    return messaging.kept_once(("prepared", name_of(connection)), make)


def _opened(messaging: Messaging, link: PostgresLink) -> PreparedTransactions:
    try:
        prepared = PreparedTransactions(messaging, link)
        prepared.require_that_it_prepares()
        messaging.register_keeper(prepared)
        if prepared.recover():
            prepared.recover_soon()
    except BaseException:
        link.close()
        raise
    return prepared


class Postgres(DatabaseConnection):
    """A connection to PostgreSQL, whose transaction is prepared before the commit.

    It is committed after the coordinator's commit, and rolled back where that is
    refused. A connection has one block at a time.
    """

    flushes_last = True
    prepares = True

    def __init__(
        self, messaging: Messaging, connection: Any, *, drive: Drives = in_thread
    ) -> None:
        self.messaging = messaging
        self.connection = connection
        self._drive = drive
        self._coordinator = messaging.coordinator
        self._pointer: int | None = None
        self._is_asked = False
        self._own_name = ""
        self.transaction_aware_name = name_of(connection)

    @property
    def shares_journal(self) -> bool:  # type: ignore[override]
        """A pointer that a crash left without a record counts as rolled back."""
        return self.messaging.shares_journal

    @cached_property
    def _prepared(self) -> PreparedTransactions:
        return prepared_beside(self.messaging, self.connection)

    def open(self) -> Self:
        """Ends what a crash has left prepared, at the first use in this process."""
        _ = self._prepared
        return self

    def recover(self) -> list[int]:
        """Ends what a crash left prepared; returns what is still open."""
        return self._prepared.recover()

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        """True once the connection was closed or lost."""
        return bool(self.connection.closed)

    def close(self) -> None:
        """Closes its connection."""
        self._drive(closed(self.connection))

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block whose outcome its own coordinator would not know."""
        own, name = self._coordinator, self.transaction_aware_name
        require_own(name, own, coordinator, block=self.block)

    def start_tx(self, tx: Transaction) -> None:
        """Begins the transaction of PostgreSQL."""
        self.end_of_unknown()
        if self._pointer is not None:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is in the block of transaction "
                f"{self._pointer}, and a connection has one at a time; end that one "
                f"first, or open another connection"
            )
        self.open()
        require_idle(self.connection, self.transaction_aware_name)
        self._drive(self._begin(str(tx.transaction_id)))
        self._pointer = tx.transaction_id

    def end_of_unknown(self) -> bool | None:
        """Ends an earlier block whose outcome nobody knew; tells whether it committed.

        None says that there is none. Raises `TransactionOutcomeUnknown` while nobody
        knows.
        """
        pointer = self._pointer
        if pointer is None or not self._is_asked:
            return None
        outcome = self._prepared.outcome(self._own_name)
        if outcome not in (Outcome.COMMITTED, Outcome.ROLLED_BACK):
            self._prepared.recover_soon()
            raise TransactionOutcomeUnknown(
                f"transaction {pointer} before this one is {outcome.value}, and "
                f"{self.transaction_aware_name} waits for its outcome"
            )
        self._end(commit=outcome is Outcome.COMMITTED)
        return outcome is Outcome.COMMITTED

    def commit_tx(self) -> bool:
        """Prepares the transaction; it survives a crash of either side then."""
        if self._pointer is None:
            return True  # nothing is open
        require_whole(self.connection, self.transaction_aware_name)
        self._own_name = self._prepared.new_name(self._pointer)
        self._is_asked = True
        self._drive(self._prepare(self._own_name))
        return True

    def post_tx_commit(self) -> None:
        """Commits what was prepared."""
        self._end(commit=True)

    def rollback_tx(self) -> bool:
        """Rolls back; False where that has to wait for PostgreSQL."""
        try:
            self._end(commit=False)
        except Unavailable as error:
            log.warning("%s", error)
            return False  # and its transaction is invalid then
        return True

    def _end(self, *, commit: bool) -> None:
        """Ends the transaction, over another connection where this one was lost."""
        pointer, was_asked = self._pointer, self._is_asked
        self._pointer, self._is_asked = None, False
        if pointer is None:
            return
        try:
            self._drive(self._ended(was_asked=was_asked, commit=commit))
        except driver().Error as error:
            if was_asked:
                self._end_elsewhere(pointer, error, commit=commit)
            # Else PostgreSQL rolls back what it has lost the connection to.
        except asyncio.CancelledError as error:  # an event loop ends meanwhile
            if was_asked:
                self._end_elsewhere(pointer, error, commit=commit)
            raise

    def _ended(self, *, was_asked: bool, commit: bool) -> Steps[None]:
        yield from self._let_go()
        if was_asked:
            yield from self._end_here(self._own_name, commit=commit)

    def _begin(self, name: str) -> Steps[None]:
        """Begins by any name; psycopg refuses commit() and rollback() until the end."""
        yield self.connection.tpc_begin(name)

    def _prepare(self, name: str) -> Steps[None]:
        """Prepares, by plain SQL: psycopg is stuck where somebody else ends it."""
        yield self.connection.execute(f"PREPARE TRANSACTION '{name}'", prepare=False)

    def _let_go(self) -> Steps[None]:
        """Rolls back what is open; nothing is where it was prepared."""
        yield self.connection.tpc_rollback()

    def _end_here(self, name: str, *, commit: bool) -> Steps[None]:
        """Ends what is prepared over its own connection."""
        verb = "COMMIT" if commit else "ROLLBACK"
        yield self.connection.set_autocommit(True)
        try:
            yield self.connection.execute(f"{verb} PREPARED '{name}'", prepare=False)
        finally:
            yield self.connection.set_autocommit(False)

    def _end_elsewhere(
        self, pointer: int, cause: BaseException, *, commit: bool
    ) -> None:
        try:
            self._prepared.end(self._own_name, commit=commit)
        except Unavailable as error:
            self._prepared.recover_soon()
            has = "has committed" if commit else "is rolled back"
            raise Unavailable(
                f"transaction {pointer} {has}; its rows wait in "
                f"{self.transaction_aware_name}, prepared as "
                f"{self._own_name}, for the next start or recover(): "
                f"{cause}"
            ) from error

    def __repr__(self) -> str:
        return f"<Postgres: {self.transaction_aware_name}>"


class MarkedPostgres(Postgres):
    """A participant whose connection may be rolled back inside of the block.

    A session of SQLAlchemy does so when a flush fails, and has to be able to: the error
    would be another one else. So psycopg does not guard the transaction.
    """

    def _begin(self, name: str) -> Steps[None]:
        yield from mark_begin(self.connection)

    def _prepare(self, name: str) -> Steps[None]:
        yield from require_marked(self.connection, self.transaction_aware_name)
        yield from super()._prepare(name)

    def _let_go(self) -> Steps[None]:
        yield self.connection.rollback()
