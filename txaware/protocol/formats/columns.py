"""Pages of messages as columns, for readers that make tables of them.

A page is a list of pieces. A piece has all its ids in one value and all its payloads in
another. A third tells where each payload begins, and where the last one ends, as 32-bit
numbers, the low byte first. Arrow keeps columns in the same way, so that nobody makes a
message.
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Self

import attrs

from txaware.errors import BadRequest
from txaware.model.labels import Labels, part_of, size_bytes_of
from txaware.model.messages import ID_BYTES, BlockedBy, MessageId

PLACE_BYTES = 4


def places_of(values: Sequence[bytes]) -> bytes:
    """Returns where each value begins, and the last one ends, in 32 bits each."""
    ends = accumulate(map(len, values), initial=0)
    return struct.pack(f"<{len(values) + 1}i", *ends)


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

    def checked(self) -> Self:
        """Returns the piece; raises `BadRequest` for columns that fit no messages."""
        count, rest = divmod(len(self.ids), ID_BYTES)
        if rest or not count or len(self.places) != PLACE_BYTES * (count + 1):
            raise BadRequest(
                f"the page has a piece with {len(self.ids)} bytes of ids and "
                f"{len(self.places)} bytes of places"
            )
        first, last = self.places[:PLACE_BYTES], self.places[-PLACE_BYTES:]
        if any(first) or int.from_bytes(last, "little") != len(self.payloads):
            raise BadRequest("the page has a piece whose payloads do not fill it")
        return self


@attrs.frozen
class ColumnarPage:
    """The answer to a poll, as columns; see `Page`."""

    pieces: list[ColumnPiece]
    next: MessageId
    blocked_by: BlockedBy | None
    skipped_before: int | None

    def __len__(self) -> int:
        return sum(map(len, self.pieces))
