"""Selects the rows that a reader gets, up to the limits or where the judge stops."""

from typing import Protocol

import attrs

from txaware.messages import BlockedBy, Message, MessageId
from txaware.service.visibility import SKIP, STOP, Visibility
from txaware.store.columns import EXPIRY, RECEIPTS, decode_expiry, decode_receipts
from txaware.store.message_table import Block
from txaware.store.payload_table import PayloadTable

READ_ROWS = 1000
_AFTER_ALL = b"\xff" * 10


class Found(Protocol):
    """The place that a selection adds messages to, one by one or in whole rows."""

    def add(self, message: Message) -> None:
        """Adds a message."""

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, none of which is a reference."""

    def add_payloads(
        self, row_key: bytes, keys: list[bytes], payloads: list[bytes]
    ) -> None:
        """Adds the payloads of one reference, or a part of them."""


class Messages(list[Message]):
    """A list of messages, as a selection fills it."""

    def add(self, message: Message) -> None:
        """Adds a message."""
        self.append(message)

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds the messages of some rows."""
        self += block.messages(first, last)

    def add_payloads(
        self, row_key: bytes, keys: list[bytes], payloads: list[bytes]
    ) -> None:
        """Adds messages of one reference."""
        new = tuple.__new__
        self += [
            new(Message, (MessageId(row_key + key), payload))
            for key, payload in zip(keys, payloads, strict=True)
        ]


@attrs.frozen
class Query:
    """The range and the limits of a poll: `start` is an id, exclusive or inclusive.

    `before` is the greatest id below the requested start. The time to live may move
    `start` behind that. Below the row key `cached_from` the cache is not trusted.
    The first message may be above `limit_bytes`, but not above `most_bytes`.
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
    most_bytes: float = float("inf")

    @property
    def first_key(self) -> bytes:
        """The least row key that may have a message at or after the start."""
        key = self.start.row_key
        return key + b"\0" if self.start.payload_key == _AFTER_ALL else key

    def asks_for(self, message: Message) -> bool:
        """Tells whether a message in the row of the start is at or after the start."""
        return message.id > self.start or (self.inclusive and message.id == self.start)


class Selection:
    """The progress of one read: counts so far, and the id where the next poll goes on.

    `is_at_end` is True when the rows ended it, and neither a limit nor the judge.
    """

    def __init__(
        self, query: Query, judge: Visibility, payloads: PayloadTable, found: Found
    ) -> None:
        self.count = 0
        self.size_bytes = 0
        self.blocked_by: BlockedBy | None = None
        self.next = query.before
        self.is_at_end = False
        self.is_paused = False
        self._query = query
        self._judge = judge
        self._payloads = payloads
        self._found = found

    @property
    def room(self) -> int:
        """The number of messages that are still asked for."""
        return self._query.limit - self.count

    @property
    def has_room(self) -> bool:
        """True when there is room for another message, if it is small enough."""
        return self.room > 0 and (
            self.size_bytes < self._query.limit_bytes or not self.count
        )

    def take(self, block: Block) -> bool:
        """Takes rows while there is room; False when the page ends within them."""
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
        """Tells whether all rows are messages to deliver, within the limit of bytes."""
        if block.more or self.size_bytes + block.size_bytes > self._query.limit_bytes:
            return False
        return block.pointers is None or self._judge.delivers_all(block.pointers)

    def _take_all(self, block: Block, first: int) -> bool:
        last = min(len(block), first + self.room)
        if first < last:
            self._found.add_rows(block, first, last)
            self.count += last - first
            self.size_bytes += sum(map(len, block.payloads[first:last]))  # type: ignore[arg-type]
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
        """Delivers the payloads of a reference; False when the page is full before."""
        start = b"" if after is None else after.payload_key
        for keys, payloads in self._payloads.payloads(
            self._query.prefix,
            pointer,
            start=start if inclusive or not start else start + b"\0",
            attempts=None if receipts is None else decode_receipts(receipts),
            now_ms=self._query.now_ms,
            piece=min(self.room + 1, READ_ROWS),
        ):
            if not self._append_all(row_key, keys, payloads):
                return False
        return True

    def _append_all(
        self, row_key: bytes, keys: list[bytes], payloads: list[bytes]
    ) -> bool:
        """Adds payloads of a reference; False where the page has no room for all."""
        last = min(len(keys), self.room)
        size_bytes = self.size_bytes + sum(map(len, payloads[:last]))
        if size_bytes >= self._query.limit_bytes:
            return all(
                self._append(Message(MessageId(row_key + key), payload))
                for key, payload in zip(keys, payloads, strict=True)
            )
        if last:
            self._found.add_payloads(row_key, keys[:last], payloads[:last])
            self.count += last
            self.size_bytes = size_bytes
            self.next = MessageId(row_key + keys[last - 1])
        return last == len(keys)

    def _append(self, message: Message) -> bool:
        """Adds a message; False where the page has no room for it."""
        size_bytes = self.size_bytes + len(message.payload)
        if not self.has_room or (
            size_bytes > self._query.limit_bytes
            and (self.count or size_bytes > self._query.most_bytes)
        ):
            return False
        self._found.add(message)
        self.count += 1
        self.size_bytes = size_bytes
        self.next = message.id
        return True
