"""One look at a topic: reads its rows, and adds those that a reader gets."""

from typing import Protocol

import attrs

from txaware.model.messages import (
    NO_PAYLOAD_ROW,
    BlockedBy,
    Message,
    MessageId,
    PageEnd,
    in_partition,
)
from txaware.service.read.scan_cache import ScanCache
from txaware.service.topic_handles import TopicHandle
from txaware.service.visibility import SKIP, STOP, ForeignPointers, Visibility
from txaware.store.columns import EXPIRY, RECEIPTS, decode_expiry, decode_receipts
from txaware.store.keys import row_key
from txaware.store.message_table import Block, MessageTable
from txaware.store.packed_rows import PackedSpan
from txaware.store.payload_table import PayloadTable, StoredPayloads

READ_ROWS, READ_BYTES = 1000, 1 << 20
# So many rows are judged at most by a quick read, and of its fresh rows.
QUICK_ROWS, FRESH_ROWS = 4000, 100
_AFTER_ALL = b"\xff" * 10


class Found(Protocol):
    """The place that a selection adds messages to, one by one or in whole rows.

    It takes whole batches of these `compressions` as they are stored.
    """

    compressions: frozenset[str]

    def add(self, message: Message) -> None:
        """Adds a message."""

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, none of which is a reference."""

    def add_payloads(self, row_key: bytes, stored: StoredPayloads) -> None:
        """Adds the payloads of one reference, or a part of them."""


class Messages(list[Message]):
    """A list of messages, as a selection fills it; they are those of a `partition`."""

    partition = 0
    compressions: frozenset[str] = frozenset()

    def add(self, message: Message) -> None:
        """Adds a message."""
        if self.partition:
            self += in_partition((message,), self.partition)
        else:  # the most, and as fast as can be
            self.append(message)

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds the messages of some rows."""
        self += block.messages(first, last, self.partition)

    def add_payloads(self, row_key: bytes, stored: StoredPayloads) -> None:
        """Adds messages of one reference."""
        self += stored.messages(row_key, self.partition)


@attrs.frozen
class Query:
    """The range and the limits of a poll: `start` is an id, exclusive or inclusive.

    `before` is the greatest id below the requested start. The time to live may move
    `start` behind that; then `skipped_before` is the time that it moved to. Below the
    row key `cached_from` the cache is not trusted. Below `keyless_from` a message
    without a key has expired.
    """

    prefix: bytes
    before: MessageId
    start: MessageId
    inclusive: bool
    stop: bytes
    limit: int
    limit_bytes: int
    now_ms: int
    cached_from: bytes = b""
    skipped_before: int | None = None
    keyless_from: bytes = b""

    @property
    def first_key(self) -> bytes:
        """The least row key that may have a message at or after the start."""
        return first_key(self.start)

    def asks_for(self, message: Message) -> bool:
        """Tells whether a message in the row of the start is at or after the start."""
        return message.id > self.start or (self.inclusive and message.id == self.start)


def first_key(start: MessageId) -> bytes:
    """Returns the least row key that may have a message at or after an id."""
    key = start.row_key
    return key + b"\0" if start.payload_key == _AFTER_ALL else key


class CachedRows:
    """The message rows of all topics, read through the cache."""

    def __init__(self, messages: MessageTable, cache: ScanCache) -> None:
        self._messages = messages
        self._cache = cache

    def first_key(self, query: Query) -> bytes:
        """Returns the first key to read; leaves out the start's row if it was read."""
        key = query.first_key
        if query.inclusive or query.start.payload_key != NO_PAYLOAD_ROW:
            return key
        return key + b"\0" if self._cache.has_message(query.prefix, key) else key

    def read(self, query: Query, start: bytes, room: int) -> tuple[Block, bool]:
        """Returns the next rows from `start` on, from the cache where it has them.

        It also tells whether there may be more behind them.
        """
        prefix, stop = query.prefix, query.stop
        # One more than there is room for: the first row may have been read before.
        limit = min(room, READ_ROWS) + 1
        begins = self._cache.start_of(prefix)
        uncached_until = max(query.cached_from, begins or b"")
        if start < uncached_until:
            block = self._from_table(prefix, start, min(stop, uncached_until), limit)
            if len(block) or stop <= uncached_until:
                return block, stop > uncached_until or _may_go_on(block, limit)
            start = uncached_until
        cached = self._cache.read(prefix, start, stop, limit)
        if cached is not None:
            return cached, True
        version = self._cache.version(prefix)
        block = self._from_table(prefix, start, stop, limit)
        self._cache.add(prefix, start, block, version)
        return block, _may_go_on(block, limit)

    def _from_table(
        self, prefix: bytes, start: bytes, stop: bytes, limit: int
    ) -> Block:
        return self._messages.read(
            prefix, start=start, stop=stop, limit=limit, max_bytes=READ_BYTES
        )

    def kept(self, query: Query, start: bytes, room: int) -> Block | None:
        """Returns the next rows without the disk; None where they are not in memory."""
        if not self.is_kept(query, start):
            return None
        limit = min(room + 1, READ_ROWS)
        return self._cache.read(query.prefix, start, query.stop, limit)

    def is_kept(self, query: Query, key: bytes) -> bool:
        """Tells whether the rows from a key on most likely need no disk."""
        return key >= query.cached_from and self._cache.has(query.prefix, key)

    def is_empty(self, query: Query) -> bool:
        """Tells whether there is no row to be judged."""
        block, more = self.read(query, self.first_key(query), 1)
        if len(block) == 1 and block.keys[0] == query.start.row_key:
            message = block.message(0)
            if message is not None and not query.asks_for(message):
                return not more or not len(
                    self.read(query, block.keys[0] + b"\0", 1)[0]
                )
        return not len(block)

    def recount(self) -> None:
        """Counts the memory of the cache anew, since rows in it were encoded."""
        self._cache.recount()


def _may_go_on(block: Block, limit: int) -> bool:
    """Tells whether a limit may have ended the read, and not the rows."""
    return len(block) >= limit or block.size_bytes >= READ_BYTES


class Scan:
    """A look at a topic at one moment: all its pieces are judged by one snapshot.

    `next` is the id where the next poll goes on. `count` and `size_bytes` add up the
    messages found so far. `seen` is the count of the topic's signal before the look. A
    look that `is_paused` needs the disk to go on. It is for one thread at a time.
    """

    # The bounds of the piece that is read now, counted from the begin of the look. Its
    # first message may be above `_limit_bytes`, but not above `_most_bytes`.
    _found: Found
    _count_before: int
    _limit: int
    _limit_bytes: int
    _most_bytes: float

    def __init__(
        self,
        rows: CachedRows,
        payloads: PayloadTable,
        place: TopicHandle,
        query: Query,
        judge: Visibility,
        *,
        seen: int,
        foreign_pointers: ForeignPointers,
        is_over: bool = False,
        is_judged: bool = False,
    ) -> None:
        self.place = place
        self.seen = seen
        self.next: MessageId = query.before
        self.skipped_before = query.skipped_before
        self.blocked_by: BlockedBy | None = None
        self.count = 0
        self.size_bytes = 0
        self.is_over = is_over
        self.is_paused = False
        self._stable = query.stop if is_over else None
        self._is_judged = is_judged
        self._rows = rows
        self._payloads = payloads
        self._query = query
        self._judge = judge
        self._foreign_pointers = foreign_pointers

    @property
    def end(self) -> PageEnd:
        """The end of the look, or the place where it stands now."""
        stable = self._stable if self._is_judged else None
        return PageEnd(
            self.next,
            self.blocked_by,
            self.skipped_before,
            None if stable is None else MessageId.of_row(stable),
        )

    @property
    def is_cached(self) -> bool:
        """True when the next piece most likely needs no disk."""
        return self._rows.is_kept(self._query, self._rows.first_key(self._query))

    def recount(self) -> None:
        """Has the cache count its memory anew, since rows were encoded."""
        self._rows.recount()

    def read(
        self,
        found: Found,
        *,
        limit: int | None = None,
        limit_bytes: int | None = None,
        quick: bool = False,
        fresh: bool = False,
    ) -> None:
        """Adds the next piece, by default all that is left; nothing once it is over.

        A `quick` read pauses before it would need the disk, or take long. `fresh` says
        that rows were written just now, and that some of them are surely in memory.
        """
        if self.is_over:
            return
        query, count, went_on = self._query, self.count, self.next
        left = query.limit - count
        left_bytes = max(1, query.limit_bytes - self.size_bytes)
        self._found = found
        self._count_before = count
        self._limit = count + (left if limit is None else min(left, limit))
        self._limit_bytes = self.size_bytes + min(left_bytes, limit_bytes or left_bytes)
        self._most_bytes = self.size_bytes + left_bytes if count else float("inf")
        self.is_paused = False
        is_at_end = self._read_piece(quick=quick, fresh=fresh)
        if self.blocked_by is not None:
            key = row_key(self.blocked_by.since_ms)
            self._foreign_pointers.note(self.blocked_by.pointer, query.prefix, key)
        self.is_over = not self.is_paused and (
            is_at_end
            or self.blocked_by is not None
            or self.count >= query.limit
            or self.count == count
            or self.size_bytes >= query.limit_bytes
        )
        if not self.is_over and self.next != went_on:
            self._query = attrs.evolve(query, start=self.next, inclusive=False)

    def _read_piece(self, *, quick: bool, fresh: bool) -> bool:
        """Takes rows up to the bounds of the piece; True where there are no more."""
        query, judged, more = self._query, 0, True
        key = self._rows.first_key(query)
        while more and self._has_room:
            is_fresh = fresh and not judged
            room = min(self._room, FRESH_ROWS) if is_fresh else self._room
            block: Block | None = None
            if not quick or is_fresh:
                block, more = self._rows.read(query, key, room)
            elif judged < QUICK_ROWS:
                block = self._rows.kept(query, key, room)
            # The payloads of a reference need the disk, too.
            if block is None or (quick and None in block.payloads):
                self.is_paused = True
                return False
            if not len(block):
                more = False
                break
            judged += len(block)
            if not self._take(block):
                return False
            last = block.keys[-1]
            if _is_next(last, query.stop):
                more = False  # nearly always, for who was woken by the last row
                break
            key = last + b"\0"
        if not more:
            self._stable = query.stop
        return self._has_room

    @property
    def _room(self) -> int:
        """The number of messages that this piece may still add."""
        return self._limit - self.count

    @property
    def _has_room(self) -> bool:
        """True when there is room for another message, if it is small enough."""
        return self.count < self._limit and (
            self.size_bytes < self._limit_bytes or self.count == self._count_before
        )

    def _take(self, block: Block) -> bool:
        """Takes rows while there is room; False when the page ends within them."""
        first = 0
        if block.keys[0] == self._query.start.row_key:
            if not self._take_first(block):
                return False
            first = 1
        if block.spans and self._found.compressions:
            return self._take_batches(block, first)
        if self._is_simple(block):
            return self._take_all(block, first)
        return all(
            self._has_room and self._take_row(block, index)
            for index in range(first, len(block))
        )

    def _take_batches(self, block: Block, first: int) -> bool:
        """Takes rows, and each batch as a whole that has room on the page.

        It may be more than the piece has room for, as it is not unpacked.
        """
        spans = {span.first: span for span in block.spans}
        while first < len(block):
            span = spans.get(first)
            if span is None or not self._takes_whole(block, span):
                if not (self._has_room and self._take_row(block, first)):
                    return False
                first += 1
                continue
            self._found.add_rows(block, first, span.last)
            self.count += span.packed.count
            self.size_bytes += span.packed.size_bytes
            first = span.last
            self.next = MessageId.of_row(block.keys[first - 1])
        return True

    def _takes_whole(self, block: Block, span: PackedSpan) -> bool:
        packed, query = span.packed, self._query
        return (
            self._has_room
            and packed.compression in self._found.compressions
            and self.count + packed.count <= query.limit
            and self.size_bytes + packed.size_bytes <= query.limit_bytes
            and block.keys[span.first] >= query.keyless_from
        )

    def _is_simple(self, block: Block) -> bool:
        """Tells whether all rows are messages to deliver, within the limit of bytes."""
        if block.keys[0] < self._query.keyless_from:
            return False
        if block.more or self.size_bytes + block.size_bytes > self._limit_bytes:
            return False
        return block.pointers is None or self._judge.delivers_all(block.pointers)

    def _take_all(self, block: Block, first: int) -> bool:
        last = min(len(block), first + self._room)
        if first < last:
            self._found.add_rows(block, first, last)
            self.count += last - first
            self.size_bytes += sum(map(len, block.payloads[first:last]))  # type: ignore[arg-type]
            if block.labels is not None:
                self.size_bytes += block.labels.part_bytes(first, last)
            self.next = MessageId.of_row(block.keys[last - 1])
        return last == len(block)

    def _take_first(self, block: Block) -> bool:
        """Takes the row of the start: all of it, the part behind it, or nothing."""
        query, message = self._query, block.message(0)
        if message is None:
            return self._take_row(
                block, 0, after=query.start, inclusive=query.inclusive
            )
        if query.asks_for(message):
            return self._take_row(block, 0)
        return True

    def _take_row(
        self,
        block: Block,
        index: int,
        *,
        after: MessageId | None = None,
        inclusive: bool = True,
    ) -> bool:
        key, message = block.keys[index], block.message(index)
        pointer = block.pointers[index] if block.pointers is not None else None
        verdict = self._judge.verdict(pointer)
        if verdict == STOP:
            since_ms = int.from_bytes(key[:8], "big")
            self.blocked_by = BlockedBy(abs(pointer or 0), since_ms)
            self._stable = key
            return False
        more = block.more.get(index, {})
        if message is None:
            if verdict != SKIP and not self._expand(
                key, abs(pointer or 0), more.get(RECEIPTS), after, inclusive=inclusive
            ):
                return False
            self.next = MessageId.after_payloads(key)
            return True
        expiry = more.get(EXPIRY)
        if (
            verdict != SKIP
            and not (expiry is not None and decode_expiry(expiry) <= self._query.now_ms)
            and not (message.key is None and key < self._query.keyless_from)
        ):
            return self._append(message)
        self.next = message.id
        return True

    def _expand(
        self,
        row_key: bytes,
        pointer: int,
        receipts: bytes | None,
        after: MessageId | None,
        *,
        inclusive: bool,
    ) -> bool:
        """Delivers the payloads of a reference; False when the page is full before."""
        start = b"" if after is None else after.payload_key
        for stored in self._payloads.payloads(
            self._query.prefix,
            pointer,
            start=start if inclusive or not start else start + b"\0",
            attempts=None if receipts is None else decode_receipts(receipts),
            now_ms=self._query.now_ms,
            piece=min(self._room + 1, READ_ROWS),
        ):
            if row_key < self._query.keyless_from:
                stored = stored.keyed()
            if not self._append_all(row_key, stored):
                return False
        return True

    def _append_all(self, row_key: bytes, stored: StoredPayloads) -> bool:
        """Adds payloads of a reference; False where the page has no room for all."""
        last = min(len(stored), self._room)
        fitting = stored if last == len(stored) else stored.part(0, last)
        size_bytes = self.size_bytes + fitting.size_bytes
        if size_bytes >= self._limit_bytes:
            return all(map(self._append, stored.messages(row_key)))
        if last:
            self._found.add_payloads(row_key, fitting)
            self.count += last
            self.size_bytes = size_bytes
            self.next = MessageId(row_key + stored.keys[last - 1])
        return last == len(stored)

    def _append(self, message: Message) -> bool:
        """Adds a message; False where the page has no room for it."""
        size_bytes = self.size_bytes + message.size_bytes
        if not self._has_room or (
            size_bytes > self._limit_bytes
            and (self.count > self._count_before or size_bytes > self._most_bytes)
        ):
            return False
        self._found.add(message)
        self.count += 1
        self.size_bytes = size_bytes
        self.next = message.id
        return True


def _is_next(key: bytes, stop: bytes) -> bool:
    """Tells whether no row fits between a row and the key before which a look ends."""
    if len(key) != len(stop):
        return False
    return int.from_bytes(stop, "big") - int.from_bytes(key, "big") == 1
