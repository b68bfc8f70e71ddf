"""The end of a block that leaves its transaction prepared, for others to end."""

from coordinator.errors import (
    TransactionOutcomeUnknown,
    TransactionPrepared,
    TransactionRefused,
)
from coordinator.interfaces import Coordinator
from coordinator.participants import Participants, persist_and_flush, raise_first
from coordinator.prepared_transactions import checked_prepared_name, two_phases
from coordinator.transaction import ENDING, Status, Transaction


class Prepares:
    """A block that can prepare its transaction instead of committing it."""

    coordinator: Coordinator
    status: Status
    _participants: Participants
    _tx: Transaction | None

    def prepare(self, name: str) -> None:
        """Prepares the transaction under a name, as the last call of the block.

        When it returns, all that was written is on disk, and neither a crash nor a
        time-out ends the transaction: `commit_prepared(name)` does, or
        `rollback_prepared(name)`, from any process. Until then nobody sees it, readers
        of its topics wait before it, and others that change the same keys conflict.
        Functions of `on_commit` and `on_rollback` are not called.
        """
        self._require_active("prepare")
        two_phases(self.coordinator)
        checked_prepared_name(name)
        self._participants.check_prepare()
        tx = self._tx
        assert tx is not None  # it is active
        self.status = ENDING
        interrupt: BaseException | None = None
        try:
            self.coordinator.can_commit(tx, self._participants.changes(tx))
            in_order = self._participants.in_commit_order()
            persist_and_flush(self.coordinator, in_order, tx)
            interrupt = self._prepared(tx, name)
        except BaseException as error:
            if self.status is ENDING:
                self._undo(error)
            raise
        failures = [*filter(None, [interrupt]), *self._participants.let_go(tx)]
        if failures:
            raise_first(failures, f"{self} stays prepared as {name!r}")

    def _prepared(self, tx: Transaction, name: str) -> BaseException | None:
        """Prepares it; returns the interrupt that came meanwhile, or None."""
        interrupt: BaseException | None = None
        self.status = Status.UNKNOWN  # first: an interrupt would undo it
        try:
            two_phases(self.coordinator).prepare(tx, name)
        except TransactionRefused:
            self.status = ENDING
            raise
        except BaseException as error:
            if not self._is_prepared(tx, error):
                self._undo(error, invalidate=True)
                raise
            interrupt = None if isinstance(error, Exception) else error
        self.status = Status.PREPARED
        return interrupt

    def _is_prepared(self, tx: Transaction, cause: BaseException) -> bool:
        """Finds out whether an unanswered prepare took place; if not, it never will."""
        try:
            if self.coordinator.invalidate(tx):
                return False
            # Somebody has ended it: by its name, or because it had not got that far.
            return tx.transaction_id not in self.coordinator.snapshot().invalids
        except TransactionPrepared:
            return True
        except Exception as error:
            unknown = TransactionOutcomeUnknown(
                f"{self} may or may not be prepared: the coordinator cannot be asked "
                f"({error}). Nothing was undone; look whether it is listed"
            )
            unknown.add_note(f"the call had failed with {cause!r}")
            raise unknown from error

    def _require_active(self, call: str) -> None:
        """Raises `MisusedTransaction` unless the block is open."""
        raise NotImplementedError

    def _undo(
        self,
        cause: BaseException,
        *,
        invalidate: bool = False,
        notes_raised: bool = True,
    ) -> list[BaseException]:
        """Rolls all back."""
        raise NotImplementedError
