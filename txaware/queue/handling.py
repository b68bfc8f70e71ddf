"""The handling of one job: the call of a handler, and the end of the job."""

import contextvars
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from coordinator.callbacks import check_answer, is_async
from coordinator.context import TransactionContext
from coordinator.interfaces import TransactionAware
from coordinator.tracing import active
from txaware.errors import LeaseLost, TransactionConflict, TxAwareError, error_report
from txaware.model.chance import CHANCE
from txaware.model.queues import QueueDescriptor
from txaware.queue.job import Job
from txaware.queue.participants_of_threads import (
    MakesParticipant,
    ParticipantsOfThread,
)
from txaware.queue.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

# The longest pause of a thread whose transaction met a conflict.
CONFLICT_PAUSE_S = 0.05


@attrs.define(eq=False)
class HandledJob:
    """A job that a thread handles now, and since when.

    It is late once it was given up at the time limit, with its handler still at work,
    and done once that has returned: then it is only to be committed.
    """

    job: Job[Any]
    clock_s: Callable[[], float] = time.monotonic
    began_s: float = attrs.field(init=False)
    is_late: bool = False
    is_done: bool = False

    def __attrs_post_init__(self) -> None:
        self.began_s = self.clock_s()

    def decode(self) -> None:
        """Makes the value of its payload, which may fail as its handler may."""
        _ = self.job.payload

    def took_s(self) -> float:
        """Returns how long it has been handled."""
        return self.clock_s() - self.began_s

    def extend(self, lease_s: float) -> None:
        """Extends its lease, if there is one to extend; raises nothing."""
        if self.job.is_over:
            return
        try:
            self.job.extend(lease_s)
        except LeaseLost:  # its handler will hear of it at the end, or has ended it
            return
        except TxAwareError as error:
            logger.warning("the lease of %r is not extended: %s", self.job, error)

    def give_up(self, why: str, *, pause_s: float) -> bool:
        """Has the job come again while its handler goes on; False if it just ended."""
        if self.job.is_over or self.is_done:
            return False
        self.is_late = True
        try:
            self.job.rollback(pause_s, error=why)
        except LeaseLost:
            self.is_late = False
            return False
        except TxAwareError as error:  # it comes again at the end of its lease
            logger.warning("%r is not given back: %s", self.job, error)
        logger.warning("%r was given up: %s", self.job, why)
        return True

    def done(self) -> None:
        """Notes that its handler has returned; refuses where it was given up."""
        if self.is_late:
            raise LeaseLost(f"{self.job!r} was given up at the time limit")
        self.is_done = True

    def end(self) -> None:
        """Ends the job for good; refuses where it was given up."""
        self.done()
        if not self.job.is_over:
            self.job.commit()


@attrs.frozen
class JobOutcome:
    """The figure of `WorkerMetrics` that a handled job counts for, and a pause."""

    name: str
    pause_s: float = 0


@attrs.frozen
class HandlingInThread:
    """The handling of jobs in one thread: `call` handles one."""

    call: Callable[[HandledJob], JobOutcome]
    _participants: ParticipantsOfThread

    def ready(self) -> None:
        """Opens what the next job needs, before that is popped."""
        self._participants.ready()


class Handling:
    """Calls a handler with jobs, and ends them as the options say.

    Without a transaction a job that is done is left to whoever pops the next one, to be
    committed with that, or by `end`.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        options: WorkerOptions,
        *,
        begin: Callable[..., TransactionContext],
        descriptor: Callable[[], QueueDescriptor],
        participants: tuple[TransactionAware | MakesParticipant, ...] = (),
    ) -> None:
        self._handler = handler
        self._options = options
        self._begin_transaction = begin
        self._descriptor = descriptor
        self._participants = participants
        self._is_async = is_async(handler)

    @contextmanager
    def thread(self) -> Iterator["HandlingInThread"]:
        """Surrounds the work of a thread; a coroutine has one event loop there."""
        participants = ParticipantsOfThread(self._participants)
        try:
            if not self._is_async:
                call = partial(self._call, participants)
                yield HandlingInThread(partial(self._outcome, call), participants)
                return
            import asyncio  # most programs have no coroutine

            with asyncio.Runner() as runner:

                def awaited(handled: HandledJob) -> None:
                    here = contextvars.copy_context()
                    runner.run(self._await(participants, handled), context=here)

                yield HandlingInThread(partial(self._outcome, awaited), participants)
        finally:
            participants.close()

    def _outcome(
        self, call: Callable[[HandledJob], object], handled: HandledJob
    ) -> JobOutcome:
        traced, job = active(), handled.job
        try:
            if traced is None:
                call(handled)
            else:
                with traced.processing(job.queue, [job.headers]):
                    call(handled)
        except BaseException as error:  # also what a handler raises to end the process
            return self._failed(handled, error)
        return JobOutcome("done")

    def _call(self, participants: ParticipantsOfThread, handled: HandledJob) -> None:
        if not self._options.transaction:
            handled.decode()
            check_answer(self._handler(handled.job))
            handled.done()
            return
        with self._begin(participants) as tx:
            if not handled.job.was_handled():
                handled.decode()
                check_answer(self._handler(handled.job, tx))
                handled.end()

    async def _await(
        self, participants: ParticipantsOfThread, handled: HandledJob
    ) -> None:
        import asyncio

        async with asyncio.timeout(self._options.timeout_s):
            if not self._options.transaction:
                handled.decode()
                await self._handler(handled.job)
                handled.done()
                return
            with self._begin(participants) as tx:
                if not handled.job.was_handled():
                    handled.decode()
                    await self._handler(handled.job, tx)
                    handled.end()

    def end(self, handled: HandledJob) -> JobOutcome:
        """Commits a job that is done."""
        try:
            handled.end()
        except BaseException as error:  # as in `_outcome`
            return self._failed(handled, error)
        return JobOutcome("done")

    def _begin(self, participants: ParticipantsOfThread) -> TransactionContext:
        return self._begin_transaction(
            *participants.ready(), timeout_s=self._options.timeout_s
        )

    def _failed(self, handled: HandledJob, error: BaseException) -> JobOutcome:
        """Gives a job back whose handler failed, unless its transaction did that."""
        job, pause_s = handled.job, self._options.pause_s(handled.job.deliveries)
        is_conflict = isinstance(error, TransactionConflict)
        if is_conflict and self._options.transaction:
            pause_s = CHANCE.uniform(0, CONFLICT_PAUSE_S)
        if handled.is_late:
            return JobOutcome("lost")
        is_over = job.is_over
        try:
            if not is_over:
                job.rollback(pause_s, error=error_report(error))
        except LeaseLost as lost:
            logger.warning("%s", lost)
            return JobOutcome("lost")
        except TxAwareError as unavailable:
            logger.warning("%r is not given back: %s", job, unavailable)
            what = "it comes again when its lease has ended"
        else:
            what = f"it comes again in {pause_s:.1f} s"
        if is_conflict and self._options.transaction:
            return JobOutcome("conflicts", pause_s if is_over else 0)
        logger.warning("%r failed: %s", job, self._fate(job, what), exc_info=error)
        return JobOutcome("failed", pause_s if is_over else 0)

    def _fate(self, job: Job[Any], comes_again: str) -> str:
        """Says what becomes of a job that failed."""
        try:
            queue = self._descriptor()
        except TxAwareError:
            return f"unless that was its last delivery, {comes_again}"
        if queue.max_deliveries is None:
            return comes_again
        count = f"delivery {job.deliveries} of {queue.max_deliveries}"
        if job.deliveries >= queue.max_deliveries:
            return f"that was {count}, and it goes to {queue.dead_letters}"
        return f"that was {count}, and {comes_again}"
