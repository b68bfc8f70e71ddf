"""The participant that ties jobs to the transaction that popped them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from coordinator.cargo import empty_cargo
from coordinator.context import TransactionContext
from coordinator.interfaces import Cargo, Coordinator
from coordinator.transaction import Transaction, TransactionType
from txaware.errors import (
    MisusedTransaction,
    ParticipantFailed,
    QueueNotFound,
    changed_nothing,
)
from txaware.queue_service import QueueService


class PoppedJobs:
    """The jobs of one queue in one transaction: theirs is its outcome.

    Their leases name the transaction, so that nothing is left to write at its commit.
    After a pop whose answer was lost, the transaction can only be rolled back: an item
    that nobody saw would be final with the commit.
    """

    flushes_last = True
    # Its rows are on disk before the commit is asked for.
    shares_journal = True

    def __init__(self, service: QueueService, queue: str) -> None:
        self.transaction_aware_name = f"jobs of queue {queue}"
        self.is_open = False
        self._service = service
        self._queue = queue
        self._tx: Transaction | None = None
        self._in_doubt = False
        self._has_any = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Surrounds a call that leases items; the doubt begins before it."""
        if self._in_doubt:
            raise ParticipantFailed(
                f"the answer to an earlier pop from queue {self._queue} was lost, so "
                f"the transaction can only be rolled back"
            )
        self._in_doubt = self._has_any = True
        try:
            yield
        except BaseException as error:
            self._in_doubt = not changed_nothing(error)
            raise
        self._in_doubt = False

    def require_open(self, call: str) -> None:
        """Raises `MisusedTransaction` once the transaction is over."""
        if not self.is_open:
            raise MisusedTransaction(
                f"{call}() comes too late: the transaction of the job is over, and "
                f"the job with it"
            )

    def start_tx(self, tx: Transaction) -> None:
        """Begins to take jobs for a transaction; refuses a long one."""
        if tx.type is TransactionType.LONG:
            raise MisusedTransaction(
                f"queue {self._queue} cannot be popped in a long transaction, which "
                f"would keep its jobs for a day: pop in short ones"
            )
        self._tx, self.is_open = tx, True

    def update_tx(self, tx: Transaction) -> None:
        """Does nothing: leases name the first pointer."""

    def get_tx_changes(self) -> tuple[bytes, ...]:
        """Returns no keys: a lease keeps all others from the job."""
        return ()

    def commit_cargo(self, coordinator: Coordinator) -> Cargo | None:
        """Returns a cargo without rows; None after an answer that was lost."""
        return None if self._in_doubt else empty_cargo(coordinator)

    def commit_tx(self) -> bool:
        """Writes nothing; refuses after an answer that was lost."""
        return not self._in_doubt

    def post_tx_commit(self) -> None:
        """Has the queue notice that the jobs are done."""
        self.is_open = False
        if self._has_any:
            with suppress(QueueNotFound):  # deleted meanwhile, with its jobs
                self._service.settle_jobs(self._queue)

    def rollback_tx(self) -> bool:
        """Gives the jobs back; False where one may be leased that nobody knows of."""
        self.is_open = False
        if not self._has_any or self._tx is None:
            return True
        with suppress(QueueNotFound):  # deleted meanwhile, with its jobs
            self._service.release_jobs(self._queue, self._tx)
        return not self._in_doubt


def joined_jobs(
    context: TransactionContext, service: QueueService, queue: str
) -> PoppedJobs:
    """Returns the participant for a queue in a transaction, one for all its poppers."""
    key = (PoppedJobs, id(service), queue)
    return context.joined(key, lambda: PoppedJobs(service, queue))
