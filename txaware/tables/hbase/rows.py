"""Reads rows of one table of HBase as they were at one of its timestamps."""

from collections.abc import Callable
from typing import Any

import attrs

from txaware.interfaces import Row
from txaware.store.columns import PLAIN
from txaware.store.hbase.cells import PAYLOAD_CELL, to_value
from txaware.store.hbase.connections import Connections
from txaware.store.hbase.scanner import scanner
from txaware.store.interfaces import up_to

# So many rows at first, then more, or as many as fit in if all are like the largest so
# far: a few large ones are not all asked for at once, and a page of small ones is two
# calls.
FIRST_ROWS, MORE, MOST_ROWS = 64, 4, 1024
_PLAIN = bytes([PLAIN])


def read_row(
    connections: Connections, table: bytes, key: bytes, *, before_ms: int
) -> bytes | None:
    """The value of a row by its cells from before that time."""

    def get(client: Any) -> Any:
        return client.getRowTs(table, key, before_ms, {})

    found = connections.repeat(get)
    return _value(found[0].columns) if found else None


@attrs.frozen(kw_only=True)
class Range:
    """Rows of a table, by their cells from before a time, and how many of them.

    No more once their values have `max_bytes`. The first `cut` bytes of the keys are
    left off.
    """

    table: bytes
    start: bytes
    stop: bytes
    limit: int
    max_bytes: int
    reverse: bool
    before_ms: int
    cut: int = 0

    def options(self) -> dict[str, Any]:
        """What HBase is asked for."""
        options = {
            "startRow": self.start,
            "stopRow": self.stop,
            "timestamp": self.before_ms,
            "caching": min(self.limit, MOST_ROWS),
        }
        if self.reverse:  # HBase takes the upper end in, and leaves the lower one out
            stop = _below(self.start)
            options |= {"startRow": self.stop, "stopRow": stop, "reversed": True}
        return options


def read_range(connections: Connections, wanted: Range) -> tuple[list[Row], bool]:
    """Rows of a range, and whether that is all."""
    options = connections.structs.TScan(**wanted.options())

    def scan(client: Any) -> tuple[list[Row], bool]:
        with scanner(client, wanted.table, options) as more:
            return _rows(wanted, more)

    return connections.repeat(scan)


def _rows(wanted: Range, more: Callable[[int], list[Any]]) -> tuple[list[Row], bool]:
    """Reads by pieces, up to the limits."""
    rows: list[Row] = []
    limit, start, stop, cut = wanted.limit, wanted.start, wanted.stop, wanted.cut
    size, largest = 0, 1
    count = min(FIRST_ROWS, limit)
    while count > 0:
        results = found = more(count)
        if wanted.reverse:
            found = [each for each in results if start <= each.row < stop]
        values = [_value(each.columns) for each in found]
        rows += [
            (each.row[cut:], value) for each, value in zip(found, values, strict=True)
        ]
        sizes = list(map(len, values))
        size += sum(sizes)
        if size >= wanted.max_bytes:
            return up_to(rows, wanted.max_bytes), False
        if len(results) < count:
            return rows, True
        largest = max([largest, *sizes])
        fitting = (wanted.max_bytes - size) // largest + 1
        count = min(max(fitting, MORE * count), limit - len(rows), MOST_ROWS)
    return rows, False


def _value(columns: Any) -> bytes:
    """The value of a row: of its cells those that were written last, all at once."""
    if len(columns) == 1:
        cell = columns.get(PAYLOAD_CELL)
        if cell is not None:  # nearly all of most topics; a tenth of a poll
            return _PLAIN + cell.value  # type: ignore[no-any-return]
        ((name, cell),) = columns.items()
        return to_value({name: cell.value})
    last_ms = max([cell.timestamp for cell in columns.values()])
    return to_value(
        {
            name: cell.value
            for name, cell in columns.items()
            if cell.timestamp == last_ms
        }
    )


def _below(key: bytes) -> bytes:
    """A key below this one, with hardly any between the two; empty for none."""
    if key.endswith(b"\0"):
        return key[:-1]  # nothing is between these two
    return key[:-1] + bytes([key[-1] - 1]) + b"\xff" * 16 if key else b""
