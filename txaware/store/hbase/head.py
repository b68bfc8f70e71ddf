"""The head: one cell that says who owns the store, and which batch is its last."""

import struct
from typing import Any, Self

import attrs

from txaware.errors import StoreCorrupted

OWNER_BYTES = 8
NOBODY = bytes(OWNER_BYTES)
_FORMAT = 1
_FIXED = struct.Struct(f">B{OWNER_BYTES}sQQQ{OWNER_BYTES}sII")


@attrs.frozen
class Head:
    """Changed only by compare and set, and never twice to the same bytes.

    `turn` rises with each change: one that comes late, after its answer was given up,
    then compares with what has been. `batch` is the number of the last batch, and
    `time_ms` the timestamp of its rows. Its redo record is in `inline`, or in so many
    rows of `logged_by`; `crc` is of all of it.
    """

    owner: bytes = NOBODY
    turn: int = 0
    batch: int = 0
    time_ms: int = 0
    logged_by: bytes = NOBODY
    pieces: int = 0
    crc: int = 0
    inline: bytes = b""

    def to_bytes(self) -> bytes:
        """The value of the cell."""
        fixed = _FIXED.pack(
            _FORMAT,
            self.owner,
            self.turn,
            self.batch,
            self.time_ms,
            self.logged_by,
            self.pieces,
            self.crc,
        )
        return fixed + self.inline

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads the cell."""
        try:
            known, *fields = _FIXED.unpack_from(data)
        except struct.error as error:
            raise StoreCorrupted(f"the head has {len(data)} bytes") from error
        if known != _FORMAT:
            raise StoreCorrupted(
                f"the head has the format {known}, and {_FORMAT} is ours"
            )
        return attrs.evolve(cls(*fields), inline=data[_FIXED.size :])

    def follow(self, **changes: Any) -> Self:
        """The next one, with the same last batch unless another is named."""
        return attrs.evolve(self, turn=self.turn + 1, **changes)

    def with_record(
        self,
        *,
        crc: int,
        inline: bytes = b"",
        logged_by: bytes = NOBODY,
        pieces: int = 0,
    ) -> Self:
        """The same with the place of its redo record."""
        return attrs.evolve(
            self, crc=crc, inline=inline, logged_by=logged_by, pieces=pieces
        )
