"""Walks over the committed messages of a topic, those that have expired included."""

from collections.abc import Iterator
from typing import NamedTuple

from txaware.model.labels import NO_HEADERS
from txaware.model.messages import Message, MessageId
from txaware.service.read.scan import first_key
from txaware.service.visibility import SKIP, STOP, Visibility
from txaware.store.columns import (
    EXPIRY,
    HEADERS,
    KEY,
    RECEIPTS,
    decode_expiry,
)
from txaware.store.message_table import Block, MessageTable
from txaware.store.packed_rows import PackedSpan
from txaware.store.payload_table import PayloadTable

READ_ROWS, READ_BYTES = 1000, 1 << 20


class Walked(NamedTuple):
    """A message on the way, and the time at which it expires, or None."""

    message: Message
    expiry_ms: int | None


class WalkedRow(NamedTuple):
    """A row on the way, with its messages; one that never commits has none.

    A batch of which only a part is asked for comes as rows of one message each.
    """

    key: bytes
    is_committed: bool
    messages: Iterator[Walked]


class KeyedRows:
    """The rows of topics as a snapshot sees them, up to the first undecided one.

    A poll passes over what has expired. Whoever looks for the newest message of a key
    has to see that, too: an earlier one must not take its place.
    """

    def __init__(self, messages: MessageTable, payloads: PayloadTable) -> None:
        self._messages = messages
        self._payloads = payloads

    def walk(
        self, prefix: bytes, judge: Visibility, *, start: MessageId, stop: bytes
    ) -> Iterator[WalkedRow]:
        """Yields the rows behind the id `start` and before `stop`, in order.

        The messages of a row are to be taken before the next row is.
        """
        key = first_key(start)
        found: Iterator[Walked]
        while True:
            block = self._messages.read(
                prefix, start=key, stop=stop, limit=READ_ROWS, max_bytes=READ_BYTES
            )
            spans = {span.first: span for span in block.spans}
            within = 0
            for index, row_key in enumerate(block.keys):
                if index < within:
                    continue
                if (span := spans.get(index)) is not None:
                    within = span.last
                    found = self._batch(prefix, block, span, start)
                    yield WalkedRow(span.row_key, True, found)
                    continue
                pointer = None if block.pointers is None else block.pointers[index]
                verdict = judge.verdict(pointer)
                if verdict == STOP:
                    return
                found = iter(())
                if verdict != SKIP:
                    found = self._messages_of(prefix, block, index, start)
                yield WalkedRow(row_key, verdict != SKIP, found)
            if not len(block):
                return
            key = block.keys[-1] + b"\0"

    def _batch(
        self, prefix: bytes, block: Block, span: PackedSpan, start: MessageId
    ) -> Iterator[Walked]:
        for index in range(span.first, span.last):
            yield from self._messages_of(prefix, block, index, start)

    def _messages_of(
        self, prefix: bytes, block: Block, index: int, start: MessageId
    ) -> Iterator[Walked]:
        more = block.more.get(index, {})
        message = block.message(index)
        if message is not None:
            if message.id > start:
                expiry = more.get(EXPIRY)
                yield Walked(message, None if expiry is None else decode_expiry(expiry))
            return
        assert block.pointers is not None
        row_key, receipts = block.keys[index], more.get(RECEIPTS)
        behind = start.payload_key + b"\0" if row_key == start.row_key else b""
        pointer = abs(block.pointers[index] or 0)
        for key, columns in self._payloads.named_rows(
            prefix, pointer, receipts, start=behind
        ):
            named = columns.more
            expiry = named.get(EXPIRY)
            columns_of = (
                MessageId(row_key + key),
                columns.payload or b"",
                named.get(KEY),
                named.get(HEADERS, NO_HEADERS),
            )
            stored: Message = tuple.__new__(Message, columns_of)
            yield Walked(stored, None if expiry is None else decode_expiry(expiry))
