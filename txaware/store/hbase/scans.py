"""Scans over salted tables: the rows of all buckets, merged into one order."""

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import count, islice
from typing import Any

import attrs

from txaware.model.interfaces import Row
from txaware.store.columns import PLAIN
from txaware.store.hbase.cells import PAYLOAD_CELL, to_value
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.salting import BUCKETS, buckets_of, salted_key, slice_end
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import SALTED, kind_of
from txaware.store.interfaces import up_to
from txaware.store.keys import after

# The number of rows of the first call, its growth, and the most of a call. A later call
# also asks for as many as fit in if all are like the largest so far. So a few large
# rows are not all asked for at once, and a page of small ones takes two calls.
FIRST_ROWS, MORE, MOST_ROWS = 64, 4, 1024
_PLAIN = bytes([PLAIN])


def read_row(
    connections: HBaseConnections, table: bytes, key: bytes, *, before_ms: int
) -> bytes | None:
    """Reads the value of a row by its cells from before that time."""

    def get(client: Any) -> Any:
        return client.getRowTs(table, key, before_ms, {})

    found = connections.repeat(get)
    return _value(found[0].columns) if found else None


@attrs.frozen(kw_only=True)
class CellRange:
    """A range of a table, by the cells from before a time, with limits.

    Reading stops once the values have `max_bytes`. The first `cut` bytes of the keys
    are left off.
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
        """Returns the options of HBase's scan."""
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


def read_range(
    connections: HBaseConnections, wanted: CellRange
) -> tuple[list[Row], bool]:
    """Reads rows of a range, and tells whether those are all."""
    options = connections.structs.TScan(**wanted.options())

    def scan(client: Any) -> tuple[list[Row], bool]:
        with scanner(client, wanted.table, options) as more:
            return _rows(wanted, more)

    return connections.repeat(scan)


def _rows(
    wanted: CellRange, more: Callable[[int], list[Any]]
) -> tuple[list[Row], bool]:
    """Reads rows piece by piece, up to the limits."""
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
    """Returns the value of a row, made of the cells that were written last together."""
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
    """Returns a key right below another, with hardly any between; empty for none."""
    if key.endswith(b"\0"):
        return key[:-1]  # nothing is between these two
    return key[:-1] + bytes([key[-1] - 1]) + b"\xff" * 16 if key else b""


# A bucket of many is read a little more than its share first, then more.
FEW_ROWS, SHARES = 16, 2
ABOVE_ALL = b"\xff" * 64


@attrs.frozen
class ScanRequest:
    """A range of whole keys without salt, and how much of it is wanted."""

    prefix: bytes
    start: bytes
    stop: bytes
    limit: int
    max_bytes: int
    reverse: bool
    before_ms: int


class Scanning:
    """The reads of a store, by keys without their salt."""

    def __init__(self, connections: HBaseConnections) -> None:
        self._connections = connections

    def get(self, key: bytes, *, before_ms: int) -> bytes | None:
        """Returns the value of a key; None if there is none."""
        kind = kind_of(key)
        salted = salted_key(key) if kind in SALTED else key
        table = self._connections.address.table(kind)
        return read_row(self._connections, table, salted, before_ms=before_ms)

    def scan(self, ask: ScanRequest) -> list[Row]:
        """Returns rows in order, with the prefix of their keys left off."""
        if ask.start >= ask.stop or ask.limit <= 0:
            return []
        if kind_of(ask.prefix) not in SALTED:
            return self._part(ask, None)[0]
        rows: list[Row] = []
        for number in count():
            cut = slice_end(ask.prefix, ask.start, ask.stop, reverse=ask.reverse)
            if cut is None:
                break
            if ask.reverse:
                first, rest = attrs.evolve(ask, start=cut), attrs.evolve(ask, stop=cut)
            else:
                first, rest = attrs.evolve(ask, stop=cut), attrs.evolve(ask, start=cut)
            found = self._merged(first)
            rows += found
            limit = ask.limit - len(found)
            max_bytes = ask.max_bytes - sum([len(value) for _, value in found])
            if limit <= 0 or max_bytes <= 0:
                return rows
            ask = attrs.evolve(rest, limit=limit, max_bytes=max_bytes)
            # The range may begin near the end of the first slice, which tells nothing.
            if number and len(found) * BUCKETS < limit:
                break  # all buckets at once are fewer scans than as many slices
        return rows + self._merged(ask)

    def _merged(self, ask: ScanRequest) -> list[Row]:
        buckets = buckets_of(ask.prefix, ask.start, ask.stop)
        if len(buckets) == 1:
            return self._part(ask, buckets[0])[0]
        rows: list[Row] = []
        size = 0
        runs = [self._run(ask, bucket, len(buckets)) for bucket in buckets]
        for row in islice(merge(*runs, reverse=ask.reverse), ask.limit):
            rows.append(row)
            size += len(row[1])
            if size >= ask.max_bytes:
                break
        return rows

    def _run(self, ask: ScanRequest, bucket: int, buckets: int) -> Iterator[Row]:
        """Reads the rows of one bucket, as far as they are asked for."""
        # Mostly each bucket has its share, so one call for each is mostly enough.
        limit = min(max(FEW_ROWS, SHARES * ask.limit // buckets), ask.limit)
        while True:
            rows, is_all = self._part(attrs.evolve(ask, limit=limit), bucket)
            yield from rows
            if is_all or not rows:
                return
            last = ask.prefix + rows[-1][0]
            ask = (
                attrs.evolve(ask, stop=last)
                if ask.reverse
                else attrs.evolve(ask, start=last + b"\0")
            )
            limit = min(MORE * limit, ask.limit)

    def _part(self, ask: ScanRequest, bucket: int | None) -> tuple[list[Row], bool]:
        """Reads rows of a bucket, or of a table without any; tells if those are all."""
        start, stop = ask.start, ask.stop
        if bucket is not None:
            salt = bytes([bucket])
            is_below = stop[:1] == ask.prefix[:1]
            start, stop = salt + start[1:], salt + (stop[1:] if is_below else ABOVE_ALL)
        return read_range(
            self._connections,
            CellRange(
                table=self._connections.address.table(kind_of(ask.prefix)),
                start=start,
                stop=stop,
                limit=ask.limit,
                max_bytes=ask.max_bytes,
                reverse=ask.reverse,
                before_ms=ask.before_ms,
                cut=len(ask.prefix),
            ),
        )


def whole_range(prefix: bytes, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """Returns a range below a prefix as whole keys."""
    return prefix + start, after(prefix) if stop is None else prefix + stop
