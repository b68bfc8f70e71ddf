"""A poll: from a start to a page, row by row as the reader may see them."""

import attrs

from txaware.messages import BlockedBy, Message, MessageId, Page
from txaware.service.judge import SKIP, STOP, Judge
from txaware.service.scan_cache import ScanCache
from txaware.tables.blocks import Block
from txaware.tables.columns import (
    EXPIRY,
    RECEIPTS,
    decode_expiry,
    decode_receipts,
)
from txaware.tables.message_table import MessageTable
from txaware.tables.payload_table import PayloadTable

READ_ROWS = 1000
READ_BYTES = 1 << 20
_NO_PAYLOAD, _AFTER_ALL = bytes(10), b"\xff" * 10


@attrs.frozen
class Query:
    """Where to begin, how far, how much: `start` is an id, exclusive or not.

    `before` is the greatest id below what was asked for, and `start` may be later, by
    the time to live. `cached_from` is the row key below which the cache is not trusted.
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

    @property
    def first_key(self) -> bytes:
        """The least row key that may have something at or after the start."""
        key = self.start.row_key
        return key + b"\0" if self.start.payload_key == _AFTER_ALL else key

    def asks_for(self, message: Message) -> bool:
        """Whether a message of the row that the start names is at or after it."""
        return message.id > self.start or (self.inclusive and message.id == self.start)


class Polling:
    """Reads rows through the cache and makes pages of them."""

    def __init__(
        self, messages: MessageTable, payloads: PayloadTable, cache: ScanCache
    ) -> None:
        self._messages = messages
        self._payloads = payloads
        self._cache = cache

    def page(
        self, query: Query, judge: Judge, *, skipped_before: int | None = None
    ) -> Page:
        """What the judge lets through, up to the limits or to where it stops."""
        making = _PageInMaking(query, judge, self._payloads)
        key, more = self._first_key(query), True
        while more and making.has_room:
            block, more = self._read(query, key, making.room)
            if not len(block) or not making.take(block):
                break
            key = block.keys[-1] + b"\0"
        return Page(
            making.messages,
            next_id=making.next,
            blocked_by=making.blocked_by,
            skipped_before=skipped_before,
        )

    def is_empty(self, query: Query) -> bool:
        """Whether no row is there to be judged."""
        block, more = self._read(query, self._first_key(query), 1)
        if len(block) == 1 and block.keys[0] == query.start.row_key:
            message = block.message(0)
            if message is not None and not query.asks_for(message):
                return not more or not len(
                    self._read(query, block.keys[0] + b"\0", 1)[0]
                )
        return not len(block)

    def _first_key(self, query: Query) -> bytes:
        """Leaves out the row that the start names where it is known to be behind it."""
        key = query.first_key
        if query.inclusive or query.start.payload_key != _NO_PAYLOAD:
            return key
        return key + b"\0" if self._cache.has_message(query.prefix, key) else key

    def _read(self, query: Query, start: bytes, room: int) -> tuple[Block, bool]:
        """The next rows from `start` on, from the cache where it has them.

        And whether there may be more behind them.
        """
        prefix, stop = query.prefix, query.stop
        # One more than there is room for: the first row may only be the one before.
        limit = min(room + 1, READ_ROWS)
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


def _may_go_on(block: Block, limit: int) -> bool:
    """Whether the limits may have ended what was read, and not the rows."""
    return len(block) >= limit or block.size_bytes >= READ_BYTES


class _PageInMaking:
    """What a page has so far, and where the next one goes on."""

    def __init__(self, query: Query, judge: Judge, payloads: PayloadTable) -> None:
        self.messages: list[Message] = []
        self.blocked_by: BlockedBy | None = None
        self.next = query.before
        self._query = query
        self._judge = judge
        self._payloads = payloads
        self._bytes = 0

    @property
    def room(self) -> int:
        return self._query.limit - len(self.messages)

    @property
    def has_room(self) -> bool:
        return self.room > 0 and (
            self._bytes < self._query.limit_bytes or not self.messages
        )

    def take(self, block: Block) -> bool:
        """Takes rows as far as they go; False when the page ends within them."""
        first = 0
        if block.keys[0] == self._query.start.row_key:
            if not self._take_first(block):
                return False
            first = 1
        if self._is_simple(block):
            return self._take_all(block, first)
        return all(
            self.has_room and self._take_row(block, index)
            for index in range(first, len(block))
        )

    def _is_simple(self, block: Block) -> bool:
        """Whether all its rows are messages that are delivered."""
        if block.more or self._bytes + block.size_bytes > self._query.limit_bytes:
            return False
        return block.pointers is None or self._judge.delivers_all(block.pointers)

    def _take_all(self, block: Block, first: int) -> bool:
        last = min(len(block), first + self.room)
        if first < last:
            self.messages += block.messages(first, last)
            self._bytes += block.size_bytes
            self.next = MessageId(block.keys[last - 1] + bytes(10))
        return last == len(block)

    def _take_first(self, block: Block) -> bool:
        """The row that the start names: all of it, what follows the start, or none."""
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
        if verdict != SKIP and not (
            expiry is not None and decode_expiry(expiry) <= self._query.now_ms
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
        """Delivers what a reference stands for; False when the page is full before."""
        start = b"" if after is None else after.payload_key
        for message in self._payloads.messages(
            self._query.prefix,
            pointer,
            row_key=row_key,
            start=start if inclusive or not start else start + b"\0",
            attempts=None if receipts is None else decode_receipts(receipts),
            now_ms=self._query.now_ms,
            piece=min(self.room + 1, READ_ROWS),
        ):
            if not self._append(message):
                return False
        return True

    def _append(self, message: Message) -> bool:
        """Adds a message; False where the page has no room for it."""
        size_bytes = self._bytes + len(message.payload)
        if not self.has_room or (
            self.messages and size_bytes > self._query.limit_bytes
        ):
            return False
        self.messages.append(message)
        self._bytes = size_bytes
        self.next = message.id
        return True
