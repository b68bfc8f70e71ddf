"""The queue of a background publisher: bounded, in order, cut into batches."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import attrs

from coordinator.threads import Condition
from txaware.errors import PublisherClosed
from txaware.model.interfaces import Payload
from txaware.publish.publisher import checked_setting


@attrs.frozen(kw_only=True)
class QueueLimits:
    """The limits of one batch and of the queue, and the time to collect a batch.

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


class WaitingMessage(NamedTuple):
    """A message that waits, with the future that is told how it ended."""

    message: Payload
    size_bytes: int
    taken_s: float
    future: Future[None] | None


class SendQueue:
    """The messages that callers put in, and that one thread takes out and publishes.

    A message counts against the limits until the thread says that it is over, so that
    memory is bounded. An interrupt (Ctrl-C) may end any call of the main thread: the
    message is then in, or not, and the next call of any thread goes on.
    """

    def __init__(self, limits: QueueLimits, clock_s: Callable[[], float]) -> None:
        self.refused_messages = 0
        self.lost_messages = 0
        # Reentrant: the garbage collector may close a forgotten publisher anywhere.
        self._changed = Condition()
        self._limits = limits
        self._clock_s = clock_s
        self._waiting: deque[WaitingMessage] = deque()
        self._waiting_bytes = 0
        self._held_bytes = 0
        self._taken_out = 0
        self._over = 0
        self._flushed_to = 0
        # A set of threads and not a count: an interrupt may keep a thread from leaving.
        self._blocked: set[int] = set()
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
        with self._changed:
            if self._blocked:
                self._blocked.discard(threading.get_ident())
            while not self._has_room(size_bytes):
                if not waits:
                    self.refused_messages += 1
                    return False
                self._wait_for_room()
            waiting = WaitingMessage(message, size_bytes, self._clock_s(), future)
            if not self._waiting or self._is_full(waiting):
                self._changed.notify_all()
            # In one step: an interrupt comes before the sums, or once all is in.
            self._waiting_bytes += size_bytes
            self._held_bytes += size_bytes
            self._waiting.append(waiting)
            return True

    def take(self) -> list[WaitingMessage]:
        """Returns the next batch once it is due; an empty one after the end."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            while (due_in_s := self.due_in_s()) > 0:
                self._changed.wait(due_in_s)
            return self._pop_batch()

    def due_in_s(self) -> float:
        """Returns how long the next batch may still grow; it is due at 0 or below."""
        if not self._waiting or self._closed or self._blocked:
            return 0
        if self._is_full() or self._taken_out < self._flushed_to:
            return 0
        since_s = self._clock_s() - self._waiting[0].taken_s
        return self._limits.linger_s - since_s

    def over(self, batch: list[WaitingMessage], *, lost_messages: int = 0) -> None:
        """Counts a batch as over: published, or `lost_messages` of it given up."""
        with self._changed:
            self._changed.notify_all()
            self.lost_messages += lost_messages
            self._held_bytes -= sum(waiting.size_bytes for waiting in batch)
            self._over += len(batch)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Waits until all messages put in before are over; False after the time-out."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            target = self._put_in()
            self._changed.notify_all()
            self._flushed_to = max(self._flushed_to, target)
            while self._over < target:
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def close(self) -> None:
        """Lets no more messages in; those that wait are still taken out."""
        with self._changed:
            self._changed.notify_all()
            self._closed = True

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
        self._changed.notify_all()
        self._blocked.add(threading.get_ident())
        try:
            self._changed.wait()
        finally:
            self._blocked.discard(threading.get_ident())

    def _is_full(self, more: WaitingMessage | None = None) -> bool:
        messages, size_bytes = len(self._waiting), self._waiting_bytes
        if more is not None:
            messages, size_bytes = messages + 1, size_bytes + more.size_bytes
        return (
            messages >= self._limits.batch_limit_messages
            or size_bytes >= self._limits.batch_limit_bytes
        )

    def _pop_batch(self) -> list[WaitingMessage]:
        batch: list[WaitingMessage] = []
        room_bytes = self._limits.batch_limit_bytes
        while self._waiting and len(batch) < self._limits.batch_limit_messages:
            room_bytes -= self._waiting[0].size_bytes
            if batch and room_bytes < 0:
                break
            batch.append(self._waiting.popleft())
        self._taken_out += len(batch)
        self._waiting_bytes -= sum(waiting.size_bytes for waiting in batch)
        return batch
