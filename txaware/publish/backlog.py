"""Messages that wait for a background thread: bounded, in order, cut into batches."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import attrs

from txaware.errors import PublisherClosed
from txaware.interfaces import Payload
from txaware.publish.payloads import checked_setting


@attrs.frozen(kw_only=True)
class Limits:
    """How much one batch takes, how much may wait, and how long a batch is collected.

    A message alone is always let in, whatever its size.
    """

    batch_limit_bytes: int
    batch_limit_messages: int
    queue_limit_bytes: int
    queue_limit_messages: int
    linger_s: float

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            checked_setting(name, value, least=0 if name == "linger_s" else 1)


class Waiting(NamedTuple):
    """A message that waits, and who is told how it ended."""

    message: Payload
    size_bytes: int
    taken_s: float
    future: Future[None] | None


class Backlog:
    """Callers put messages in; one thread takes them out, and says when they are over.

    A message counts against the limits until it is over, so that memory is bounded.
    """

    def __init__(self, limits: Limits, clock_s: Callable[[], float]) -> None:
        self.refused_messages = 0
        self.lost_messages = 0
        # Reentrant: the garbage collector may close a forgotten publisher anywhere.
        lock = threading.RLock()
        self._work = threading.Condition(lock)
        self._progress = threading.Condition(lock)
        self._limits = limits
        self._clock_s = clock_s
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._held_bytes = 0
        self._taken_out = 0
        self._over = 0
        self._flushed_to = 0
        self._blocked_callers = 0
        self._closed = False

    def __len__(self) -> int:
        return self._put_in() - self._over

    def put(
        self,
        message: Payload,
        size_bytes: int,
        *,
        future: Future[None] | None = None,
        waits: bool,
    ) -> bool:
        """Takes a message; False where there is no room for it, unless it `waits`."""
        with self._progress:
            while not self._has_room(size_bytes):
                if not waits:
                    self.refused_messages += 1
                    return False
                self._wait_for_room()
            waiting = Waiting(message, size_bytes, self._clock_s(), future)
            self._waiting.append(waiting)
            self._waiting_bytes += size_bytes
            self._held_bytes += size_bytes
            if len(self._waiting) == 1 or self._is_full():
                self._work.notify()
            return True

    def take(self) -> list[Waiting]:
        """The next batch once it is due; an empty one after the end."""
        with self._work:
            while not self._waiting and not self._closed:
                self._work.wait()
            while (due_in_s := self.due_in_s()) > 0:
                self._work.wait(due_in_s)
            return self._pop_batch()

    def due_in_s(self) -> float:
        """For how long more messages may be added to the batch that comes next."""
        if not self._waiting or self._closed or self._blocked_callers:
            return 0
        if self._is_full() or self._taken_out < self._flushed_to:
            return 0
        since_s = self._clock_s() - self._waiting[0].taken_s
        return self._limits.linger_s - since_s

    def over(self, batch: list[Waiting], *, lost_messages: int = 0) -> None:
        """A batch was published, or `lost_messages` of it were given up."""
        with self._progress:
            self.lost_messages += lost_messages
            self._held_bytes -= sum(waiting.size_bytes for waiting in batch)
            self._over += len(batch)
            self._progress.notify_all()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until all that was put in before is over; False after the time-out."""
        with self._progress:
            target = self._put_in()
            self._flushed_to = max(self._flushed_to, target)
            self._work.notify()
            return self._progress.wait_for(lambda: self._over >= target, timeout_s)

    def close(self) -> None:
        """Nothing more is let in; what waits is still taken out."""
        with self._progress:
            self._closed = True
            self._work.notify()
            self._progress.notify_all()

    def _put_in(self) -> int:
        return self._taken_out + len(self._waiting)

    def _has_room(self, size_bytes: int) -> bool:
        if self._closed:
            raise PublisherClosed("the publisher is closed, and took nothing")
        held = len(self)
        return not held or (
            held < self._limits.queue_limit_messages
            and self._held_bytes + size_bytes <= self._limits.queue_limit_bytes
        )

    def _wait_for_room(self) -> None:
        self._blocked_callers += 1
        try:
            self._work.notify()
            self._progress.wait()
        finally:
            self._blocked_callers -= 1

    def _is_full(self) -> bool:
        return (
            len(self._waiting) >= self._limits.batch_limit_messages
            or self._waiting_bytes >= self._limits.batch_limit_bytes
        )

    def _pop_batch(self) -> list[Waiting]:
        batch: list[Waiting] = []
        room_bytes = self._limits.batch_limit_bytes
        while self._waiting and len(batch) < self._limits.batch_limit_messages:
            room_bytes -= self._waiting[0].size_bytes
            if batch and room_bytes < 0:
                break
            batch.append(self._waiting.popleft())
        self._taken_out += len(batch)
        self._waiting_bytes -= sum(waiting.size_bytes for waiting in batch)
        return batch
