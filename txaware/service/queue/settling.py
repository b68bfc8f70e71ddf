"""Ends the jobs and pushes of transactions that are over."""

from collections.abc import Callable

from coordinator.optional_ports import in_process
from coordinator.transaction import Transaction
from txaware.service.queue.popping import Popping
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.step_batch import StepBatch
from txaware.service.store_context import StoreContext
from txaware.service.visibility import DELIVER, STOP, Visibility

# A coordinator is asked so often at most which transactions are over: one elsewhere,
# which tells nobody, and our own, which times them out when it is asked for something.
ASK_EVERY_MS = 200
ASK_OURS_EVERY_MS = 1000

MakeJudge = Callable[[Transaction | None], Visibility]


class Settling:
    """The part of a queue's steps that asks which transactions have ended, and how."""

    def __init__(
        self,
        store_context: StoreContext,
        state: QueueState,
        popping: Popping,
        make_judge: MakeJudge,
    ) -> None:
        self._state = state
        self._popping = popping
        self._make_judge = make_judge
        self._barrier = store_context.barrier
        self._here = in_process(store_context.coordinator)

    @property
    def is_told(self) -> bool:
        """True where it knows which transactions are over, and asks nobody."""
        return self._barrier is not None

    def judge(self, batch: StepBatch, tx: Transaction | None) -> Visibility:
        """Makes a judge in a step; a snapshot may have to be waited for."""
        if tx is None and (self._here is None or self._here.may_wait()):
            batch.wait_here()
        return self._make_judge(tx)

    def settle(self, now_ms: int, batch: StepBatch) -> None:
        """Ends what is known to be over by now, one way or the other."""
        if self._barrier is None:
            batch.wait_here()
        state = self._state
        every_ms = ASK_EVERY_MS if self._barrier is None else ASK_OURS_EVERY_MS
        asks_of_all = now_ms - state.settled_ms >= every_ms
        over = state.pointers()
        if not asks_of_all:
            over = {one for one in over if self._is_known_to_be_over(one)}
        if not over:
            return
        judge = self.judge(batch, None)
        if asks_of_all:  # where an event loop would have waited, a thread asks again
            state.settled_ms = now_ms
        for pointer in over:
            verdict = judge.verdict(pointer)
            if verdict != STOP:
                self._ended(pointer, now_ms, batch, committed=verdict == DELIVER)

    def _is_known_to_be_over(self, pointer: int) -> bool:
        """Tells whether a transaction is over; asks nobody."""
        return self._barrier is not None and not self._barrier.is_open(pointer)

    def _ended(
        self, pointer: int, now_ms: int, batch: StepBatch, *, committed: bool
    ) -> None:
        for pipe in self._state.watched.pop(pointer, ()):
            count = pipe.let_go(pointer)
            if committed:
                pipe.pushed += count
                self._state.meter.at(now_ms).pushed += count
            batch.drained.append(pipe)
        if committed:
            self._popping.finish_all(pointer, now_ms, batch)
        for lease in self._state.leases_of(pointer):
            lease.pipe.counts.expired_leases += 1
            said = f"transaction {pointer} of {lease.popper} ended without a commit"
            self._popping.lose(lease, now_ms, batch, said)
