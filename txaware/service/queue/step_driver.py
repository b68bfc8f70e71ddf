"""Takes the steps of a queue: one decides under the lock, and is written outside."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import attrs

from coordinator.interfaces import OnWritten
from txaware.errors import QueueNotFound, Unavailable
from txaware.model.interfaces import OrderedTable, Write
from txaware.service.queue.lease import Lease, LeaseRun, LeaseState
from txaware.service.queue.loading import leftovers, repairs
from txaware.service.queue.pipe import Pipe
from txaware.service.queue.popping import Popping
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.settling import Settling
from txaware.service.queue.step_batch import StepBatch
from txaware.service.wakeups import WouldWait

T = TypeVar("T")

# Steps of a queue look so often for pipes that their pushers left.
TIDY_EVERY_MS = 10_000


@attrs.frozen
class Step(Generic[T]):
    """A step of a queue: decides on what is in memory, and waits for no disk.

    `take` is called under the lock, with the time and the batch that it adds its
    writes to, and returns the answer. That is given once the batch is on disk, or at
    once where it `is_nothing`. `ended` is called with it then, in any thread. Where
    the batch fails, the next step takes back the `leases` of the answer. A step that
    `wakes` poppers does so whatever came of the batch.
    """

    take: Callable[[int, StepBatch], T]
    leases: Callable[[T], Sequence[Lease | LeaseRun]] = lambda _: ()
    ended: Callable[[T], object] = lambda _: None
    is_nothing: Callable[[T], bool] = lambda _: False
    wakes: bool = False


class StepLock:
    """Holds the lock of a queue for one step, a `with` block.

    `begin` comes first and returns the time, and `end` last, whatever comes of the
    block. It is no generator, which takes thrice as long. Interrupts do not come here:
    all calls of the main thread are made in another one.
    """

    __slots__ = ("_batch", "_begin", "_end", "_lock")

    def __init__(
        self,
        lock: threading.RLock,
        begin: Callable[[StepBatch], int],
        end: Callable[[StepBatch], None],
        batch: StepBatch,
    ) -> None:
        self._lock = lock
        self._begin = begin
        self._end = end
        self._batch = batch

    def __enter__(self) -> tuple[int, StepBatch]:
        batch = self._batch
        if not self._lock.acquire(batch.may_wait):
            raise WouldWait
        try:
            return self._begin(batch), batch
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._end(self._batch)
        finally:
            self._lock.release()


class StepDriver:
    """Takes the steps of one queue, in a thread that waits or in an event loop."""

    def __init__(
        self,
        table: OrderedTable,
        state: QueueState,
        popping: Popping,
        settling: Settling,
        tidy: Callable[[int, StepBatch], object],
    ) -> None:
        self._table = table
        self._state = state
        self._popping = popping
        self._settling = settling
        self._tidy = tidy
        self._tidy_at_ms = 0

    def perform(self, step: Step[T]) -> T:
        """Takes a step, and returns its answer once that is on disk."""
        with self.step() as (now_ms, batch):
            answer = step.take(now_ms, batch)
            if step.is_nothing(answer):
                return answer
            writes = self._writes(batch)
            wait = self._table.submit(writes) if writes else None
        try:
            if wait is not None:
                wait()
        except BaseException:
            self._is_over(step, answer, is_written=False)
            raise
        self._is_over(step, answer, is_written=True)
        return answer

    def begin(self, step: Step[T], on_written: OnWritten) -> T:
        """Takes a step and returns its answer; calls `on_written` once it is on disk.

        Raises `WouldWait`, with nothing changed, where the step had to wait. Where the
        answer is nothing, `on_written` is not called.
        """
        with self.step(may_wait=False) as (now_ms, batch):
            answer = step.take(now_ms, batch)
            if step.is_nothing(answer):
                return answer

            def ended(error: Unavailable | None) -> None:
                self._is_over(step, answer, is_written=error is None)
                on_written(error)

            try:
                self._table.hand_over(self._writes(batch), ended)
            except BaseException:
                self._is_over(step, answer, is_written=False)
                raise
        return answer

    def _is_over(self, step: Step[T], answer: T, *, is_written: bool) -> None:
        if is_written:
            step.ended(answer)
        else:
            self.failed(step.leases(answer))
        if step.wakes:
            self._state.signal.notify()

    def failed(self, leases: Iterable[Lease | LeaseRun]) -> None:
        """Has the next step take back pops, or ends of jobs, that failed."""
        self._state.failed_soon.extend(leases)
        self._state.is_in_doubt = True

    def step(self, *, may_wait: bool = True) -> StepLock:
        """Holds the lock for one step, after all that ended by itself has ended.

        Without `may_wait` it raises `WouldWait` where it had to, also for the lock.
        What ended by itself has ended, whatever comes of the rest.
        """
        batch = StepBatch(may_wait)
        return StepLock(self._state.lock, self._catch_up, self.hand_over, batch)

    def _catch_up(self, batch: StepBatch) -> int:
        """Has end what ended by itself since the last step, or failed; returns now."""
        state, now_ms = self._state, self._table.clock.now_ms()
        if state.is_gone:
            batch.wait_here()  # a thread finds out whether it is there anew
            raise QueueNotFound(
                f"queue {state.descriptor.name} does not exist any more"
            )
        if state.pushed_soon:
            state.catch_up_pushes(now_ms)
        while state.gone_soon:
            lease = state.gone_soon.popleft()
            state.remove(lease, now_ms)
            batch.drained.append(lease.pipe)
        if state.failed_soon:
            batch.wait_here()
        while state.failed_soon:
            failed = state.failed_soon.popleft()
            if isinstance(failed, LeaseRun):
                leases = state.leases_in(failed)
            else:
                leases = [failed]
            for lease in leases:
                self._take_back(lease, now_ms, batch)
        if state.is_in_doubt:
            self._repair(batch)
        if batch.may_wait and state.drained_soon:
            batch.drained += state.drained_soon
            state.drained_soon.clear()
        if state.ends:
            self._popping.end_leases(now_ms, batch)
        if state.delayed:
            state.open_due(now_ms)
        if state.by_pointer or state.runs or state.watched:
            self._settling.settle(now_ms, batch)
        if batch.may_wait:
            state.source.more(now_ms, batch)
            if now_ms >= self._tidy_at_ms:
                self._tidy_at_ms = now_ms + TIDY_EVERY_MS
                self._tidy(now_ms, batch)
        return now_ms

    def _repair(self, batch: StepBatch) -> None:
        """Writes what a failed write may lack; later, while the disk is away."""
        batch.wait_here()
        self._state.spread_doubt()
        try:
            batch.writes += repairs(self._table, self._state)
        except Unavailable:
            self._state.is_in_doubt = True

    def _take_back(self, lease: Lease, now_ms: int, batch: StepBatch) -> None:
        """Takes back a pop, or the end of a job, that may not be on disk."""
        if lease.state is LeaseState.ENDING:
            lease.pipe.counts.committed -= 1
            self._state.begin_work(lease)
        elif lease.state is LeaseState.IN_WORK:
            self._popping.put_back(lease, now_ms, batch)

    def hand_over(self, batch: StepBatch) -> None:
        """Hands over what is left to write; nobody waits for it."""
        if not (batch.writes or batch.pipes or batch.drained):
            return  # nearly always
        if writes := self._writes(batch):
            self._table.hand_over(writes, self._on_written)

    def _on_written(self, error: object) -> None:
        """Hears how a write ended that nobody waits for; after a crash it comes again.

        One that failed leaves rows, which are found where pipes are read to their end.
        """
        if error is not None:
            self._state.is_in_doubt = True

    def _writes(self, batch: StepBatch) -> list[Write]:
        if batch.drained:
            for pipe in dict.fromkeys(batch.drained):
                self._drop_if_over(pipe, batch)
        if runs := self._state.runs_over:
            batch.writes += [(run.key, None) for run in runs]
            runs.clear()
        if not (batch.writes or batch.pipes):
            return []
        writes = batch.take()
        batch.writes, batch.pipes, batch.drained = [], {}, []
        return writes

    def _drop_if_over(self, pipe: Pipe, batch: StepBatch) -> None:
        if self._state.pipes.get(pipe.id) is not pipe:
            return
        if pipe.unresolved or pipe.takes_pushes:
            return
        if not (pipe.is_final or pipe.lent_until_ms):
            # What a commit carries is counted after it, and that may never be written.
            pipe.is_final = True
            batch.touch(pipe)
        if pipe.is_drained and pipe.lent_until_ms <= self._table.clock.now_ms():
            if not (pipe.is_plain or batch.may_wait):
                self._state.drained_soon.append(pipe)  # its rows have to be looked for
                return
            if not pipe.close(self._state.descriptor.name):
                return  # whoever it was lent to was slow, and pushes just now
            batch.pipes.pop(pipe.id, None)
            if not pipe.is_plain:
                batch.writes += leftovers(self._table, pipe.prefix)
            batch.writes += self._state.drop(pipe)
