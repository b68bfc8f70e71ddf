"""A database whose transaction is prepared, and ends as the coordinator decides."""

import asyncio
import logging
from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

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
from txaware.participants.prepared_transactions import PreparedTransactions
from txaware.queue.participants_of_threads import DatabaseConnection

log = logging.getLogger(__name__)


class PreparedDatabase(DatabaseConnection):
    """A connection to a database, whose transaction is prepared before the commit.

    It is committed after the coordinator's commit, and rolled back where that is
    refused. A connection has one block at a time.
    """

    flushes_last = True
    prepares = True
    # Whether what is prepared is committed in the background, behind the block.
    settles_later = False

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
        self.transaction_aware_name = self._name()

    @property
    def shares_journal(self) -> bool:  # type: ignore[override]
        """A pointer that a crash left without a record counts as rolled back."""
        return self.messaging.shares_journal

    @cached_property
    def _prepared(self) -> PreparedTransactions:
        place = ("prepared", self.transaction_aware_name)
        return self.messaging.kept_once(place, self._opened)

    def _opened(self) -> PreparedTransactions:
        prepared = self._new_prepared()
        try:
            prepared.require_that_it_prepares()
            self.messaging.register_keeper(prepared)
            if prepared.recover():
                prepared.recover_soon()
        except BaseException:
            prepared.close()
            raise
        return prepared

    def open(self) -> Self:
        """Ends what a crash has left prepared, at the first use in this process."""
        _ = self._prepared
        return self

    def recover(self) -> list[int]:
        """Ends what a crash left prepared; returns what is still open."""
        return self._prepared.recover()

    def close(self) -> None:
        """Closes its connection."""
        self._drive(closed(self.connection))

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block whose outcome its own coordinator would not know."""
        own, name = self._coordinator, self.transaction_aware_name
        require_own(name, own, coordinator, block=self.block)

    def start_tx(self, tx: Transaction) -> None:
        """Begins the transaction of the database."""
        self.end_of_unknown()
        if self._pointer is not None:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is in the block of transaction "
                f"{self._pointer}, and a connection has one at a time; end that one "
                f"first, or open another connection"
            )
        self.open()
        self._require_idle()
        self._own_name = self._prepared.new_name(tx.transaction_id)
        self._drive(self._begin(self._own_name))
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
        self._require_whole()
        self._is_asked = True
        self._drive(self._prepare(self._own_name))
        return True

    def post_tx_commit(self) -> None:
        """Commits what was prepared, or has it committed soon."""
        if not self.settles_later:
            self._end(commit=True)
        elif self._pointer is not None:
            self._pointer, self._is_asked = None, False
            try:
                self._drive(self._let_go())
            except self._errors as error:
                log.warning("%r has lost its connection: %s", self, error)
            finally:
                self._prepared.settle_later(self._own_name)

    def settle(self) -> None:
        """Waits until others see the rows of all blocks that have ended by now."""
        self._prepared.settle()

    def rollback_tx(self) -> bool:
        """Rolls back; False where that has to wait for the database."""
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
        except self._errors as error:
            if was_asked:
                self._end_elsewhere(pointer, error, commit=commit)
            # Else the server rolls back what it has lost the connection to.
        except asyncio.CancelledError as error:  # an event loop ends meanwhile
            if was_asked:
                self._end_elsewhere(pointer, error, commit=commit)
            raise

    @abstractmethod
    def _name(self) -> str:
        """Returns the name of the database."""

    @property
    @abstractmethod
    def _errors(self) -> type[Exception]:
        """The class of all errors of the driver."""

    @abstractmethod
    def _new_prepared(self) -> PreparedTransactions:
        """Makes the keeper of what is prepared there."""

    @abstractmethod
    def _require_idle(self) -> None:
        """Refuses a connection that has a transaction open, or cannot begin one."""

    @abstractmethod
    def _require_whole(self) -> None:
        """Refuses to prepare a transaction that has ended, or can only be undone."""

    @abstractmethod
    def _begin(self, name: str) -> Steps[None]:
        """Begins a transaction that will be prepared by a name."""

    @abstractmethod
    def _prepare(self, name: str) -> Steps[None]:
        """Prepares it."""

    @abstractmethod
    def _let_go(self) -> Steps[None]:
        """Rolls back what is open; nothing is where it was prepared."""

    @abstractmethod
    def _ended(self, *, was_asked: bool, commit: bool) -> Steps[None]:
        """Ends it over its own connection; `was_asked` if it may be prepared."""

    def _end_elsewhere(
        self, pointer: int, cause: BaseException, *, commit: bool
    ) -> None:
        try:
            if self._prepared.end(self._own_name, commit=commit):
                return
        except Unavailable as error:
            cause = error
        self._prepared.recover_soon()
        has = "has committed" if commit else "is rolled back"
        raise Unavailable(
            f"transaction {pointer} {has}; its rows wait in "
            f"{self.transaction_aware_name}, prepared as {self._own_name}, for the "
            f"next start or recover(): {cause}"
        ) from cause

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.transaction_aware_name}>"
