"""A job: an item that was popped, until it is committed or rolled back."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, Self

from coordinator.context import current_transaction
from coordinator.interfaces import Coordinator
from txaware.errors import (
    BadRequest,
    LeaseLost,
    MisusedTransaction,
    TxAwareError,
    error_text,
)
from txaware.model.messages import T
from txaware.model.queue_service import QueueService
from txaware.model.queues import LeasedJob, Popped, time_of
from txaware.queue.popped_jobs import PoppedJobs, joined_jobs


class Job(Generic[T]):
    """An item that was popped: it is the caller's until the end of its lease.

    `with job:` commits it at the end of the block, and rolls it back if the block
    raises; one that the block has ended itself stays as it is. A job that was popped in
    a transaction is final with the commit, and goes back with the rollback; it needs no
    `commit()`.

    `payload` is made of the bytes when it is first read, and raises what `decode`
    raised: a job that has no value is still a job, to be rolled back.
    """

    def __init__(
        self,
        service: QueueService,
        coordinator: Coordinator,
        queue: str,
        popped: Popped,
        within: PoppedJobs | None,
        *,
        decode: Callable[[bytes], T] | None = None,
    ) -> None:
        self.queue = queue
        self._service = service
        self._coordinator = coordinator
        self._popped = popped
        self._decode = decode
        self._within = self._noted_in = within
        self._until_ms = popped.lease_until_ms
        self._is_over = False

    @cached_property
    def payload(self) -> T:
        """The bytes that were pushed, or the value that `decode` makes of them."""
        pushed: Any = self._popped.payload
        return pushed if self._decode is None else self._decode(pushed)

    @property
    def key(self) -> bytes | None:
        """The key that was pushed with it, or None."""
        return self._popped.key

    @property
    def headers(self) -> Mapping[str, bytes]:
        """The headers that were pushed with it."""
        return self._popped.headers

    @property
    def id(self) -> str:
        """The name of the item, the same in every delivery."""
        return self._popped.id

    @property
    def deliveries(self) -> int:
        """The number of this delivery, from 1."""
        return self._popped.deliveries

    @property
    def pushed_at(self) -> datetime:
        """The time of the push, in UTC."""
        return time_of(self._popped.pushed_ms)

    @property
    def lease_until(self) -> datetime | None:
        """The end of the lease, in UTC; None where it ends with a transaction."""
        return None if self._until_ms is None else time_of(self._until_ms)

    @property
    def is_over(self) -> bool:
        """True once it was committed or rolled back here, or is its transaction's."""
        return self._is_over or self._within is not None

    def commit(self) -> None:
        """Ends the job for good; on disk when it returns.

        In a transaction, the end comes with its commit. Raises `LeaseLost` when the
        lease is over: somebody else may have the job now, and the error says who.
        """
        if self._within is not None:
            self._within.require_open("commit")
            return
        context = current_transaction(self._coordinator)
        if context is None:
            self._end()
            return
        if self.was_handled():
            raise LeaseLost(
                f"job {self.id} of queue {self.queue} was handled before, and ends "
                f"now; its block is undone. Ask was_handled() at the block's beginning"
            )
        within = joined_jobs(context, self._service, self.queue)
        with within.asking():
            self._service.commit_job(
                self.queue,
                self.id,
                self._popped.lease,
                transaction=context.transaction,
                **within.options,
            )
        self._within, self._until_ms = within, None

    def was_handled(self) -> bool:
        """Tells whether the database of the open block has handled the job before.

        Then the job is over. It is for a job that was popped before the block, and is
        asked at its beginning; a worker does so. False where no database decides.
        """
        context = current_transaction(self._coordinator)
        if context is None or self._within is not None:
            return False
        within = joined_jobs(context, self._service, self.queue)
        if not within.was_handled(self._popped):
            self._noted_in = within
            return False
        self._end()
        return True

    def _end(self) -> None:
        self._service.commit_job(self.queue, self.id, self._popped.lease)
        self._is_over = True

    def rollback(self, delay_s: float = 0, *, error: str = "") -> None:
        """Has the job come again, after `delay_s`; `error` goes to its dead letter."""
        if self._noted_in is not None and self._noted_in.is_open:
            self._noted_in.give_up(self.id, current_transaction(self._coordinator))
        self._service.rollback_job(
            self.queue, self.id, self._popped.lease, delay_s=delay_s, error=error
        )
        self._is_over = True

    def extend(self, seconds: float) -> None:
        """Has the lease end `seconds` from now."""
        if self._within is not None:
            raise MisusedTransaction(
                f"the lease of job {self.id} ends with its transaction; give that a "
                f"longer timeout_s"
            )
        self._until_ms = self._service.extend_job(
            self.queue, self.id, self._popped.lease, seconds
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if error is None:
            self.commit()
        elif self._within is None or self._within.is_open:
            try:
                self.rollback(error=error_text(error))
            except TxAwareError as failed:  # the error of the block matters more
                error.add_note(f"the job was not rolled back: {failed}")

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.queue}, delivery {self.deliveries}>"


def leased_alone(job: Job[Any], service: QueueService, queue: str) -> LeasedJob | None:
    """Returns how a pop of a queue names a job that it commits.

    Returns None for one that is committed before, as it is of another queue, or of one
    of that name elsewhere, or ends with a transaction.
    """
    if not isinstance(job, Job):
        raise BadRequest(f"what a pop commits is a job, not {job!r:.100}")
    is_here = job._service is service and job.queue == queue
    if job._within is not None or not is_here:
        return None
    return LeasedJob(job.id, job._popped.lease)


def note_end(job: Job[Any]) -> None:
    """Notes that a pop has committed a job."""
    job._is_over = True


async def committed_alone(
    job: Job[Any], commit: Callable[[str, str, str], Awaitable[object]]
) -> bool:
    """Has a job that is no transaction's ended for good by `commit`, awaited.

    Returns False, with nothing done, for one that ends with a transaction.
    """
    if job._within is not None:
        return False
    await commit(job.queue, job.id, job._popped.lease)
    job._is_over = True
    return True
