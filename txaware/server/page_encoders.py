"""Messages of a poll, gathered in the form that its format writes best."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from txaware.model.labels import Labels, part_of
from txaware.model.messages import NO_PAYLOAD_ROW, Message
from txaware.protocol.formats import ColumnarWriter, PageWriter
from txaware.protocol.formats.interfaces import ItemForm
from txaware.protocol.formats.msgpack_format import ITEMS, RowsWriter, labels_of
from txaware.service.read.scan import Found, Messages
from txaware.store.message_table import Block, Encoded
from txaware.store.payload_table import StoredPayloads

# A page is read and sent in pieces of at most that many messages.
PIECE_MESSAGES = 1000


class Gathered(Found, Protocol):
    """The messages of one piece of a page, at most `piece_messages`.

    `is_new` is True when any of them had to be encoded just now.
    """

    piece_messages: int
    is_new: bool

    def written(self) -> bytes:
        """Writes all of it, as the format has it."""


def gathering(writer: PageWriter) -> Callable[[], Gathered]:
    """Returns a maker of empty ones, one for each piece of a page."""
    if isinstance(writer, ColumnarWriter):
        return partial(ColumnEncoder, writer)
    if isinstance(writer, RowsWriter) and writer.compressions:
        return partial(ItemsAndBatches, writer)
    if writer.items is not None:
        return partial(EncodedItems, writer, writer.items)
    return partial(ListedMessages, writer)


class ListedMessages(Messages):
    """Messages one by one, for a format that takes nothing else."""

    piece_messages = PIECE_MESSAGES
    is_new = False

    def __init__(self, writer: PageWriter) -> None:
        super().__init__()
        self._writer = writer

    def written(self) -> bytes:
        """Writes the messages; nothing for none."""
        return self._writer.messages(self) if self else b""


class EncodedItems:
    """Encoded items in blocks of bounded size, for a format that takes those."""

    piece_messages = PIECE_MESSAGES
    compressions: frozenset[str] = frozenset()

    def __init__(self, writer: PageWriter, form: ItemForm) -> None:
        self.is_new = False
        self._writer, self._form = writer, form
        self._begin_items()

    def _begin_items(self) -> None:
        self.blocks: list[tuple[int, bytes]] = []
        self._labels: list[tuple[Labels | None, int]] = []
        self._loose: list[bytes] = []
        self._loose_bytes = 0

    def add(self, message: Message) -> None:
        """Adds a message."""
        self._labels.append((labels_of([message]), 1))
        item = self._form.item(message.id, message.payload)
        self._loose.append(item)
        self._loose_bytes += len(item)
        if self._loose_bytes >= self._form.block_bytes:
            self._close()

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, cut into blocks."""
        self._close()
        self._labels.append((part_of(block.labels, first, last), last - first))
        encoded, at = block.encoded, block.encoded_from
        self.is_new = self.is_new or not encoded.is_in(self._form)
        self.blocks += encoded.cut(self._form, at + first, at + last)

    def add_payloads(self, row_key: bytes, stored: StoredPayloads) -> None:
        """Adds what one reference stands for, cut into blocks."""
        self._close()
        self._labels.append((stored.labels, len(stored)))
        ids = [row_key + key for key in stored.keys]
        items = Encoded(ids, stored.payloads, behind=b"")
        self.blocks += items.cut(self._form, 0, len(ids))

    def written(self) -> bytes:
        """Writes one block after the other."""
        self._close()
        return self._writer.blocks(self.blocks, Labels.joined(self._labels))

    def _close(self) -> None:
        """Ends the block that is open."""
        if self._loose:
            self.blocks.append((len(self._loose), b"".join(self._loose)))
            self._loose, self._loose_bytes = [], 0


class ItemsAndBatches(EncodedItems):
    """The same, with whole batches between the items, as they are stored."""

    def __init__(self, writer: RowsWriter) -> None:
        super().__init__(writer, ITEMS)
        self.compressions = writer.compressions
        self._batches = writer
        self._parts: list[bytes] = []

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows; batches that are among them as a whole go as they are."""
        for span in block.spans:
            is_whole = first <= span.first and span.last <= last
            if not is_whole or span.packed.compression not in self.compressions:
                continue
            self._add_items(block, first, span.first)
            self._parts.append(super().written())
            self._begin_items()
            first_id = block.keys[span.first] + NO_PAYLOAD_ROW
            self._parts.append(self._batches.batch(first_id, span.packed))
            first = span.last
        self._add_items(block, first, last)

    def _add_items(self, block: Block, first: int, last: int) -> None:
        if first < last:
            super().add_rows(block, first, last)

    def written(self) -> bytes:
        """Writes all in order."""
        return b"".join((*self._parts, super().written()))


class ColumnEncoder:
    """Ids and payloads apart, without a step in Python for each message."""

    # A client that asks for columns reads much, and each piece costs a thread's turn.
    piece_messages = 10_000
    is_new = False
    compressions: frozenset[str] = frozenset()

    def __init__(self, writer: ColumnarWriter) -> None:
        self._writer = writer
        self._ids: list[bytes] = []
        self._payloads: list[bytes] = []
        self._labels: list[tuple[Labels | None, int]] = []

    def add(self, message: Message) -> None:
        """Adds a message."""
        self._labels.append((labels_of([message]), 1))
        self._ids.append(message.id)
        self._payloads.append(message.payload)

    def add_rows(self, block: Block, first: int, last: int) -> None:
        """Adds some rows, none of which is a reference."""
        self._labels.append((part_of(block.labels, first, last), last - first))
        keys, payloads = block.keys[first:last], block.payloads[first:last]
        self._ids += (NO_PAYLOAD_ROW.join(keys), NO_PAYLOAD_ROW)
        self._payloads += payloads  # type: ignore[arg-type]

    def add_payloads(self, row_key: bytes, stored: StoredPayloads) -> None:
        """Adds what one reference stands for."""
        self._labels.append((stored.labels, len(stored)))
        self._ids += (row_key, row_key.join(stored.keys))
        self._payloads += stored.payloads

    def written(self) -> bytes:
        """Writes one piece; nothing for no message."""
        labels = Labels.joined(self._labels)
        return self._writer.columns(b"".join(self._ids), self._payloads, labels)
