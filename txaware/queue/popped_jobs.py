"""The participant that ties jobs to the transaction that popped them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from coordinator.context import TransactionContext
from coordinator.interfaces import Cargo, Coordinator, Participant, empty_cargo
from coordinator.transaction import Transaction, TransactionType
from txaware.errors import (
    LeaseLost,
    MisusedTransaction,
    ParticipantFailed,
    QueueNotFound,
    leaves_no_doubt,
)
from txaware.model.queue_service import QueueService
from txaware.model.queues import Popped
from txaware.queue.handled_items import HandledItems, handled_key


class PoppedJobs(Participant):
    """The jobs of one queue in one transaction: theirs is its outcome.

    Their leases name the transaction, so that nothing is left to write at its commit.
    After a pop whose answer was lost, the transaction can only be rolled back: an item
    that nobody saw would be final with the commit. Where a database decides the block,
    what it has handled is in its `inbox`.
    """

    flushes_last = True
    # Its rows are on disk before the commit is asked for.
    shares_journal = True

    def __init__(
        self, service: QueueService, queue: str, inbox: HandledItems | None = None
    ) -> None:
        self.transaction_aware_name = f"jobs of queue {queue}"
        self.is_open = False
        self._service = service
        self._queue = queue
        self._tx: Transaction | None = None
        self._in_doubt = False
        self._has_any = False
        self._inbox = inbox
        # The leases of what the block has noted, by item; its own it has popped.
        self._noted: dict[str, str] = {}
        self._own: set[str] = set()

    @property
    def options(self) -> dict[str, Any]:
        """The options of a call that ties items to this transaction."""
        return {} if self._inbox is None else {"has_inbox": True}

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
            self._in_doubt = not leaves_no_doubt(error)
            raise
        self._in_doubt = False

    def new_ones(self, popped: list[Popped]) -> list[Popped]:
        """Notes items that the transaction popped; returns those that are new.

        The others were handled before a crash, and end now for good.
        """
        inbox, tx = self._inbox, self._tx
        if inbox is None or tx is None or not popped:
            return popped
        self._in_doubt = True
        handled = inbox.note(self._queue, [one.id for one in popped])
        if handled:
            self._service.end_handled(self._queue, sorted(handled), transaction=tx)
        new = []
        for one in popped:
            if one.id in handled:
                continue
            self._noted[one.id] = one.lease
            if self._is_over_limit(one.deliveries):
                self._unnote(one.id, inbox)
                self._service.rollback_job(self._queue, one.id, one.lease)
            else:
                new.append(one)
        self._own.update(one.id for one in new)
        self._in_doubt = False
        return new

    def was_handled(self, one: Popped) -> bool:
        """Notes a job that was popped before; tells whether it was handled already.

        Raises `LeaseLost` for one that came once more for nothing but that question.
        """
        if self._inbox is None or one.id in self._noted:
            return False
        if self._inbox.note(self._queue, [one.id]):
            return True
        if self._is_over_limit(one.deliveries):
            self._inbox.forget(self._queue, [one.id])
            raise LeaseLost(
                f"job {one.id} of queue {self._queue} was lost in its last delivery, "
                f"and is not handled"
            )
        self._noted[one.id] = one.lease
        return False

    def give_up(self, item: str, here: TransactionContext | None) -> None:
        """Takes back the note of a job that is to wait again.

        `here` is the block of the caller. A worker gives up what is late from another
        thread, before its block ends with an error.
        """
        if self._inbox is None or item not in self._noted:
            return
        own = None if self._tx is None else self._tx.transaction_id
        if here is not None and here.transaction.transaction_id == own:
            self._unnote(item, self._inbox)
        elif item in self._own:
            raise MisusedTransaction(
                f"job {item} was popped in a block of a database, so it is rolled "
                f"back there, and nowhere else"
            )

    def _unnote(self, item: str, inbox: HandledItems) -> None:
        inbox.forget(self._queue, [item])
        self._noted.pop(item, None)

    def _is_over_limit(self, deliveries: int) -> bool:
        return deliveries > 1 and deliveries > self._most_deliveries

    @cached_property
    def _most_deliveries(self) -> float:
        most = self._service.queue_descriptor(self._queue).max_deliveries
        return float("inf") if most is None else most

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

    def commit_cargo(self, coordinator: Coordinator) -> Cargo | None:
        """Returns a cargo without rows; None after an answer that was lost."""
        return None if self._in_doubt else empty_cargo(coordinator)

    def commit_tx(self) -> bool:
        """Gives back what a savepoint undid; refuses after an answer that was lost."""
        if self._in_doubt:
            return False
        if self._inbox is not None and self._noted:
            there = self._inbox.noted(self._queue, self._noted)
            for item in self._noted.keys() - there:
                self._service.rollback_job(
                    self._queue,
                    item,
                    self._noted[item],
                    error="the savepoint that it was popped in was rolled back",
                )
        return True

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
    inbox: HandledItems | None = context.standing_in(handled_key(service))
    return context.joined(key, lambda: PoppedJobs(service, queue, inbox))
