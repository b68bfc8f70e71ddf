"""Pages of messages as columns, for readers that make tables of them.

A page is an array of pieces in Avro. A piece has all its ids in one value and all its
payloads in another. A third tells where each payload begins, and where the last one
ends, as 32-bit numbers, the low byte first. Arrow keeps columns in the same way, so
that nobody makes a message.
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

import attrs

from txaware.errors import BadRequest
from txaware.http.wire.avro_reading import Cursor, read, read_end, read_items
from txaware.http.wire.avro_writing import OwnPage, block, data_bytes
from txaware.messages import ID_BYTES, BlockedBy, Message, MessageId

PLACE_BYTES = 4


@attrs.frozen
class ColumnPiece:
    """Some messages: their ids, and their payloads with the places of these."""

    ids: bytes
    places: bytes
    payloads: bytes

    def __len__(self) -> int:
        return len(self.ids) // ID_BYTES

    def id_at(self, index: int) -> bytes:
        """Returns one of the ids; backwards from -1."""
        start = (index % len(self)) * ID_BYTES
        return self.ids[start : start + ID_BYTES]

    def before(self, stop: bytes) -> "ColumnPiece":
        """Returns the messages whose ids are below `stop`; ids rise."""
        count = bisect_left(range(len(self)), stop, key=self.id_at)
        places = self.places[: PLACE_BYTES * (count + 1)]
        end = int.from_bytes(places[-PLACE_BYTES:], "little")
        return ColumnPiece(self.ids[: count * ID_BYTES], places, self.payloads[:end])


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
        return self.columns(ids, [message.payload for message in messages])

    def encoded(self, count: int, data: bytes) -> bytes:
        """Writes one piece, of messages in Avro."""
        return self.messages(read_items(Cursor(data, what="the messages"), count))

    def columns(self, ids: bytes, payloads: Sequence[bytes]) -> bytes:
        """Writes one piece, of messages that are taken apart already."""
        if not payloads:
            return b""
        places = array("i", accumulate(map(len, payloads), initial=0))
        if sys.byteorder == "big":
            places.byteswap()
        columns = (ids, places.tobytes(), b"".join(payloads))
        return block(1, b"".join(map(data_bytes, columns)))


def decode_columnar_page(body: bytes) -> ColumnarPage:
    """Reads the answer to a poll."""
    return read(body, _read_page, what="the page")


def _read_page(cursor: Cursor) -> ColumnarPage:
    pieces = [_read_piece(cursor) for count in cursor.blocks() for _ in range(count)]
    return ColumnarPage(pieces, *read_end(cursor))


def _read_piece(cursor: Cursor) -> ColumnPiece:
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
    return piece
