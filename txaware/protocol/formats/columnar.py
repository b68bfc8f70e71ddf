"""Pages of messages as columns, for readers that make tables of them.

A page is an array of pieces in Avro. A piece has all its ids in one value and all its
payloads in another. A third tells where each payload begins, and where the last one
ends, as 32-bit numbers, the low byte first. Arrow keeps columns in the same way, so
that nobody makes a message.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial

import attrs

from txaware.errors import BadRequest
from txaware.model.avro_items import long_bytes
from txaware.model.labels import Labels, part_of, size_bytes_of
from txaware.model.messages import ID_BYTES, BlockedBy, Message, MessageId, PageEnd
from txaware.protocol.formats.avro_reading import Cursor, read, read_end, read_items
from txaware.protocol.formats.avro_writing import (
    FIRST,
    OwnPage,
    block,
    data_bytes,
    labels_of,
    optional,
)
from txaware.protocol.formats.label_columns import (
    PLACE_BYTES,
    places_of,
    read_labels,
    write_labels,
)

_ONE = long_bytes(1)


@attrs.frozen
class ColumnPiece:
    """Some messages: their ids, and their payloads with the places of these."""

    ids: bytes
    places: bytes
    payloads: bytes
    labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.ids) // ID_BYTES

    @property
    def size_bytes(self) -> int:
        """The size of all payloads, keys and headers."""
        return len(self.payloads) + size_bytes_of(self.labels)

    def id_at(self, index: int) -> bytes:
        """Returns one of the ids; backwards from -1."""
        start = (index % len(self)) * ID_BYTES
        return self.ids[start : start + ID_BYTES]

    def before(self, stop: bytes) -> "ColumnPiece":
        """Returns the messages whose ids are below `stop`; ids rise."""
        count = bisect_left(range(len(self)), stop, key=self.id_at)
        places = self.places[: PLACE_BYTES * (count + 1)]
        end = int.from_bytes(places[-PLACE_BYTES:], "little")
        ids, payloads = self.ids[: count * ID_BYTES], self.payloads[:end]
        return ColumnPiece(ids, places, payloads, part_of(self.labels, 0, count))


@attrs.frozen
class ColumnarPage:
    """The answer to a poll, as columns; see `Page`."""

    pieces: list[ColumnPiece]
    next: MessageId
    blocked_by: BlockedBy | None
    skipped_before: int | None

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


class ColumnarWriter(OwnPage):
    """Writes what `decode_columnar_page` reads."""

    takes_encoded = False

    def messages(self, messages: list[Message]) -> bytes:
        """Writes one piece."""
        ids = b"".join([message.id for message in messages])
        payloads = [message.payload for message in messages]
        return self.columns(ids, payloads, labels_of(messages))

    def encoded(self, count: int, data: bytes) -> bytes:
        """Writes one piece, of messages in Avro."""
        return self.messages(read_items(Cursor(data, what="the messages"), count))

    def columns(
        self, ids: bytes, payloads: Sequence[bytes], labels: Labels | None
    ) -> bytes:
        """Writes one piece, of messages that are taken apart already."""
        if not payloads:
            return b""
        places = places_of([*map(len, payloads)])
        columns = (ids, places, b"".join(payloads))
        return block(1, b"".join(map(data_bytes, columns)) + self.label_bytes(labels))

    def label_bytes(self, labels: Labels | None) -> bytes:
        """Writes no keys and headers: the format has none."""
        return b""


class LabelledColumnarWriter(ColumnarWriter):
    """Writes what `decode_labelled_columns` reads."""

    def label_bytes(self, labels: Labels | None) -> bytes:
        """Writes keys and headers."""
        return write_labels(labels)


class LabelledPage(OwnPage):
    """Blocks of items, and behind some of them the labels of all their messages."""

    def messages(self, messages: list[Message]) -> bytes:
        """Writes one piece."""
        return self.labelled(super().messages(messages), labels_of(messages))

    def labelled(self, blocks: bytes, labels: Labels | None) -> bytes:
        """Writes one piece, of blocks."""
        if not blocks:
            return b""
        return b"".join((_ONE, blocks, FIRST, write_labels(labels)))


class StablePage(LabelledPage):
    """The same, with the last stable position at its end."""

    def end(self, end: PageEnd) -> bytes:
        """Writes the end of the array, and the four fields behind it."""
        return super().end(end) + optional(end.last_stable, data_bytes)


def decode_columnar_page(body: bytes) -> ColumnarPage:
    """Reads the answer to a poll for columns without keys and headers."""
    return read(body, partial(_read_page, labelled=False), what="the page")


def decode_labelled_columns(body: bytes) -> ColumnarPage:
    """Reads the answer to a poll for columns."""
    return read(body, partial(_read_page, labelled=True), what="the page")


def _read_page(cursor: Cursor, *, labelled: bool) -> ColumnarPage:
    pieces = [
        _read_piece(cursor, labelled=labelled)
        for count in cursor.blocks()
        for _ in range(count)
    ]
    return ColumnarPage(pieces, *read_end(cursor)[:3])


def _read_piece(cursor: Cursor, *, labelled: bool) -> ColumnPiece:
    piece = ColumnPiece(cursor.data(), cursor.data(), cursor.data())
    count, rest = divmod(len(piece.ids), ID_BYTES)
    if rest or not count or len(piece.places) != PLACE_BYTES * (count + 1):
        raise BadRequest(
            f"{cursor.what} has a piece with {len(piece.ids)} bytes of ids and "
            f"{len(piece.places)} bytes of places"
        )
    first, last = piece.places[:PLACE_BYTES], piece.places[-PLACE_BYTES:]
    if any(first) or int.from_bytes(last, "little") != len(piece.payloads):
        raise BadRequest(f"{cursor.what} has a piece whose payloads do not fill it")
    return attrs.evolve(piece, labels=read_labels(cursor, count)) if labelled else piece
