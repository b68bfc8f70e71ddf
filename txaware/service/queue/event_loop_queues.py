"""The verbs of queues for an event loop: none waits for the disk, or for a lock."""

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs

from coordinator.interfaces import OnWritten
from coordinator.transaction import Transaction
from txaware.model.queues import (
    LeasedJob,
    Popped,
    checked_push,
    checked_text,
)
from txaware.model.requests import Payload
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.queue.popping import PopCaller
from txaware.service.queue.step_driver import Step
from txaware.service.queue.work_queue import WorkQueue
from txaware.service.wakeups import Signal, WouldWait

P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen
class PopLook:
    """One look for items; a popper that waits looks again when the signal is told.

    `seen` is the count of the signal before the look, and after `pause_s` something may
    have come by itself.
    """

    popped: list[Popped]
    signal: Signal
    seen: int
    pause_s: float


def _soon(make: Callable[Concatenate[WorkQueue, P], Step[T]]) -> Callable[..., T]:
    """Returns the verb that takes a step; `on_written` is called once it is on disk."""

    def verb(
        self: "EventLoopQueues",
        name: str,
        *args: Any,
        on_written: OnWritten,
        **options: Any,
    ) -> T:
        queue = self._queue(name)
        return queue.driver.begin(make(queue, *args, **options), on_written)

    return verb


class EventLoopQueues:
    """Pushes, pops and ends of jobs outside of transactions, without waiting.

    Each does what `LocalQueues` does, by the same steps, or raises `WouldWait` where
    that would wait: then nothing is changed, and a thread has to do it. Another thread
    calls `on_written` with the outcome, and may do so before the call has returned.
    """

    def __init__(self, queues: LocalQueues) -> None:
        self._queues = queues

    def push(
        self,
        name: str,
        messages: Iterable[Payload],
        on_written: OnWritten,
        *,
        pusher: str = "",
        delay_s: float = 0,
        priority: int = 0,
    ) -> None:
        """Pushes in one piece, all or none; `on_written` is told when it is on disk."""
        pushing = self._queue(name).pushing
        items = self._queues.checked_items(messages)
        pushing.push_soon(items, on_written, **checked_push(pusher, delay_s, priority))

    def pop(
        self,
        name: str,
        on_written: OnWritten,
        *,
        popper: str = "",
        owns_pipe: bool = False,
        commits: LeasedJob | None = None,
    ) -> PopLook:
        """Leases an item to a popper elsewhere.

        `on_written` is told when that is on disk, and it may be handed out. Where none
        is there, and no job is committed, `on_written` is not called.
        """
        queue = self._queue(name)
        who = PopCaller(checked_text("popper", popper), None, False, owns_pipe)
        signal = queue.state.signal
        seen = signal.count
        step = queue.popping(who, None, limit=1, commits=commits)
        popped = queue.driver.begin(step, on_written).popped
        return PopLook(popped, signal, seen, 0 if popped else queue.pause_s())

    def commit_job(
        self,
        name: str,
        item: str,
        lease: str,
        *,
        on_written: OnWritten,
        transaction: Transaction | None = None,
        has_inbox: bool = False,
    ) -> None:
        """Ends a job for good; `on_written` is told when that is on disk."""
        if transaction is not None:
            raise WouldWait  # as its start has to be on disk
        queue = self._queue(name)
        queue.driver.begin(queue.commit(item, lease), on_written)

    rollback_job = _soon(WorkQueue.give_back)
    extend_job = _soon(WorkQueue.extend)

    def _queue(self, name: str) -> WorkQueue:
        """Returns a queue that is in memory, and has nothing to bury or to look at."""
        queue = self._queues.in_memory(name)
        if queue is None or queue.state.dying or queue.state.runs:
            raise WouldWait
        return queue
