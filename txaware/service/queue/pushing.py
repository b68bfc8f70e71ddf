"""Chooses the pipes of pushes, and begins new ones where they are full."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from itertools import islice

import attrs

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import OnWritten
from txaware.errors import QueueNotFound, TooManyPipes, Unavailable
from txaware.model.interfaces import Write
from txaware.model.metrics import Latencies, TopicCounters
from txaware.model.queues import MAX_PRIORITY, PipeShare
from txaware.model.requests import Payloads
from txaware.service.queue.pipe import LENT_MS, Pipe, PipeCounters, PipeWriter, opened
from txaware.service.queue.queue_state import Pushed, QueueState
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.wakeups import Signal, WouldWait
from txaware.service.write.publishing import PlainPart, Publishing
from txaware.store.queue_table import NO_TIME, PipeKind

# So many items of a push go to that pipe.
Share = tuple[Pipe, int]
# A transaction is lent room for so many items more than it asks for, but for no more
# than a quarter of what a pipe takes.
LENT_AHEAD = 15
# A pipe that begins closes so many that were left: more than come.
OLD_AT_ONCE = 2
# An empty pipe is closed whose pusher pushed nothing for so long.
LEFT_MS = 60_000
# So many pipes take pushes at once; above it, the oldest one takes no more.
MOST_OPEN = 5_000
# Where there are too many pipes, it is seen so often whether some may go.
MAKE_ROOM_EVERY_MS = 1_000
# An event loop begins so many pipes at once; a thread has more time.
NEW_IN_A_LOOP = 100
# The pusher of the one pipe that keeps an order for all.
EVERYBODY = ""


class PipeSignal(Signal):
    """The signal of a pipe's writer, for what transactions push there.

    A plain push tells by itself, once its items are counted.
    """

    def __init__(self, pipe: Pipe, of_queue: Signal) -> None:
        self._pipe = pipe  # and nobody waits for this one
        self._of_queue = of_queue

    def notify(self, most: int | None = None) -> None:
        """Wakes poppers for what may be visible now."""
        if not self._pipe.pushing:
            self._of_queue.notify(sum(self._pipe.undecided.values()) or 1)


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
        # Ends the pushes of transactions that are over; the queue sets it too.
        self.settle: Callable[..., object] = _nothing

    def push(
        self, payloads: Payloads, *, pusher: str, delay_s: float, priority: int
    ) -> None:
        """Pushes in one piece, all or none; on disk when it returns."""
        shares = self._begun(len(payloads), pusher, delay_s, priority)
        try:
            parts = _parts(shares, payloads)
            pushed = _unwritten(shares, parts)
            if len(pushed) == 1:
                [(pipe, _)], [one] = shares, pushed
                self._publishing.plain(
                    self._plain_handle(pipe), payloads, also=partial(_noted, one.rows)
                )
            else:
                self._publish_parts(pushed, parts, self._table.submit)()
        except BaseException:
            self._have_failed(shares)
            raise
        self._have_pushed(pushed)  # not in the block: once in all
        if lost := _lost_rows(shares):
            with self._state.lock:
                wait = self._table.submit(lost)
            wait()

    def push_soon(
        self,
        payloads: Payloads,
        on_written: OnWritten,
        *,
        pusher: str,
        delay_s: float,
        priority: int,
    ) -> None:
        """Pushes as `push` does and waits for nothing, as for an event loop.

        Another thread tells `on_written` how it ended. Raises `WouldWait` where it had
        to.
        """
        shares = self._begun(len(payloads), pusher, delay_s, priority, may_wait=False)
        parts = _parts(shares, payloads)
        pushed = _unwritten(shares, parts)

        def written(error: Unavailable | None) -> None:
            if error is not None:
                self._have_failed(shares)
            else:
                self._have_pushed(pushed)
                if lost := _lost_rows(shares):
                    self._table.hand_over(lost, on_written)
                    return
            on_written(error)

        def hand_over(rows: Sequence[Write], settled: OnWritten) -> Wait:
            def ended(error: Unavailable | None) -> None:
                settled(error)
                written(error)

            self._table.hand_over(rows, ended)
            return _nothing

        try:
            if len(pushed) == 1:
                [(pipe, _)], [one] = shares, pushed
                self._publishing.plain_soon(
                    self._plain_handle(pipe),
                    payloads,
                    written,
                    also=partial(_noted, one.rows),
                )
            else:
                self._publish_parts(pushed, parts, hand_over)
        except BaseException:
            self._have_failed(shares)
            raise

    def _publish_parts(
        self,
        pushed: list[Pushed],
        parts: list[Payloads],
        submit: Callable[[Sequence[Write], OnWritten], Wait],
    ) -> Wait:
        """Publishes to several pipes, the oldest first, in one batch."""
        places = [
            PlainPart(self._plain_handle(one.pipe), part, partial(_noted, one.rows))
            for one, part in zip(pushed, parts, strict=True)
        ]
        return self._publishing.plain_parts(places, submit)

    def _have_pushed(self, pushed: list[Pushed]) -> None:
        self._state.pushed_soon.extend(pushed)
        self._state.signal.notify(sum(one.count for one in pushed))

    def _have_failed(self, shares: list[Share]) -> None:
        self._state.is_in_doubt = True
        self._state.pushed_soon.extend(Pushed(*share) for share in shares)

    def _begun(
        self,
        count: int,
        pusher: str,
        delay_s: float,
        priority: int,
        *,
        may_wait: bool = True,
        is_bounded: bool = True,
    ) -> list[Share]:
        if not self._state.lock.acquire(blocking=may_wait):
            raise WouldWait
        try:
            if self._state.is_gone and not may_wait:
                raise WouldWait  # a thread finds out whether it is there anew
            return self._shares(
                count,
                pusher,
                delay_s,
                priority,
                may_wait=may_wait,
                is_bounded=is_bounded,
            )
        finally:
            self._state.lock.release()

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
        [(pipe, _)] = self._begun(1, pusher, delay_s, priority, is_bounded=False)
        try:
            yield pipe
        except BaseException:
            self._state.is_in_doubt = True
            raise
        finally:
            with self._state.lock:
                pipe.pushing -= 1

    def reserve(
        self, pointer: int, items: int, *, pusher: str, delay_s: float, priority: int
    ) -> list[PipeShare]:
        """Lends pipes to a transaction until its end, with room for these items.

        Who pushes one by one gets some room ahead, and twice as much each time, where
        there is so much.
        """
        with self._state.lock:
            shares = self._shares(items, pusher, delay_s, priority, pointer=pointer)
            pipe, count = shares[-1]
            before = pipe.reserved[pointer] - count
            more = before or min(LENT_AHEAD, self._most_pushes // 4)
            if pipe.kind is PipeKind.PUSHER:
                more = min(more, self._most_pushes - pipe.occupied)
            if more > 0:
                pipe.lend(pointer, more)
                shares[-1] = pipe, count + more
            return [PipeShare(str(pipe.name), count) for pipe, count in shares]

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
            if pipe.is_final:  # its row is there before what is pushed now
                pipe.is_final = False
                self._table.hand_over([pipe.write()], self._on_written)
            now_ms = self._clock.now_ms()
            pipe.lent_until_ms = now_ms + LENT_MS
            self._line_up_again(pipe, now_ms)
            return self.handle(pipe)

    def handle(self, pipe: Pipe) -> TopicHandle:
        """Returns what publishes to a pipe, made when it is first needed."""
        if pipe.handle is not None:
            return pipe.handle
        writer = PipeWriter(self._table)
        writer.signal = PipeSignal(pipe, self._state.signal)
        counters = PipeCounters(self._latencies, partial(self._counted, pipe))
        return opened(pipe, writer, counters)

    def _counted(self, pipe: Pipe, pointer: int | None, count: int) -> None:
        """Counts pushes: committed ones, those of a transaction, or its rollback."""
        with self._state.lock:
            now_ms = self._clock.now_ms()
            # One that was lent in an earlier life may have been found empty meanwhile.
            self._line_up_again(pipe, now_ms)
            if pointer is None:
                pipe.pushed += count
                self._state.meter.at(now_ms).pushed += count
            else:
                pipe.hold(pointer, count)
                if count:
                    self._state.watched.setdefault(pointer, set()).add(pipe)
        self._state.signal.notify(count or None)

    def _line_up_again(self, pipe: Pipe, now_ms: int) -> None:
        state = self._state
        if state.pipes.get(pipe.id) is pipe and not state.is_unread(pipe.id):
            state.line_up_again(pipe, now_ms)

    def _shares(
        self,
        count: int,
        pusher: str,
        delay_s: float,
        priority: int,
        *,
        pointer: int | None = None,
        may_wait: bool = True,
        is_bounded: bool = True,
    ) -> list[Share]:
        """Returns the pipes for a push now, and how much of it goes to each.

        They stay until it is over: those of a transaction with it. New ones are kept
        before their first items. Where it raises, nothing is changed.
        """
        now_ms, state = self._clock.now_ms(), self._state
        if state.is_gone:
            raise QueueNotFound(f"queue {state.descriptor.name} does not exist")
        for pipe in state.catch_up_pushes(now_ms):
            self._lay(pipe)
        if delay_s > 0:
            due_ms = math.ceil((now_ms + delay_s * 1000) / 1000) * 1000
            due = state.due_pipes.get((due_ms, priority))
            if due is None or due.is_row_lost:
                self._check_room(now_ms, 1, may_wait=may_wait)
                [due] = self._begin(now_ms, 1, PipeKind.DELAYED, priority, due_ms)
                state.due_pipes[due_ms, priority] = due
            return [self._take(due, count, pointer)]
        is_ordered = state.descriptor.is_ordered
        key = (EVERYBODY if is_ordered else pusher, priority)
        room = self._room(key, count, now_ms, may_wait=may_wait)
        if count <= room:
            return [self._take(state.pushers[key], count, pointer)]
        new = 1 if is_ordered else math.ceil((count - room) / self._most_pushes)
        if is_bounded:
            self._check_room(now_ms, new, may_wait=may_wait)
            if room != self._room_of(state.pushers.get(key), count, now_ms):
                return self._shares(  # it had to make room
                    count, pusher, delay_s, priority, pointer=pointer, may_wait=may_wait
                )
        if not may_wait and new > NEW_IN_A_LOOP:
            raise WouldWait
        return self._begun_shares(key, count, room, new, now_ms, pointer)

    def _begun_shares(
        self,
        key: tuple[str, int],
        count: int,
        room: int,
        new: int,
        now_ms: int,
        pointer: int | None,
    ) -> list[Share]:
        """Uses the room that a pusher's pipe has, and new ones for what is left."""
        state, (pusher, priority) = self._state, key
        is_ordered = state.descriptor.is_ordered
        kind = PipeKind.ORDERED if is_ordered else PipeKind.PUSHER
        number = 0 if is_ordered else _number_of(pusher)
        pipes = self._begin(now_ms, new, kind, priority, NO_TIME, pusher=number)
        shares: list[Share] = []
        if room:
            shares.append(self._take(state.pushers[key], room, pointer))
            count -= room
        if key in state.pushers:
            self._close(key)  # the newest comes last
        self.close_old(now_ms, most=OLD_AT_ONCE)
        most = count if is_ordered else self._most_pushes
        for pipe in pipes:
            shares.append(self._take(pipe, min(count, most), pointer))
            count -= most
            pipe.is_open = pipe is pipes[-1]
        state.pushers[key] = pipes[-1]
        if len(state.pushers) > MOST_OPEN:
            self._close(next(iter(state.pushers)))
        return shares

    def _take(self, pipe: Pipe, count: int, pointer: int | None) -> Share:
        """Keeps room in a pipe for a plain push, or for those of a transaction."""
        self.handle(pipe)
        if pointer is None:
            pipe.pushing += count
        else:
            pipe.lend(pointer, count)
            pipe.is_plain = False
            self._state.watched.setdefault(pointer, set()).add(pipe)
        return pipe, count

    @property
    def _most_pushes(self) -> int:
        return self._state.descriptor.max_pushes_per_pipe

    def _room(
        self, key: tuple[str, int], count: int, now_ms: int, *, may_wait: bool
    ) -> int:
        """Returns how many of these items the pipe of a pusher still takes."""
        pipe = self._state.pushers.get(key)
        room = self._room_of(pipe, count, now_ms)
        if room < count and pipe is not None and pipe.reserved:
            self.settle(may_wait=may_wait)  # who is over needs no room
            room = self._room_of(self._state.pushers.get(key), count, now_ms)
        return room

    def _room_of(self, pipe: Pipe | None, count: int, now_ms: int) -> int:
        if pipe is None or pipe.is_row_lost:
            return 0
        if self._state.descriptor.is_ordered:
            return count
        if self.is_too_old(pipe, now_ms):
            return 0
        return max(0, min(count, self._most_pushes - pipe.occupied))

    def _check_room(self, now_ms: int, new: int, *, may_wait: bool) -> None:
        """Raises `TooManyPipes` where the queue has no room for so many more."""
        state, most = self._state, self._most_pipes
        if state.unread is None and state.pipe_count + new <= most:
            return
        if not may_wait:
            raise WouldWait
        state.source.read_piece()
        if state.pipe_count + new > most and now_ms >= self._room_ms:
            self._room_ms = now_ms + MAKE_ROOM_EVERY_MS
            self.make_room()
        if state.pipe_count + new > most:
            raise TooManyPipes(
                f"queue {state.descriptor.name} has {state.pipe_count} pipes, the push "
                f"needs {new} more, and the setting max_pipes_per_queue is {most}: "
                f"nothing was pushed; pop what waits, have fewer pushers, push fewer "
                f"items at once, or raise the setting"
            )

    def is_too_old(self, pipe: Pipe, now_ms: int) -> bool:
        """Tells whether a pusher may no longer push to its pipe."""
        most_ms = self._state.descriptor.max_push_time_of_pipe_s * 1000
        return now_ms - pipe.created_ms >= most_ms

    def _begin(
        self,
        now_ms: int,
        count: int,
        kind: PipeKind,
        priority: int,
        due_ms: int,
        *,
        pusher: int = 0,
    ) -> list[Pipe]:
        pipes = [
            self._state.add_pipe(
                now_ms, kind, priority=priority, due_ms=due_ms, pusher=pusher
            )
            for _ in range(count)
        ]
        # They go with the batch of the first item, or before it: batches keep their
        # order. Where it fails, who pushes writes them again: an item in a pipe without
        # a row would be lost with the next start.
        rows = [pipe.write() for pipe in pipes]
        self._table.hand_over(rows, partial(self._rows_told, pipes))
        return pipes

    def _rows_told(self, pipes: list[Pipe], error: object) -> None:
        """Hears whether the rows of pipes were written, before their first items."""
        if error is not None:
            self._state.is_in_doubt = True
            for pipe in pipes:
                pipe.is_row_lost = True

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
        self._lay(pipe)

    def _lay(self, pipe: Pipe) -> None:
        """Has a pipe that takes no more pushes leave the memory, if it may."""
        if self._state.pipes.get(pipe.id) is pipe and self._state.may_rest(pipe):
            self._table.hand_over([self._state.lay(pipe)], self._on_written)

    def _on_written(self, error: object) -> None:
        """Hears how the last row of a pipe was written, which nobody waits for."""
        if error is not None:
            self._state.is_in_doubt = True


def _nothing(**_: bool) -> None:
    """Does nothing."""


def _parts(shares: list[Share], payloads: Payloads) -> list[Payloads]:
    """Returns what goes to each pipe."""
    if len(shares) == 1:
        return [payloads]
    parts: list[Payloads] = []
    first = 0
    for _, count in shares:
        parts.append(payloads.part(first, first + count))
        first += count
    return parts


def _unwritten(shares: list[Share], parts: list[Payloads]) -> list[Pushed]:
    """Returns the parts of a push, whose rows are noted as they are made."""
    return [
        Pushed(pipe, count, [], part.size_bytes)
        for (pipe, count), part in zip(shares, parts, strict=True)
    ]


def _lost_rows(shares: list[Share]) -> list[Write]:
    """Makes the rows anew of pipes whose first write failed."""
    return [pipe.write() for pipe, _ in shares if pipe.is_row_lost]


def _noted(rows: list[Write], _: list[bytes], made: list[Write]) -> list[Write]:
    """Notes the rows that were made, which go into the batch as they are."""
    rows.extend(made)
    return made


def _number_of(pusher: str) -> int:
    """Returns the number of a pusher that its pipes have in common, never 0."""
    digest = blake2b(pusher.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1
