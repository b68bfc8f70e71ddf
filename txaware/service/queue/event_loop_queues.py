"""The verbs of queues for an event loop: none waits for the disk, or for a lock."""

from collections.abc import Iterable, Sequence

import attrs

from coordinator.embedded.batch import Then
from coordinator.transaction import Transaction
from txaware.errors import Unavailable
from txaware.model.queues import (
    MAX_LEASE_S,
    Popped,
    checked_delay_s,
    checked_push,
    checked_seconds,
    checked_text,
)
from txaware.model.requests import Payload
from txaware.service.queue.lease import Lease
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.queue.popping import Popper
from txaware.service.queue.step_batch import Batch, WouldWait
from txaware.service.queue.work_queue import WorkQueue
from txaware.service.wakeups import Signal

# A queue with more pipes to look through takes too long for one turn of a loop.
MOST_PIPES = 256


@attrs.frozen
class Look:
    """One look for items; a popper that waits looks again when the signal is told.

    `seen` is the count of the signal before the look, and after `pause_s` something may
    have come by itself.
    """

    popped: list[Popped]
    signal: Signal
    seen: int
    pause_s: float


class EventLoopQueues:
    """Pushes, pops and ends of jobs outside of transactions, without waiting.

    Each does what `LocalQueues` does, by the same steps, or raises `WouldWait` where
    that would wait: then nothing is changed, and a thread has to do it. Another thread
    calls `then` with the outcome, and may do so before the call has returned.
    """

    def __init__(self, queues: LocalQueues) -> None:
        self._queues = queues

    def push(
        self,
        name: str,
        messages: Iterable[Payload],
        then: Then,
        *,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> None:
        """Pushes in one piece, all or none; `then` is told when it is on disk."""
        pushing = self._queue(name).pushing
        items = self._queues.checked_items(messages)
        pushing.push_soon(items, then, **checked_push(pusher, delay_s, priority))

    def pop(
        self, name: str, then: Then, *, popper: str = "", owns_pipe: bool = False
    ) -> Look:
        """Leases an item to a popper elsewhere.

        `then` is told when that is on disk, and it may be handed out. Where none is
        there, `then` is not called.
        """
        queue = self._queue(name)
        who = Popper(checked_text("popper", popper), None, False, owns_pipe)
        state = queue.state
        seen, pops = state.signal.count, state.pops
        if sum(map(len, state.lanes.values())) > MOST_PIPES:
            raise WouldWait
        with queue.step(may_wait=False) as (now_ms, batch):
            try:
                taken = queue.take(who, None, now_ms, batch, limit=1)
            except WouldWait:
                state.pops = pops
                raise
            if not taken.popped:
                return Look([], state.signal, seen, queue.pause_s())
            _submit(queue, batch, then, taken.alone)
        return Look(taken.popped, state.signal, seen, 0)

    def commit_job(
        self,
        name: str,
        item: str,
        lease: str,
        then: Then,
        *,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
    ) -> None:
        """Ends a job for good; `then` is told when that is on disk."""
        if transaction is not None:
            raise WouldWait  # as its start has to be on disk
        queue = self._queue(name)

        def ended(error: Unavailable | None) -> None:
            if error is None:
                queue.state.gone_soon.append(job)
            then(error)

        with queue.step(may_wait=False) as (now_ms, batch):
            job = queue.end(item, lease, now_ms, batch)
            _submit(queue, batch, ended, [job])

    def rollback_job(
        self,
        name: str,
        item: str,
        lease: str,
        then: Then,
        *,
        delay_s: float = 0,
        error: str = "",
    ) -> None:
        """Has a job wait again; `then` is told when that is on disk."""
        queue, said = self._queue(name), checked_text("error", error)
        delay_ms = int(checked_delay_s(delay_s) * 1000)

        def waits_again(failure: Unavailable | None) -> None:
            queue.state.signal.tell()
            then(failure)

        with queue.step(may_wait=False) as (now_ms, batch):
            queue.wait_again(item, lease, now_ms + delay_ms, batch, said)
            _submit(queue, batch, waits_again)

    def extend_job(
        self, name: str, item: str, lease: str, seconds: float, then: Then
    ) -> int:
        """Has a lease end `seconds` from now; returns that time in ms.

        It is so once `then` is told that it is on disk.
        """
        checked_seconds("the time of a lease", seconds, most=MAX_LEASE_S)
        queue = self._queue(name)
        with queue.step(may_wait=False) as (now_ms, batch):
            until_ms = queue.prolong(item, lease, seconds, now_ms, batch)
            _submit(queue, batch, then)
        return until_ms

    def _queue(self, name: str) -> WorkQueue:
        """Returns a queue that is in memory, and has nothing to bury or to look at."""
        queue = self._queues.in_memory(name)
        if queue is None or queue.state.dying or queue.state.runs:
            raise WouldWait
        return queue


def _submit(
    queue: WorkQueue, batch: Batch, then: Then, leases: Sequence[Lease] = ()
) -> None:
    """Submits a step; if it fails, the next one takes back what it did to leases."""

    def told(error: Unavailable | None) -> None:
        if error is not None and leases:
            queue.failed(leases)
        then(error)

    try:
        queue.submit_soon(batch, told)
    except BaseException:
        queue.failed(leases)
        raise
