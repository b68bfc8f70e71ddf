"""A pipe: a bounded row of items, pushed by one and popped by all."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import attrs

from txaware.errors import QueueNotFound
from txaware.model.interfaces import Write
from txaware.model.messages import MessageId
from txaware.model.metrics import Latencies, TopicCounters
from txaware.model.queues import PipeName, PipeTopic, pipe_prefix
from txaware.model.topics import MAX_TTL_S
from txaware.service.topic_handles import TopicHandle
from txaware.service.write.topic_writer import Stamper, TopicWriter
from txaware.store.keys import PIPE
from txaware.store.queue_table import NOT_FINAL, PipeKind, PopCounts, pipe_value

FIRST = MessageId(bytes(20))
LAST = MessageId(b"\xff" * 20)
# A pipe is kept so long after somebody asked for it who did not announce a push.
LENT_MS = 60_000


class Item(NamedTuple):
    """An item as its pipe has it; `stored_by` is the pointer of a stored payload.

    It is a tuple, as one is made for each item that is read.
    """

    id: MessageId
    payload: bytes
    key: bytes | None = None
    headers: bytes = b""
    expires_ms: int | None = None
    pointer: int | None = None
    stored_by: int | None = None

    @property
    def size_bytes(self) -> int:
        """The size of what was pushed."""
        return len(self.payload) + len(self.key or b"") + len(self.headers)


class PipeWriter(TopicWriter):
    """The writer of a pipe, which takes nothing any more once the pipe is gone."""

    _queue: str | None = None

    def close(self, queue: str, mark: bytes) -> bool:
        """Takes no more rows for a queue; False where some came since that mark."""
        with self._lock:
            if self.mark() != mark:
                return False
            self._queue = queue
            return True

    def _keys(
        self, stamper: Stamper, count: int, *, together: bool = False
    ) -> list[bytes]:
        if self._queue is not None:
            raise QueueNotFound(
                f"the pipe of queue {self._queue} that this push goes to is gone, as "
                f"its transaction pushed nothing there for {LENT_MS // 1000} s; push "
                f"in another transaction"
            )
        return super()._keys(stamper, count, together=together)


@attrs.define(eq=False)
class Pipe:
    """A pipe in memory; everything is changed under the lock of its queue.

    Items up to `read` were looked at: they are in `buffer`, leased, parked or gone.
    `settled` is the mark of the writer at the last look that came to the end. `blocked`
    is the pointer that stopped it. `undecided` counts the pushes of open transactions,
    and `reserved` names those that may still push, with the room that they were lent;
    `kept` is what all of them take, pushed or lent, whichever is more.
    `pushing` counts the items of plain pushes that are under way. `leased` items are in
    work; `unresolved` are all that were read and are not gone. Until `lent_until_ms`
    somebody may write whom nobody announced. `prefix` is the beginning of the keys of
    its rows. A pipe `is_plain` when it only ever took plain pushes, all by this
    process, and no write of its queue failed: then `seen` counts all that was read, and
    no row is left when its items are gone. Its own row is lost, `is_row_lost`, where
    the write failed that began it.
    """

    id: int
    name: PipeName
    kind: PipeKind
    priority: int
    created_ms: int
    due_ms: int
    pusher: int = 0
    counts: PopCounts = attrs.field(factory=PopCounts)
    pushed: int = 0
    is_open: bool = True
    is_final: bool = False
    is_plain: bool = False
    seen: int = 0
    head: MessageId = FIRST
    read: MessageId = FIRST
    settled: bytes = b""
    blocked: int | None = None
    pushing: int = 0
    leased: int = 0
    unresolved: int = 0
    removals: int = 0
    lent_until_ms: int = 0
    buffer: deque[Item] = attrs.field(factory=deque)
    undecided: dict[int, int] = attrs.field(factory=dict)
    reserved: dict[int, int] = attrs.field(factory=dict)
    kept: int = 0
    is_row_lost: bool = False
    owner: str | None = None
    owned_until_ms: int = 0
    handle: TopicHandle | None = None
    plain_handle: TopicHandle | None = None
    writer: PipeWriter | None = None
    prefix: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.prefix = pipe_prefix(self.name, self.name.generation, self.id)

    @property
    def waiting(self) -> int:
        """The number of committed items that nobody has."""
        return self.pushed - self.counts.removed - self.leased

    @property
    def occupied(self) -> int:
        """The number of items that were pushed, or that room is kept for."""
        return self.pushed + self.pushing + self.kept

    def _of(self, pointer: int) -> int:
        """Returns what a transaction takes: what it pushed, or was lent room for."""
        return max(self.reserved.get(pointer, 0), self.undecided.get(pointer, 0))

    def lend(self, pointer: int, items: int) -> None:
        """Keeps room for a transaction, beside what it has."""
        before = self._of(pointer)
        self.reserved[pointer] = self.reserved.get(pointer, 0) + items
        self.kept += self._of(pointer) - before

    def hold(self, pointer: int, items: int) -> None:
        """Counts items of a transaction until it is over; none: all were taken back."""
        before = self._of(pointer)
        if items:
            self.undecided[pointer] = self.undecided.get(pointer, 0) + items
        else:
            self.undecided.pop(pointer, None)
        self.kept += self._of(pointer) - before

    def let_go(self, pointer: int) -> int:
        """Forgets a transaction that is over; returns how many items it pushed."""
        self.kept -= self._of(pointer)
        self.reserved.pop(pointer, None)
        return self.undecided.pop(pointer, 0)

    @property
    def takes_pushes(self) -> bool:
        """True while something may still be written to it."""
        return bool(self.is_open or self.pushing or self.reserved or self.undecided)

    @property
    def is_untouched(self) -> bool:
        """True when nobody pushes to it any more, and nobody has popped from it yet."""
        return not (
            self.takes_pushes
            or self.removals
            or self.seen
            or self.buffer
            or self.unresolved
            or self.lent_until_ms
            or self.is_row_lost
            or self.settled
            or self.blocked is not None
            or self.read != FIRST
        )

    def is_left(self, since_ms: int) -> bool:
        """Tells whether an empty pipe took no push since a time, and none is coming."""
        is_empty = not (self.pushing or self.reserved or self.undecided)
        if not is_empty or self.unresolved or self.pushed > self.counts.removed:
            return False
        return max(self.created_ms, self.read.publish_time_ms) <= since_ms

    @property
    def is_drained(self) -> bool:
        """True when all was read, and nothing can be written to it any more."""
        is_read = self.blocked is None and not self.buffer
        return is_read and not self.takes_pushes and self.settled == self.mark()

    def close(self, queue: str) -> bool:
        """Ends a drained pipe of a queue; False where something has just come to it."""
        return self.writer is None or self.writer.close(queue, self.settled)

    @property
    def has_nothing_unread(self) -> bool:
        """True when no row has to be read to know that there is no other item.

        What is being pushed is counted by the step after it is on disk.
        """
        return self.seen == self.pushed and self.is_quiet

    @property
    def is_quiet(self) -> bool:
        """True for a plain pipe that no transaction may push to."""
        return self.is_plain and not (self.reserved or self.undecided)

    @property
    def is_idle(self) -> bool:
        """True for a pipe that has nothing to read now, but may have soon."""
        return (
            self.seen == self.pushed
            and self.is_plain
            and (self.is_open or self.pushing > 0)
            and not (self.buffer or self.reserved or self.undecided)
        )

    def write(self) -> Write:
        """Makes the row of the pipe as it is now."""
        value = pipe_value(
            (self.kind, self.priority, self.created_ms, self.due_ms),
            self.pushed if self.is_final else NOT_FINAL,
            self.pusher,
            self.counts,
            self.head,
        )
        return PIPE + self.prefix, value

    def mark(self) -> bytes:
        """Returns the key before which all rows can be read."""
        return LAST.row_key if self.handle is None else self.handle.writer.mark()


class PipeCounters(TopicCounters):
    """The counters of a pipe, which also know what of it is committed."""

    def __init__(
        self, latencies: Latencies, on_push: Callable[[int | None, int], object]
    ) -> None:
        super().__init__(latencies)
        self._on_push = on_push

    def published(self, messages: int, size_bytes: int, took_s: float) -> None:
        """Counts items that are committed."""
        super().published(messages, size_bytes, took_s)
        self._on_push(None, messages)

    def flushed(
        self, pointer: int, messages: int, size_bytes: int, took_s: float
    ) -> None:
        """Counts items whose transaction is not decided."""
        super().published(messages, size_bytes, took_s)
        self._on_push(pointer, messages)

    def referred(self, pointer: int, messages: int) -> None:
        """Counts stored items whose transaction is not decided."""
        self._on_push(pointer, messages)

    def rolled_back(self, pointer: int) -> None:
        """Forgets the items of a transaction that was rolled back."""
        super().rolled_back(pointer)
        self._on_push(pointer, 0)


def opened(pipe: Pipe, writer: PipeWriter, counters: PipeCounters) -> TopicHandle:
    """Gives a pipe its writer, and returns what publishes to it."""
    topic = PipeTopic(pipe.name, pipe.name.generation, MAX_TTL_S)
    pipe.handle, pipe.writer = TopicHandle(topic, writer, counters), writer
    return pipe.handle
