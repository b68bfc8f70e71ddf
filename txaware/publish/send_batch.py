"""A batch of messages for one partition, and the futures of its messages.

All messages of a batch end at once, so what a future answers is kept in the batch: a
future is two values, and telling a thousand of them is one step.
"""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import attrs

from coordinator.threads import Condition
from txaware.errors import MisusedTransaction, PublisherClosed, QueueFull
from txaware.model.compression import Compression, Packed
from txaware.model.labels import NO_HEADERS, Labels, labels_or_none
from txaware.model.messages import MessageId
from txaware.model.packed_batches import pack
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payloads

logger = logging.getLogger(__name__)

# The states of a future, as the library of Python names them.
PENDING, RUNNING, FINISHED = "PENDING", "RUNNING", "FINISHED"
CANCELLED = "CANCELLED_AND_NOTIFIED"
OVER = (FINISHED, CANCELLED)


@attrs.frozen
class Sent:
    """The place of a message that was sent: its topic, its partition, and its id."""

    topic: str
    partition: int
    id: MessageId


# Is told how a message ended.
OnDone = Callable[[Sent | BaseException], object]


class Extra(NamedTuple):
    """The values beside a message that few have."""

    headers: bytes = NO_HEADERS
    expire_after_s: float | None = None


class SendLock(Condition):
    """The lock of a sender, which knows the thread that sends."""

    thread_id: int | None = None
    # A call asks this before it takes the lock, which a thread of the parent that is
    # not there any more may hold for ever.
    is_forked = False

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)

    def require_not_forked(self) -> None:
        """Raises `PublisherClosed` in a child that was forked from its process."""
        if self.is_forked:
            raise PublisherClosed(
                "the thread that sends stayed behind in the parent process; make a "
                "sender or publisher after the fork"
            )

    def require_another_thread(self, call: str) -> None:
        """Raises `MisusedTransaction` in the thread that sends."""
        if threading.get_ident() == self.thread_id:
            raise MisusedTransaction(
                f"{call}() in the thread that sends, as in a callback, would wait for "
                f"itself"
            )


_locks: "weakref.WeakSet[SendLock]" = weakref.WeakSet()


def _forked() -> None:
    for lock in _locks:
        lock.is_forked = True


os.register_at_fork(after_in_child=_forked)


class Mark:
    """The state of one future that somebody watches, or has settled by hand.

    `held` has the state that it had when a thread began to look at it.
    """

    __slots__ = ("callbacks", "future", "held", "result", "state", "waiters")

    def __init__(self, future: "SentFuture") -> None:
        self.future = future
        self.state: str | None = None
        self.result: Any = None
        self.callbacks: list[Callable[[Future[Any]], object]] = []
        self.waiters = _Waiters(future)
        self.held: dict[int, str] = {}

    def notify_waiters(
        self, error: BaseException | None, waiters: list[Any] | None = None
    ) -> None:
        """Tells `wait` and `as_completed` of concurrent.futures that it is over."""
        for waiter in self.waiters if waiters is None else waiters:
            if self.state is CANCELLED:
                waiter.add_cancelled(self.future)
            elif error is None:
                waiter.add_result(self.future)
            else:
                waiter.add_exception(self.future)

    def call_back(
        self, callbacks: list[Callable[[Future[Any]], object]] | None = None
    ) -> None:
        """Calls who waits for the end, without the lock; logs what they raise."""
        called = self.callbacks if callbacks is None else callbacks
        self.callbacks = []
        for callback in called:
            try:
                callback(self.future)
            except BaseException:
                logger.exception("a future could not be told how its message ended")


class SendBatch:
    """Messages in the order in which they were taken, which go out as one publish.

    It is open until it is cut, and its messages stay the same from then on: what is
    tried again is that request, under the same producer and sequence (`base`).
    """

    def __init__(self, topic: str, lock: SendLock, taken_s: float) -> None:
        self.topic = topic
        self.partition = 0
        self.lock = lock
        self.payloads: list[Any] = []
        self.keys: list[bytes | None] = []
        self.extras: dict[int, Extra] = {}
        self.on_done: dict[int, OnDone] = {}
        self.marks: dict[int, Mark] = {}
        # The partitions that messages name.
        self.numbers: dict[int, int] = {}
        # Where messages are that another batch has now.
        self.moved: dict[int, tuple[SendBatch, int]] = {}
        self.size_bytes = 0
        self.flush = 0  # those that begin later wait for it
        self.cut_count = 0  # messages, once it is cut
        self.taken_s = self.last_s = taken_s
        self.hurried = False
        self.state = PENDING
        self.dropped = 0  # from its beginning on
        self.producer: ProducerIdentity | None = None
        self.base: int | None = None
        self.tries = 0
        self.is_under_way = self.was_first = False
        # Since when it may be stored, as the answer to a try was lost.
        self.doubted_s: float | None = None
        self.first: MessageId | None = None
        self.error: BaseException | None = None
        self.turns: list[SimpleQueue[None]] = []
        self._places: dict[int, int] | None = None
        self._packed: Packed | None = None
        self._is_packed = False

    @property
    def is_open(self) -> bool:
        """True while it takes messages."""
        return self.state is PENDING

    @property
    def is_in_doubt(self) -> bool:
        """True when it may be stored, and nobody knows."""
        return self.doubted_s is not None

    def doubt(self, now_s: float) -> None:
        """Notes that it may be stored."""
        if self.doubted_s is None:
            self.doubted_s = now_s

    @property
    def waiting(self) -> int:
        """The number of its messages, without those that were dropped."""
        return len(self.payloads) - self.dropped

    @property
    def is_answered(self) -> bool:
        """True once it is stored, or given up."""
        return self.first is not None or self.error is not None

    def drop_oldest(self) -> int:
        """Drops its oldest message, and returns how many bytes of memory that frees."""
        place = self.dropped
        size_bytes = self.size_of(place)
        self.dropped += 1
        self.payloads[place] = None
        self.extras.pop(place, None)
        self.wake()
        mark = self.marks.get(place)
        if mark is not None and mark.state is None:
            mark.notify_waiters(self.error_of(place))
        return size_bytes

    def size_of(self, at: int) -> int:
        """Returns the size of a message, with its key and headers."""
        extra = self.extras.get(at)
        headers_bytes = 0 if extra is None else len(extra.headers)
        return len(self.payloads[at]) + len(self.keys[at] or b"") + headers_bytes

    def places(self) -> list[tuple[int, int]]:
        """Returns the places of its messages: of their futures, and in its lists."""
        if self._places is None:
            return [(at, at) for at in range(self.dropped, len(self.payloads))]
        return [*self._places.items()]

    def take(self, other: "SendBatch", at: int, place: int, size_bytes: int) -> None:
        """Takes a message over from another batch, with all that is beside it."""
        here = len(self.payloads)
        if place in other.extras:
            self.extras[here] = other.extras[place]
        if at in other.on_done:
            self.on_done[here] = other.on_done.pop(at)
        if at in other.numbers:
            self.numbers[here] = other.numbers[at]
        self.size_bytes += size_bytes
        self.keys.append(other.keys[place])
        self.payloads.append(other.payloads[place])
        mark = other.marks.get(at)
        if mark is not None:
            self.marks[here] = mark
        other.moved[at] = self, here
        other.marks.pop(at, None)

    def leave(self) -> None:
        """Keeps nothing of what other batches have taken over; it is over."""
        self.state = FINISHED
        self.payloads, self.keys, self.extras = [], [], {}
        self._packed = None
        self.wake()

    def cut(self) -> None:
        """Takes no more messages; those whose future was cancelled are left out."""
        self.state = RUNNING
        self.cut_count = self.waiting
        cancelled = {at for at, mark in self.marks.items() if mark.state is CANCELLED}
        if not self.dropped and not cancelled:
            return
        kept = [
            at for at in range(self.dropped, len(self.payloads)) if at not in cancelled
        ]
        self._places = {at: place for place, at in enumerate(kept)}
        self.payloads = [self.payloads[at] for at in kept]
        self.keys = [self.keys[at] for at in kept]
        self.extras = {
            self._places[at]: extra
            for at, extra in self.extras.items()
            if at in self._places
        }

    def request(self, compression: Compression | None = None) -> Payloads:
        """Returns its messages as one publish takes them, which were checked before.

        They are compressed once, however often they are sent.
        """
        payloads = self._payloads()
        if compression is None:
            return payloads
        if not self._is_packed:
            self._packed, self._is_packed = pack(payloads, compression), True
        return attrs.evolve(payloads, packed=self._packed)

    def _payloads(self) -> Payloads:
        count = len(self.payloads)
        labels: Labels | None
        after_s: list[float | None] | None = None
        if self.extras:
            nothing = Extra()
            extras = [self.extras.get(at, nothing) for at in range(count)]
            labels = labels_or_none(self.keys, [extra.headers for extra in extras])
            expiries = [extra.expire_after_s for extra in extras]
            after_s = expiries if expiries.count(None) < count else None
        else:
            labels = labels_or_none(self.keys, ())
            if labels is not None and not labels.headers:
                labels = Labels(self.keys, [NO_HEADERS] * count)
        size_bytes = sum(map(len, self.payloads))
        if labels is not None:
            size_bytes += labels.size_bytes
        return Payloads(self.payloads, size_bytes, after_s, labels)

    def settle(self, *, error: BaseException | None = None) -> None:
        """Ends all of its messages, and wakes who waits for one of them."""
        self.error = error
        self.state = FINISHED
        self.payloads, self.keys, self.extras = [], [], {}
        self._packed = None
        self.wake()
        for mark in self.marks.values():
            if mark.state is None:
                mark.notify_waiters(error)

    def notify_callers(self) -> None:
        """Calls who wants to hear of messages that are over, in their order.

        Without the lock: they may send more. What they raise is logged.
        """
        with self.lock:
            is_over = self.state is FINISHED
            due = [at for at in self.on_done if is_over or at < self.dropped]
            on_done = [(at, self.on_done.pop(at)) for at in due]
            marks = [
                mark
                for at, mark in self.marks.items()
                if mark.state is None and (is_over or at < self.dropped)
            ]
        for at, function in on_done:
            try:
                function(self._ended(at))
            except BaseException:
                logger.exception("on_done of a message to %s failed", self.topic)
        for mark in marks:
            mark.call_back()

    def _ended(self, at: int) -> "Sent | BaseException":
        mark = self.marks.get(at)
        if mark is not None and mark.state is CANCELLED:
            return CancelledError()
        error = self.error_of(at)
        return self.sent(at) if error is None else error

    def wake(self) -> None:
        """Has those look again who wait for a result."""
        for turn in self.turns:
            turn.put(None)
        self.turns = []

    def state_of(self, at: int) -> str:
        """Returns the state of a message that nobody has settled by hand."""
        return FINISHED if at < self.dropped else self.state

    def error_of(self, at: int) -> BaseException | None:
        """Returns why a message that is over was not sent; None where it was."""
        if at < self.dropped:
            return QueueFull(f"a newer message for {self.topic} took its room")
        return self.error

    def sent(self, at: int) -> Sent:
        """Returns the place of a message of a batch that is stored."""
        place = at if self._places is None else self._places[at]
        first = self.first
        # A service of the caller's own tells no ids.
        message_id = MessageId() if not first else first.later(place)
        return Sent(self.topic, self.partition, message_id)

    def mark(self, future: "SentFuture", at: int) -> Mark:
        """Returns the mark of a future, under the lock."""
        found = self.marks.get(at)
        if found is None:
            found = self.marks[at] = Mark(future)
        return found

    def __repr__(self) -> str:
        return f"<SendBatch of {self.waiting} to {self.topic}.{self.partition}>"


class _Waiters(list[Any]):
    """The calls of `wait` and `as_completed` that are told when a future is over."""

    def __init__(self, future: "SentFuture") -> None:
        super().__init__()
        self._future = future

    def append(self, waiter: Any) -> None:
        """Adds one, which is told at once of what came since its thread looked."""
        self._future._add_waiter(super().append, waiter)


class _StateHeld:
    """The `_condition` of a future, for `wait` and `as_completed`: no lock at all.

    These take the conditions of all futures, in an order by their address, before they
    look. All messages of a sender have one lock: two threads that look at messages of
    two senders would take their locks in any order, and wait for each other. So this
    keeps, for a thread, the state that a future had when it was taken.
    """

    def __init__(self, future: "SentFuture") -> None:
        self._future = future

    def acquire(self) -> None:
        """Has this thread see the state of now until it releases."""
        self._future._hold_state()

    def release(self) -> None:
        """Has this thread see the state as it is."""
        self._future._release_state()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class SentFuture(Future[Sent]):
    """The future of one message: a `Sent` once it is on disk, or why it is not.

    It is a future of `concurrent.futures`, which may also be awaited. Cancelled before
    its batch goes out it takes its message back.
    """

    __slots__ = ("_at", "_batch")

    def __init__(self, batch: SendBatch, at: int) -> None:
        # That of the parent makes a lock each, in twice the time of all the rest.
        self._batch = batch
        self._at = at

    def _where(self) -> tuple[SendBatch, int]:
        """Returns the batch that has its message now, and the place there."""
        batch, at = self._batch, self._at
        while at in batch.moved:
            batch, at = batch.moved[at]
        return batch, at

    def _mark(self) -> Mark:
        """Returns its mark, under the lock."""
        batch, at = self._where()
        return batch.mark(self, at)

    def _state_now(self) -> str:
        while True:
            batch, at = self._where()
            mark = batch.marks.get(at)
            by_hand = None if mark is None else mark.state
            state = batch.state_of(at) if by_hand is None else by_hand
            if at not in batch.moved:  # just now: the other batch knows
                return state

    # What `wait` and `as_completed` of concurrent.futures look at.

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        return _StateHeld(self)

    @property
    def _state(self) -> str:  # type: ignore[override]
        batch, at = self._where()
        mark = batch.marks.get(at)
        held = None if mark is None else mark.held.get(threading.get_ident())
        return self._state_now() if held is None else held

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        if self._is_over_here():
            return self._mark().waiters
        with self._batch.lock:
            return self._mark().waiters

    def _hold_state(self) -> None:
        if self._is_over_here():
            return
        with self._batch.lock:
            self._mark().held[threading.get_ident()] = self._state_now()

    def _release_state(self) -> None:
        if self._is_over_here():
            return
        with self._batch.lock:
            self._mark().held.pop(threading.get_ident(), None)

    def _add_waiter(self, append: Callable[[Any], None], waiter: Any) -> None:
        if self._is_over_here():
            append(waiter)
            return
        with self._batch.lock:
            append(waiter)
            mark, state = self._mark(), self._state_now()
            if state in OVER and self._state not in OVER:
                error = None if state is CANCELLED else self._error()
                mark.notify_waiters(error, [waiter])

    def _is_over_here(self) -> bool:
        """True in a forked child, where it changes no more: over, or an error."""
        lock = self._batch.lock
        if lock.is_forked and not self.done():
            lock.require_not_forked()
        return lock.is_forked

    def cancel(self) -> bool:
        """Takes the message back; False once it is under way or over."""
        if self._is_over_here():
            return self.cancelled()
        with self._batch.lock:
            state = self._state_now()
            if state is CANCELLED:
                return True
            if state is not PENDING:
                return False
            mark = self._mark()
            mark.state = CANCELLED
            self._where()[0].wake()
            mark.notify_waiters(None)
        mark.call_back()
        return True

    def cancelled(self) -> bool:
        """Tells whether the message was taken back."""
        return self._state_now() is CANCELLED

    def running(self) -> bool:
        """Tells whether the message is under way."""
        return self._state_now() is RUNNING

    def done(self) -> bool:
        """Tells whether the message is over: sent, given up or taken back."""
        return self._state_now() in OVER

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Has a function called with this future when it is done, or at once."""
        if not self._is_over_here():
            with self._batch.lock:
                if not self.done():
                    self._mark().callbacks.append(fn)
                    return
        Mark(self).call_back([fn])

    def result(self, timeout: float | None = None) -> Sent:
        """Waits for the end; returns where the message is, or raises why it is not."""
        error = self.exception(timeout)
        if error is not None:
            try:
                # All messages of a batch have one error, which would grow by each.
                raise error.with_traceback(None)
            finally:
                del error, self  # which would keep each other
        batch, at = self._where()
        mark = batch.marks.get(at)
        if mark is not None and mark.state is not None:
            result: Sent = mark.result
            return result
        return batch.sent(at)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the end; returns why the message was not sent, or None."""
        if not self._is_over_here():
            self._await(timeout)
        if self.cancelled():
            raise CancelledError
        return self._error()

    def _error(self) -> BaseException | None:
        """Returns why a message that is over, and was not taken back, was not sent."""
        batch, at = self._where()
        mark = batch.marks.get(at)
        if mark is None or mark.state is None:
            return batch.error_of(at)
        return mark.result if isinstance(mark.result, BaseException) else None

    def _await(self, timeout_s: float | None) -> None:
        lock, left_s = self._batch.lock, timeout_s
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            turn: SimpleQueue[None] = SimpleQueue()
            with lock:
                if self.done():
                    return
                batch = self._where()[0]
                batch.turns += (turn,)
            try:
                if left_s is None:
                    lock.require_another_thread("result")
                turn.get(timeout=left_s if left_s is None else max(0, left_s))
            except Empty:
                raise TimeoutError from None
            finally:
                with lock:
                    if turn in batch.turns:
                        batch.turns.remove(turn)
            if until_s is not None:  # others of its batch may have been dropped
                left_s = until_s - time.monotonic()

    def set_running_or_notify_cancel(self) -> bool:
        """Tells whether it was not cancelled; the sender itself says when it runs."""
        return not self.cancelled()

    def set_result(self, result: Any) -> None:
        """Settles the future by hand, which takes nothing back."""
        self._settle_by_hand(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Settles the future by hand, which takes nothing back."""
        self._settle_by_hand(exception)

    def _settle_by_hand(self, result: Any) -> None:
        self._batch.lock.require_not_forked()
        with self._batch.lock:
            if self.done():
                raise InvalidStateError(f"{self._state_now()}: {self!r}")
            mark = self._mark()
            mark.state, mark.result = FINISHED, result
            self._where()[0].wake()
            is_error = isinstance(result, BaseException)
            mark.notify_waiters(result if is_error else None)
        mark.call_back()

    def __await__(self) -> Generator[Any, None, Sent]:
        import asyncio  # most programs have no event loop

        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        return f"<SentFuture to {self._batch.topic}, {self._state_now().lower()}>"
