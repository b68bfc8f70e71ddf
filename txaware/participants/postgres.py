"""PostgreSQL: your SQL commits with the messages, by a prepared transaction."""

import logging
from typing import TYPE_CHECKING, Any, Literal, overload

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
from txaware.messaging.messaging import checked_messaging
from txaware.participants.inbox_cleaner import InboxCleaner
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.postgres_block import require_idle, require_whole
from txaware.participants.postgres_inbox import PostgresNotedItems
from txaware.participants.postgres_link import (
    PostgresLink,
    checked_connection,
    driver,
    name_of,
)
from txaware.participants.postgres_outbox import DecidingPostgres, PostgresOutbox
from txaware.participants.prepared_transactions import PreparedTransactions
from txaware.queue.participants_of_threads import DatabaseConnection

if TYPE_CHECKING:
    from psycopg import Connection

log = logging.getLogger(__name__)


@overload
def postgres(
    messaging: Messaging, connection: "Connection[Any]", *, outbox: Literal[False] = ...
) -> "Postgres": ...


@overload
def postgres(
    messaging: Messaging,
    connection: "Connection[Any]",
    *,
    outbox: Literal[True],
    relay: bool = ...,
) -> DecidingPostgres: ...


def postgres(
    messaging: Messaging,
    connection: "Connection[Any]",
    *,
    outbox: bool = False,
    relay: bool = True,
) -> "Postgres | DecidingPostgres":
    """Makes a participant of a connection of psycopg 3 to PostgreSQL.

    `with messaging.transaction(postgres(messaging, connection)):` commits what the
    connection does in the block together with all else that does so. The first use in a
    process ends what a crash has left prepared. With `outbox=True` nothing is prepared:
    PostgreSQL's own commit decides, and a relay carries the messages over, in the
    background of this process unless `relay` is False.
    """
    checked_messaging(messaging, taker="participants.postgres")
    checked = checked_connection(connection)
    if outbox:

        def make_relay() -> OutboxRelay[PostgresOutbox]:
            return OutboxRelay(messaging, PostgresOutbox(PostgresLink.beside(checked)))

        def make_cleaner() -> InboxCleaner:
            link = PostgresLink.beside(checked)
            return InboxCleaner(messaging, PostgresNotedItems(link))

        name = name_of(checked)
        kept = messaging.kept_once(("outbox", name), make_relay)
        cleaner = messaging.kept_once(("inbox", name), make_cleaner)
        if relay:
            kept.start()
        return DecidingPostgres(messaging, checked, kept, cleaner, in_background=relay)

    return Postgres(messaging, checked, prepared_beside(messaging, checked))


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
        self,
        messaging: Messaging,
        connection: "Connection[Any]",
        prepared: PreparedTransactions,
    ) -> None:
        self.connection = connection
        self.transaction_aware_name = prepared.transaction_aware_name
        # A pointer that a crash left without a record counts as rolled back.
        self.shares_journal = messaging.shares_journal
        self._coordinator = messaging.coordinator
        self._prepared = prepared
        self._pointer: int | None = None
        self._is_asked = False
        self._name = ""

    def recover(self) -> list[int]:
        """Ends what a crash left prepared; returns what is still open."""
        return self._prepared.recover()

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        """True once the connection was closed or lost."""
        return bool(self.connection.closed)

    def close(self) -> None:
        """Closes its connection."""
        self.connection.close()

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block whose outcome its own coordinator would not know."""
        require_own(self.transaction_aware_name, self._coordinator, coordinator)

    def start_tx(self, tx: Transaction) -> None:
        """Begins the transaction of PostgreSQL."""
        self.end_of_unknown()
        if self._pointer is not None:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is in the block of transaction "
                f"{self._pointer}, and a connection has one at a time; end that one "
                f"first, or open another connection"
            )
        require_idle(self.connection, self.transaction_aware_name)
        self._begin(str(tx.transaction_id))
        self._pointer = tx.transaction_id

    def end_of_unknown(self) -> bool | None:
        """Ends an earlier block whose outcome nobody knew; tells whether it committed.

        None says that there is none. Raises `TransactionOutcomeUnknown` while nobody
        knows.
        """
        pointer = self._pointer
        if pointer is None or not self._is_asked:
            return None
        outcome = self._prepared.outcome(self._name)
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
        self._name = self._prepared.new_name(self._pointer)
        self._is_asked = True
        self._prepare(self._name)
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
            self._let_go()
            if was_asked:
                self._end_here(self._name, commit=commit)
        except driver().Error as error:
            if was_asked:
                self._end_elsewhere(pointer, error, commit=commit)
            # Else PostgreSQL rolls back what it has lost the connection to.

    def _begin(self, name: str) -> None:
        """Begins by any name; psycopg refuses commit() and rollback() until the end."""
        self.connection.tpc_begin(name)

    def _prepare(self, name: str) -> None:
        """Prepares, by plain SQL: psycopg is stuck where somebody else ends it."""
        self.connection.execute(f"PREPARE TRANSACTION '{name}'", prepare=False)

    def _let_go(self) -> None:
        """Rolls back what is open; nothing is where it was prepared."""
        self.connection.tpc_rollback()

    def _end_here(self, name: str, *, commit: bool) -> None:
        """Ends what is prepared over its own connection."""
        self.connection.autocommit = True
        try:
            verb = "COMMIT" if commit else "ROLLBACK"
            self.connection.execute(f"{verb} PREPARED '{name}'", prepare=False)
        finally:
            self.connection.autocommit = False

    def _end_elsewhere(self, pointer: int, cause: Exception, *, commit: bool) -> None:
        try:
            self._prepared.end(self._name, commit=commit)
        except Unavailable as error:
            self._prepared.recover_soon()
            has = "has committed" if commit else "is rolled back"
            raise Unavailable(
                f"transaction {pointer} {has}; its rows wait in "
                f"{self.transaction_aware_name}, prepared as "
                f"{self._name}, for the next start or recover(): "
                f"{cause}"
            ) from error

    def __repr__(self) -> str:
        return f"<Postgres: {self.transaction_aware_name}>"
