"""The row in the store that says what a relay did with the rows of an outbox last."""

import struct
from collections.abc import Sequence
from typing import Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.participants.outbox_row import TOKEN_BYTES, Row

# The place and the token of a row.
Mark = tuple[int, bytes]

# An earlier version began with the place of a row, and so with a zero byte.
_VERSION = b"\x01"
_MARK = struct.Struct(f">q{TOKEN_BYTES}s")
# Whether the first and the last row tell of all between them, and how many marks.
_CARRIED = struct.Struct(">?I")
# A time, the bytes of a topic and of a reason, and how many marks.
_REFUSED = struct.Struct(">qIII")


@attrs.frozen
class Refused:
    """Rows for one topic or queue that cannot be carried over, why and since when."""

    topic: str
    marks: Sequence[Mark]
    reason: str
    since_ms: int

    def to_bytes(self) -> bytes:
        """Returns it as `Progress` writes it down."""
        topic, reason = self.topic.encode(), self.reason.encode(errors="replace")
        sizes = _REFUSED.pack(self.since_ms, len(topic), len(reason), len(self.marks))
        return b"".join([sizes, topic, reason, _packed(self.marks)])


@attrs.frozen
class Progress:
    """The rows that a relay's last transaction carried over, and those it refused.

    Whoever looks next removes the former from the outbox, and sets the latter aside.
    With `is_piece` the marks are those of the first and the last row of a piece.
    """

    carried: Sequence[Mark] = ()
    is_piece: bool = False
    refused: Sequence[Refused] = ()

    @classmethod
    def of(
        cls, rows: Sequence[Row], refused: Sequence[Refused], *, is_piece: bool
    ) -> Self:
        """Makes one of the rows that were carried over; `is_piece` if without gaps."""
        ends = [rows[0], rows[-1]] if is_piece and rows else rows
        return cls([mark_of(row) for row in ends], is_piece and bool(rows), refused)

    def to_bytes(self) -> bytes:
        """Returns it as the value of its row."""
        carried = _CARRIED.pack(self.is_piece, len(self.carried))
        refused = b"".join([one.to_bytes() for one in self.refused])
        return b"".join([_VERSION, carried, _packed(self.carried), refused])

    @classmethod
    def read(cls, value: bytes, *, tells_pieces: bool) -> Self:
        """Reads the value of its row; `tells_pieces` is for that of earlier versions.

        These had no version in it, and nothing but marks.
        """
        if not value.startswith(_VERSION):
            return cls(list(_MARK.iter_unpack(value)), tells_pieces and bool(value))
        try:
            is_piece, count = _CARRIED.unpack_from(value, 1)
            carried, at = _marks(value, 1 + _CARRIED.size, count)
            refused = []
            while at < len(value):
                since_ms, topic, reason, count = _REFUSED.unpack_from(value, at)
                reason_at = at + _REFUSED.size + topic
                topic_text = value[reason_at - topic : reason_at].decode()
                reason_text = value[reason_at : reason_at + reason].decode()
                marks, at = _marks(value, reason_at + reason, count)
                refused.append(Refused(topic_text, marks, reason_text, since_ms))
        except (struct.error, UnicodeDecodeError) as error:
            raise StoreCorrupted(
                f"the row of a relay, of {len(value)} bytes, cannot be read: {error}"
            ) from error
        return cls(carried, is_piece, refused)


def mark_of(row: Row) -> Mark:
    """Returns the mark of a row."""
    return row.place, row.token


def _packed(marks: Sequence[Mark]) -> bytes:
    return b"".join([_MARK.pack(*mark) for mark in marks])


def _marks(value: bytes, at: int, count: int) -> tuple[list[Mark], int]:
    """Returns marks from a place in a value on, and the place behind them."""
    end = at + count * _MARK.size
    return list(_MARK.iter_unpack(value[at:end])), end
