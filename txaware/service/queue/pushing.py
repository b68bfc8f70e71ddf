"""Chooses the pipes of pushes, and begins new ones where they are full."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from itertools import islice

import attrs

from coordinator.embedded.batch import Then
from txaware.errors import QueueNotFound, TooManyPipes, Unavailable
from txaware.model.interfaces import Write
from txaware.model.metrics import Latencies, TopicCounters
from txaware.model.queues import MAX_PRIORITY
from txaware.model.requests import Payloads
from txaware.service.queue.pipe import Pipe, PipeCounters, opened
from txaware.service.queue.queue_state import Pushed, QueueState
from txaware.service.queue.step_batch import WouldWait
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.wakeups import Signal
from txaware.service.write.publishing import Publishing
from txaware.service.write.topic_writer import TopicWriter
from txaware.store.queue_table import NO_TIME, PipeKind

# A pipe is kept so long after somebody asked for it who did not announce a push.
LENT_MS = 60_000
# A pipe that begins closes so many that were left: more than come.
OLD_AT_ONCE = 2
# An empty pipe is closed whose pusher pushed nothing for so long.
LEFT_MS = 60_000
# So many pipes take pushes at once; above it, the oldest one takes no more.
MOST_OPEN = 5_000
# Where there are too many pipes, it is seen so often whether some may go.
MAKE_ROOM_EVERY_MS = 1_000
# The pusher of the one pipe that keeps an order for all.
EVERYBODY = ""


class PipeSignal(Signal):
    """The signal of a pipe's writer, for what transactions push there.

    A plain push tells by itself, once its items are counted.
    """

    def __init__(self, pipe: Pipe, of_queue: Signal) -> None:
        self._pipe = pipe  # and nobody waits for this one
        self._of_queue = of_queue

    def tell(self, most: int | None = None) -> None:
        """Wakes poppers for what may be visible now."""
        if not self._pipe.pushing:
            self._of_queue.tell(sum(self._pipe.undecided.values()) or 1)


class Pushing:
    """The pushes to one queue: each pusher has a pipe of its own."""

    def __init__(
        self,
        store_context: StoreContext,
        state: QueueState,
        publishing: Publishing,
        latencies: Latencies,
    ) -> None:
        self._table = store_context.table
        self._clock = store_context.table.clock
        self._state = state
        self._publishing = publishing
        self._latencies = latencies
        self._most_pipes = store_context.settings.max_pipes_per_queue
        self._room_ms = 0
        # Has pipes go that nobody needs; the queue sets it.
        self.make_room: Callable[[], object] = _nothing

    def push(
        self, payloads: Payloads, *, pusher: str, delay_s: float, priority: int
    ) -> None:
        """Pushes in one piece, all or none; on disk when it returns."""
        rows: list[Write] = []
        pipe = self._begun(pusher, delay_s, priority)
        try:
            self._publishing.plain(
                self._plain_handle(pipe), payloads, also=partial(_noted, rows)
            )
            pushed = Pushed(pipe, rows, payloads.size_bytes)
        except BaseException:
            self._has_failed(pipe)
            raise
        self._has_pushed(pushed)  # not in the block: once in all
        if pipe.is_row_lost:
            with self._state.lock:
                wait = self._table.submit([pipe.write()])
            wait()

    def push_soon(
        self,
        payloads: Payloads,
        then: Then,
        *,
        pusher: str,
        delay_s: float,
        priority: int,
    ) -> None:
        """Pushes as `push` does and waits for nothing, as for an event loop.

        Another thread tells `then` how it ended. Raises `WouldWait` where it had to.
        """
        rows: list[Write] = []
        pipe = self._begun(pusher, delay_s, priority, may_wait=False)

        def written(error: Unavailable | None) -> None:
            if error is not None:
                self._has_failed(pipe)
            else:
                self._has_pushed(Pushed(pipe, rows, payloads.size_bytes))
                if pipe.is_row_lost:
                    self._table.hand_over([pipe.write()], then)
                    return
            then(error)

        try:
            self._publishing.plain_soon(
                self._plain_handle(pipe), payloads, written, also=partial(_noted, rows)
            )
        except BaseException:
            self._has_failed(pipe)
            raise

    def _has_pushed(self, pushed: Pushed) -> None:
        self._state.pushed_soon.append(pushed)
        self._state.signal.tell(len(pushed.rows))

    def _has_failed(self, pipe: Pipe) -> None:
        self._state.is_in_doubt = True
        self._state.pushed_soon.append(Pushed(pipe))

    def _begun(
        self,
        pusher: str,
        delay_s: float,
        priority: int,
        *,
        may_wait: bool = True,
        is_bounded: bool = True,
    ) -> Pipe:
        if not self._state.lock.acquire(blocking=may_wait):
            raise WouldWait
        try:
            if self._state.is_gone and not may_wait:
                raise WouldWait  # a thread finds out whether it is there anew
            pipe = self._pipe_for(
                pusher, delay_s, priority, may_wait=may_wait, is_bounded=is_bounded
            )
            self.handle(pipe)
            pipe.pushing += 1
        finally:
            self._state.lock.release()
        return pipe

    def _plain_handle(self, pipe: Pipe) -> TopicHandle:
        """Returns what publishes to a pipe and does not count its items."""
        if pipe.plain_handle is None:
            handle = self.handle(pipe)
            counters = TopicCounters(self._latencies)
            pipe.plain_handle = attrs.evolve(handle, counters=counters)
        return pipe.plain_handle

    @contextmanager
    def begun(
        self, pusher: str, *, delay_s: float = 0, priority: int = 0
    ) -> Iterator[Pipe]:
        """Surrounds a plain push to the pipe that it yields, which stays meanwhile.

        It is for what the queues do themselves, and has no bound.
        """
        pipe = self._begun(pusher, delay_s, priority, is_bounded=False)
        try:
            yield pipe
        except BaseException:
            self._state.is_in_doubt = True
            raise
        finally:
            with self._state.lock:
                pipe.pushing -= 1

    def reserve(
        self, pointer: int, *, pusher: str, delay_s: float, priority: int
    ) -> str:
        """Returns the name of a pipe that a transaction may push to until its end."""
        with self._state.lock:
            pipe = self._pipe_for(pusher, delay_s, priority)
            self.handle(pipe)
            pipe.reserved.add(pointer)
            pipe.is_plain = False
            self._state.watched.setdefault(pointer, set()).add(pipe)
            return str(pipe.name)

    def close_pusher(self, pusher: str) -> None:
        """Has the pipes of a pusher take no more pushes."""
        with self._state.lock:
            for priority in range(MAX_PRIORITY + 1):
                if (pusher, priority) in self._state.pushers:
                    self._close((pusher, priority))

    def lent(self, number: int) -> TopicHandle:
        """Returns what publishes to a pipe, or rolls back there, for a while."""
        with self._state.lock:
            pipe = None if self._state.is_gone else self._state.pipe(number)
            if pipe is None:
                raise QueueNotFound(
                    f"queue {self._state.descriptor.name} was truncated or deleted, or "
                    f"the transaction that pushed to its pipe {number} is over"
                )
            pipe.is_plain = False
            now_ms = self._clock.now_ms()
            pipe.lent_until_ms = now_ms + LENT_MS
            if not self._state.is_unread(number):
                self._state.line_up_again(pipe, now_ms)
            return self.handle(pipe)

    def handle(self, pipe: Pipe) -> TopicHandle:
        """Returns what publishes to a pipe, made when it is first needed."""
        if pipe.handle is not None:
            return pipe.handle
        writer = TopicWriter(self._table)
        writer.signal = PipeSignal(pipe, self._state.signal)
        counters = PipeCounters(self._latencies, partial(self._counted, pipe))
        return opened(pipe, writer, counters)

    def _counted(self, pipe: Pipe, pointer: int | None, count: int) -> None:
        """Counts pushes: committed ones, those of a transaction, or its rollback."""
        with self._state.lock:
            if pointer is None:
                pipe.pushed += count
                self._state.meter.at(self._clock.now_ms()).pushed += count
            elif count:
                pipe.undecided[pointer] = pipe.undecided.get(pointer, 0) + count
                self._state.watched.setdefault(pointer, set()).add(pipe)
            else:
                pipe.undecided.pop(pointer, None)
        self._state.signal.tell(count or None)

    def _pipe_for(
        self,
        pusher: str,
        delay_s: float,
        priority: int,
        *,
        may_wait: bool = True,
        is_bounded: bool = True,
    ) -> Pipe:
        """Returns the pipe for a push now; a new one is kept before its first item."""
        now_ms, state = self._clock.now_ms(), self._state
        if state.is_gone:
            raise QueueNotFound(f"queue {state.descriptor.name} does not exist")
        state.catch_up_pushes(now_ms)
        if delay_s > 0:
            due_ms = math.ceil((now_ms + delay_s * 1000) / 1000) * 1000
            pipe = state.due_pipes.get((due_ms, priority))
            if pipe is None or pipe.is_row_lost:
                self._check_room(now_ms, may_wait=may_wait)
                pipe = self._begin(now_ms, PipeKind.DELAYED, priority, due_ms)
                state.due_pipes[due_ms, priority] = pipe
            return pipe
        is_ordered = state.descriptor.is_ordered
        key = (EVERYBODY if is_ordered else pusher, priority)
        pipe = state.pushers.get(key)
        if pipe is not None and not (
            pipe.is_row_lost or (not is_ordered and self._is_full(pipe, now_ms))
        ):
            return pipe
        if is_bounded:
            self._check_room(now_ms, may_wait=may_wait)
        if pipe is not None and state.pushers.get(key) is pipe:
            self._close(key)  # the newest comes last
        self.close_old(now_ms, most=OLD_AT_ONCE)
        kind = PipeKind.ORDERED if is_ordered else PipeKind.PUSHER
        number = 0 if is_ordered else _number_of(pusher)
        pipe = self._begin(now_ms, kind, priority, NO_TIME, pusher=number)
        state.pushers[key] = pipe
        if len(state.pushers) > MOST_OPEN:
            self._close(next(iter(state.pushers)))
        return pipe

    def _check_room(self, now_ms: int, *, may_wait: bool) -> None:
        """Raises `TooManyPipes` where the queue has no room for one more."""
        state, most = self._state, self._most_pipes
        if state.unread is None and state.pipe_count < most:
            return
        if not may_wait:
            raise WouldWait
        state.source.read_piece()
        if state.pipe_count >= most and now_ms >= self._room_ms:
            self._room_ms = now_ms + MAKE_ROOM_EVERY_MS
            self.make_room()
        if state.pipe_count >= most:
            raise TooManyPipes(
                f"queue {state.descriptor.name} has {state.pipe_count} pipes, and the "
                f"setting max_pipes_per_queue is {most}: nothing was pushed; pop what "
                f"waits, have fewer pushers, or raise the setting"
            )

    def _is_full(self, pipe: Pipe, now_ms: int) -> bool:
        most = self._state.descriptor.max_pushes_per_pipe
        pushed = pipe.pushed + sum(pipe.undecided.values())
        return pushed >= most or self.is_too_old(pipe, now_ms)

    def is_too_old(self, pipe: Pipe, now_ms: int) -> bool:
        """Tells whether a pusher may no longer push to its pipe."""
        most_ms = self._state.descriptor.max_push_time_of_pipe_s * 1000
        return now_ms - pipe.created_ms >= most_ms

    def _begin(
        self,
        now_ms: int,
        kind: PipeKind,
        priority: int,
        due_ms: int,
        *,
        pusher: int = 0,
    ) -> Pipe:
        pipe = self._state.add_pipe(
            now_ms, kind, priority=priority, due_ms=due_ms, pusher=pusher
        )
        # It goes with the batch of the first item, or before it: batches keep their
        # order. Where it fails, who pushes writes it again: an item in a pipe without
        # a row would be lost with the next start.
        self._table.hand_over([pipe.write()], partial(self._row_told, pipe))
        return pipe

    def _row_told(self, pipe: Pipe, error: object) -> None:
        """Hears whether the row of a pipe was written, before its first item is."""
        if error is not None:
            pipe.is_row_lost = self._state.is_in_doubt = True

    def close_old(self, now_ms: int, *, most: int | None = None) -> None:
        """Has pipes take no more pushes whose pushers left them; the oldest first."""
        for key, pipe in list(islice(self._state.pushers.items(), most)):
            if pipe.kind is PipeKind.PUSHER and (
                self.is_too_old(pipe, now_ms) or pipe.is_left(now_ms - LEFT_MS)
            ):
                self._close(key)

    def _close(self, key: tuple[str, int]) -> None:
        """Has a pipe take no more pushes; its pusher begins another one."""
        pipe = self._state.pushers.pop(key)
        pipe.is_open = False
        if self._state.may_rest(pipe):
            self._table.hand_over([self._state.lay(pipe)], self._told)

    def _told(self, error: object) -> None:
        """Hears how the last row of a pipe was written, which nobody waits for."""
        if error is not None:
            self._state.is_in_doubt = True


def _nothing() -> None:
    """Does nothing."""


def _noted(rows: list[Write], _: list[bytes], made: list[Write]) -> list[Write]:
    """Notes the rows that were made, which go into the batch as they are."""
    rows.extend(made)
    return made


def _number_of(pusher: str) -> int:
    """Returns the number of a pusher that its pipes have in common, never 0."""
    digest = blake2b(pusher.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1
