"""Tallies: counts of the bytes written, which tell the size of a range.

HBase does not tell how much lies between two keys. So the owner counts what it writes,
and keeps a small row for each 256 KiB of a topic, or of a transaction's payloads in it.
A size is then right up to that much at either end. It misses the bytes not yet counted
when a process ended (less than that of each topic or transaction). Rows count that were
overwritten, or deleted and not yet forgotten.
"""

import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from operator import methodcaller
from typing import Any

import attrs

from txaware.errors import TxAwareError
from txaware.model.interfaces import Row, Write
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import ConnectionLost, HBaseConnections
from txaware.store.hbase.salting import topic_end
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import META, TALLY_ROWS
from txaware.store.keys import MESSAGE, PAYLOAD, row_prefix

TALLY_BYTES = 256 << 10
# A range with less is counted row by row, up to the limits below.
COUNTED_BYTES = 2 * TALLY_BYTES
READ_ROWS, READ_BYTES = 512, 128 << 10
# A planner asks again and again: rows and tallies that were read are used for so long.
KEPT_S = 1.0
# The most topics, and transactions that store payloads, that are counted at once.
MOST_OPEN = 10_000
# If a topic has more tallies, neighbours are joined.
MOST_TALLIES = 4096
# The most bytes of a key behind its topic: a pointer, a time and a sequence.
_TAIL_BYTES = 18
_PAGE_ROWS = 1000
_COUNTED = (MESSAGE, PAYLOAD)
_SIZE = struct.Struct(">Q")

# Rows from one whole key to before another, as many as the limits allow.
Scan = Callable[[bytes, bytes, int, int], list[Row]]


@attrs.define
class Tally:
    """A count of the bytes written from the key `first` to the key `last`."""

    first: bytes
    last: bytes
    size_bytes: int

    def add(self, other: "Tally") -> None:
        """Adds the count of another tally."""
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.size_bytes += other.size_bytes


@attrs.frozen
class _KnownSizes:
    """The sizes that were read at a time: tallies of a topic, or rows of a range."""

    start: bytes
    stop: bytes
    read_s: float
    sizes: tuple[tuple[bytes, bytes, int], ...]


class Tallies:
    """The counts of what one process writes, and the sizes by the counts of all."""

    def __init__(
        self,
        connections: HBaseConnections,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = connections
        self._table = connections.address.table(META)
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._open: dict[bytes, Tally] = {}
        self._topic: _KnownSizes | None = None
        self._rows: _KnownSizes | None = None

    def count(self, writes: Iterable[Write], *, time_ms: int) -> None:
        """Counts rows that were written with that timestamp.

        A tally that cannot be kept is missing in the sizes, and does no other harm.
        """
        full: list[Tally] = []
        with self._lock:
            for run in _runs(writes):
                prefix = row_prefix(run.first)
                tally = self._open.setdefault(prefix, run)
                if tally is not run:
                    tally.add(run)
                if tally.size_bytes >= TALLY_BYTES:
                    full.append(self._open.pop(prefix))
            while len(self._open) > MOST_OPEN:  # the oldest ends as it is
                full.append(self._open.pop(next(iter(self._open))))
        if full:
            with suppress(ConnectionLost, TxAwareError):
                self._connections.once(partial(self._put, full, time_ms))

    def size_bytes(self, start: bytes, stop: bytes, scan: Scan) -> int:
        """Returns about how many bytes lie between two keys of the same table."""
        if start >= stop:
            return 0
        size_bytes = self._by_tallies(start, stop)
        if size_bytes > COUNTED_BYTES:
            return size_bytes
        counted, is_all = self._counted(start, stop, scan)
        return counted if is_all else max(size_bytes, counted)

    def forget(self, start: bytes, stop: bytes, scan: Scan) -> None:
        """Removes the tallies of a range in which no row is left."""
        self._topic = self._rows = None
        for tally in self._read(start, stop):
            end = tally.last + b"\0"
            if end <= stop and not scan(tally.first, end, 1, 1):
                key = TALLY_ROWS + tally.first
                delete = methodcaller("deleteAllRow", self._table, key, {})
                self._connections.repeat(delete)

    def _by_tallies(self, start: bytes, stop: bytes) -> int:
        """Returns a size by the topic's tallies, whose bytes count as evenly spread."""
        topic = start[: topic_end(start)]
        if not topic or not stop.startswith(topic[:1]):
            return 0
        kept = self._topic
        if kept is None or kept.start != topic or not self._is_fresh(kept):
            tallies = list(self._read(topic, topic + b"\xff" * (_TAIL_BYTES + 1)))
            with self._lock:
                tallies += [
                    tally
                    for prefix, tally in self._open.items()
                    if prefix.startswith(topic)
                ]
            found = [(one.first, one.last, one.size_bytes) for one in tallies]
            kept = _KnownSizes(topic, b"", self._clock_s(), tuple(_joined(found)))
            self._topic = kept
        ends = _number(start, topic), _number(stop, topic)
        return int(sum(_share(size, topic, ends) for size in kept.sizes))

    def _counted(self, start: bytes, stop: bytes, scan: Scan) -> tuple[int, bool]:
        """Returns the size of the rows that may be read, and whether those are all."""
        kept = self._rows
        if (
            kept is None
            or not self._is_fresh(kept)
            or not kept.start <= start < stop <= kept.stop
        ):
            rows = scan(start, stop, READ_ROWS, READ_BYTES)
            sizes = tuple((key, key, len(key) + len(value)) for key, value in rows)
            held_bytes = sum([len(value) for _, value in rows])
            if len(rows) >= READ_ROWS or held_bytes >= READ_BYTES:
                return sum([size for _, _, size in sizes]), False
            kept = self._rows = _KnownSizes(start, stop, self._clock_s(), sizes)
        return sum([size for key, _, size in kept.sizes if start <= key < stop]), True

    def _is_fresh(self, kept: _KnownSizes) -> bool:
        return self._clock_s() - kept.read_s < KEPT_S

    def _put(self, tallies: Iterable[Tally], time_ms: int, client: Any) -> None:
        structs = self._connections.structs
        rows = [
            structs.BatchMutation(
                row=TALLY_ROWS + tally.first,
                mutations=[
                    structs.Mutation(
                        column=WHOLE, value=_SIZE.pack(tally.size_bytes) + tally.last
                    )
                ],
            )
            for tally in tallies
        ]
        client.mutateRowsTs(self._table, rows, time_ms, {})

    def _read(self, start: bytes, stop: bytes) -> Iterator[Tally]:
        """Reads the tallies that begin in a range of whole keys."""
        at = start
        while True:
            page = self._connections.repeat(partial(self._page, at, stop))
            yield from page
            if len(page) < _PAGE_ROWS:
                return
            at = page[-1].first + b"\0"

    def _page(self, start: bytes, stop: bytes, client: Any) -> list[Tally]:
        wanted = self._connections.structs.TScan(
            startRow=TALLY_ROWS + start, stopRow=TALLY_ROWS + stop, caching=_PAGE_ROWS
        )
        with scanner(client, self._table, wanted) as more:
            return [
                _tally(row.row[len(TALLY_ROWS) :], row.columns[WHOLE].value)
                for row in more(_PAGE_ROWS)
            ]


def _runs(writes: Iterable[Write]) -> Iterator[Tally]:
    """Makes a tally for each run of rows with one prefix; stamped keys rise.

    No run is larger than a full tally by more than a row.
    """
    first, last, prefix, size_bytes = b"", b"", b"\xff", 0
    for key, value in writes:
        if value is None or key[:1] not in _COUNTED:
            continue
        if size_bytes >= TALLY_BYTES or not key.startswith(prefix):
            if size_bytes:
                yield Tally(first, last, size_bytes)
            first, prefix, size_bytes = key, row_prefix(key), 0
        last = key
        size_bytes += len(key) + len(value)
    if size_bytes:
        yield Tally(first, last, size_bytes)


def common_prefix(start: bytes, stop: bytes) -> bytes:
    """Returns the common beginning of two keys, at least the byte of their table."""
    pairs = enumerate(zip(start, stop, strict=False))
    end = next((at for at, (one, other) in pairs if one != other), len(start))
    return start[: max(1, end)]


def _tally(first: bytes, value: bytes) -> Tally:
    return Tally(first, value[_SIZE.size :], *_SIZE.unpack_from(value))


def _joined(
    sizes: list[tuple[bytes, bytes, int]],
) -> Iterator[tuple[bytes, bytes, int]]:
    step = len(sizes) // MOST_TALLIES + 1
    for at in range(0, len(sizes), step):
        some = sizes[at : at + step]
        yield some[0][0], max(last for _, last, _ in some), sum(s for *_, s in some)


def _number(key: bytes, topic: bytes) -> int:
    """Returns the place of a key in its topic, or right behind it, as a number."""
    if not key.startswith(topic):
        return 0 if key < topic else 1 << 8 * _TAIL_BYTES
    tail = key[len(topic) :][:_TAIL_BYTES]
    return int.from_bytes(tail.ljust(_TAIL_BYTES, b"\0"), "big")


def _share(
    size: tuple[bytes, bytes, int], topic: bytes, ends: tuple[int, int]
) -> float:
    """Returns how many bytes of a tally are between both ends."""
    first, last, size_bytes = size
    low, high = _number(first, topic), _number(last, topic) + 1
    inside = min(high, ends[1]) - max(low, ends[0])
    return size_bytes * inside / (high - low) if inside > 0 else 0.0
