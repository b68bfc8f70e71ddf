"""What has to be kept in mind about a transaction and Tephra does not."""

from coordinator.errors import (
    TransactionOutcomeUnknown,
    TransactionRefused,
    TxAwareError,
)
from coordinator.pointers import NO_POINTERS, Pointers
from coordinator.transaction import Transaction

LOOK_FOR_ENDED_AT = 1000


class Unfinished:
    """Refusals, lost answers and checkpoints, by transaction id, until its end.

    Any number of threads may call; each transaction is one thread's at a time.
    """

    def __init__(self) -> None:
        self._refused: dict[int, str] = {}
        self._unknown: dict[int, str] = {}
        self._checkpoints: dict[int, Pointers] = {}
        self._look_at = LOOK_FOR_ENDED_AT

    def refuse(self, transaction_id: int, why: str) -> None:
        """From now on `check` refuses it."""
        self._refused[transaction_id] = why

    def accept(self, transaction_id: int) -> None:
        """It is refused no longer."""
        self._refused.pop(transaction_id, None)

    def lost(self, transaction_id: int, error: BaseException) -> None:
        """The answer to its commit was lost."""
        self._unknown[transaction_id] = f"{error}"

    def check(self, transaction_id: int) -> None:
        """Raises when a commit must not be sent."""
        error: TxAwareError
        if transaction_id in self._refused:
            error = TransactionRefused(
                f"transaction {transaction_id} cannot commit: "
                f"{self._refused[transaction_id]}"
            )
            raise error
        if transaction_id in self._unknown:
            raise TransactionOutcomeUnknown(
                f"transaction {transaction_id} may be committed already: the answer to "
                f"its commit was lost ({self._unknown[transaction_id]}); invalidate it "
                f"to find out"
            )

    def checkpointed(self, tx: Transaction) -> None:
        """Remembers its checkpoints."""
        self._checkpoints[tx.transaction_id] = tx.checkpoint_write_pointers

    def checkpoints(self, tx: Transaction) -> Pointers:
        """All of its checkpoints, also those that `tx` is too old to list."""
        known = self._checkpoints.get(tx.transaction_id, NO_POINTERS)
        return tx.checkpoint_write_pointers.added(known)

    def forget(self, transaction_id: int) -> None:
        """It has ended."""
        for noted in (self._refused, self._unknown, self._checkpoints):
            noted.pop(transaction_id, None)

    def forget_ended(self, snapshot: Transaction) -> None:
        """Forgets those that nobody ended here and that `snapshot` shows to be over.

        Looks only when there are many, and then not before there are twice as many.
        """
        if len(self) < self._look_at:
            return
        noted = {*self._refused, *self._unknown, *self._checkpoints}
        for transaction_id in noted:
            if (
                transaction_id < snapshot.transaction_id
                and transaction_id not in snapshot.in_progress
            ):
                self.forget(transaction_id)
        self._look_at = max(LOOK_FOR_ENDED_AT, 2 * len(self))

    def __len__(self) -> int:
        return len(self._refused) + len(self._unknown) + len(self._checkpoints)
