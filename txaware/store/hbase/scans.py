"""Scans over salted tables: the rows of all buckets, merged into one order."""

from collections.abc import Iterator
from heapq import merge
from itertools import count, islice

import attrs

from txaware.interfaces import Row
from txaware.keys import after
from txaware.store.hbase.connections import Connections
from txaware.store.hbase.salting import BUCKETS, buckets_of, salted_key, slice_end
from txaware.store.hbase.schema import SALTED, kind_of
from txaware.tables.hbase.rows import Range, read_range, read_row

# A bucket of many is read a little more than its share first, then more.
FEW_ROWS, SHARES, MORE = 16, 2, 4
ABOVE_ALL = b"\xff" * 64


@attrs.frozen
class Ask:
    """A range of whole keys, and how much of it is wanted."""

    prefix: bytes
    start: bytes
    stop: bytes
    limit: int
    max_bytes: int
    reverse: bool
    before_ms: int


class Scanning:
    """Gets and scans, by keys without their salt."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def get(self, key: bytes, *, before_ms: int) -> bytes | None:
        """The value of a key."""
        kind = kind_of(key)
        salted = salted_key(key) if kind in SALTED else key
        table = self._connections.address.table(kind)
        return read_row(self._connections, table, salted, before_ms=before_ms)

    def scan(self, ask: Ask) -> list[Row]:
        """Rows in order, with the prefix of their keys left off."""
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
            # Of the first one perhaps only the end was asked for.
            if number and len(found) * BUCKETS < limit:
                break  # all buckets at once are fewer scans than as many slices
        return rows + self._merged(ask)

    def _merged(self, ask: Ask) -> list[Row]:
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

    def _run(self, ask: Ask, bucket: int, buckets: int) -> Iterator[Row]:
        """The rows of one bucket of so many, as far as they are asked for."""
        # Mostly each has its share; those of a share are hardly ever all too few.
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

    def _part(self, ask: Ask, bucket: int | None) -> tuple[list[Row], bool]:
        """Rows of one bucket, or of a table that has none; and whether that is all."""
        start, stop = ask.start, ask.stop
        if bucket is not None:
            salt = bytes([bucket])
            is_below = stop[:1] == ask.prefix[:1]
            start, stop = salt + start[1:], salt + (stop[1:] if is_below else ABOVE_ALL)
        return read_range(
            self._connections,
            Range(
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
    """A range below a prefix, as whole keys."""
    return prefix + start, after(prefix) if stop is None else prefix + stop
