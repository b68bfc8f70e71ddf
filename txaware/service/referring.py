"""The references of a topic: what they name, and where one of many rows is it."""

import attrs

from txaware.interfaces import OrderedTable
from txaware.service.weighing import Stretch, TooMuch, Weighing
from txaware.store.columns import RECEIPTS, decode, decode_receipts, is_reference

# A reference is published after its payloads, and looked for so far behind them.
SEARCH_BYTES, SEARCHES_BYTES = 8 << 20, 64 << 20


@attrs.frozen
class Reference:
    """A row that stands for what its transaction stored, or some attempts of it."""

    row_key: bytes
    pointer: int
    attempts: frozenset[bytes] | None


class Search:
    """Looks for references among many rows, so many bytes of them at most."""

    def __init__(self, table: OrderedTable, rows: Stretch) -> None:
        self._table = table
        self._rows = rows
        self._left_bytes = SEARCHES_BYTES

    def row_key(self, pointer: int, last_key: bytes) -> bytes | None:
        """The reference of a pointer, behind the last row that was stored for it."""
        start = max(self._rows.start, last_key[:8] + bytes(2))
        limit_bytes = min(SEARCH_BYTES, self._left_bytes)
        weighing = Weighing(self._table, limit_bytes)
        try:
            for key, value in weighing.rows(attrs.evolve(self._rows, start=start)):
                if is_reference(value) and reference(key, value).pointer == pointer:
                    return key
        except TooMuch:
            return None
        finally:
            self._left_bytes -= limit_bytes - max(0, weighing.left_bytes)
        return None


def reference(key: bytes, value: bytes) -> Reference:
    columns = decode(value)
    receipts = columns.more.get(RECEIPTS)
    return Reference(
        key,
        abs(columns.pointer or 0),
        None if receipts is None else frozenset(decode_receipts(receipts)),
    )
