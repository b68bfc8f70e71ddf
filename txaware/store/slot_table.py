"""The slots of clients: what became of the last commit in each.

A client has a slot for each commit that it has under way at once. It numbers the
commits of a slot, and the row of a slot is written with its next commit, over the one
before.
"""

import struct
from typing import Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.model.commit_slots import CLIENT_BYTES, CommitSlot
from txaware.model.interfaces import OrderedTable, Write
from txaware.store.columns import decode, value_head
from txaware.store.interfaces import pieces
from txaware.store.keys import SLOT_ROW

SLOT_BYTES = 2
SLOT_NAME_BYTES = CLIENT_BYTES + SLOT_BYTES
_PAYLOAD = struct.Struct(">QQ")
# Longer than a client may ask what became of its commit, and a copy of it be held up.
KEPT_MS = 48 * 3600 * 1000


@attrs.frozen
class SlotRow:
    """The number of the last commit of a slot, its transaction, and its time.

    Without a pointer nothing was committed with that number, nor ever will be. The
    pointer is negative in a backup of before the commit.
    """

    number: int
    pointer: int | None
    at_ms: int

    @property
    def committed(self) -> int | None:
        """The transaction that was committed with the number, if any was."""
        return self.pointer if (self.pointer or 0) > 0 else None

    def to_bytes(self) -> bytes:
        """Returns the value of the row."""
        return value_head(self.pointer) + _PAYLOAD.pack(self.number, self.at_ms)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads the value of a row; raises `StoreCorrupted` where it is none."""
        columns = decode(data)
        payload = columns.payload or b""
        if len(payload) != _PAYLOAD.size:
            raise StoreCorrupted(
                f"a commit in a slot has {_PAYLOAD.size} bytes, not {len(payload)}"
            )
        number, at_ms = _PAYLOAD.unpack(payload)
        return cls(number, columns.pointer, at_ms)


class SlotTable:
    """The rows of all slots."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def get(self, slot: CommitSlot) -> SlotRow | None:
        """Returns the row of a slot; None before its first commit."""
        found = self._table.get(slot_key(slot))
        return None if found is None else SlotRow.from_bytes(found)

    def writes(self, slot: CommitSlot, row: SlotRow) -> list[Write]:
        """Returns what to write, in one batch with the commit that it is about."""
        return [(slot_key(slot), row.to_bytes()), *self._table.newest_format()]

    def write(self, slot: CommitSlot, row: SlotRow) -> None:
        """Writes a row by itself; it is on disk when this returns."""
        self._table.submit(self.writes(slot, row))()

    def clean_up(self, now_ms: int) -> None:
        """Removes the rows that no client asks for any more."""
        for rows in pieces(self._table, SLOT_ROW):
            old: list[Write] = [
                (SLOT_ROW + end, None)
                for end, value in rows
                if SlotRow.from_bytes(value).at_ms < now_ms - KEPT_MS
            ]
            if old:
                self._table.submit(old)()


def slot_key(slot: CommitSlot) -> bytes:
    """Returns the key of the row of a slot."""
    number = slot.number.to_bytes(SLOT_BYTES, "big")
    return SLOT_ROW + bytes.fromhex(slot.client) + number
