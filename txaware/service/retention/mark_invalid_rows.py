"""Marks what invalid transactions wrote, so that they can be forgotten."""

import threading
from collections.abc import Collection, Iterable, Iterator

from coordinator.embedded.write_barrier import Gate
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.interfaces import OrderedTable
from txaware.keys import MESSAGE, POSITION, row_key
from txaware.service.read.scan_cache import ScanCache
from txaware.store.columns import pointer_of
from txaware.store.ranges import negate, pieces
from txaware.topics import Topic

# A coordinator of ours goes by the same clock as the rows, but after a crash it may be
# ahead of that by some seconds. Of earlier lives nothing is assumed.
MARGIN_MS = 600_000


class Marking:
    """Inverts the pointer of every row that an invalid transaction wrote.

    With a `gate` what was marked is remembered, so only what became invalid since is
    looked for. No row of it can come later: its writes are refused, and one under way
    is waited for, by marking that transaction another time. A coordinator elsewhere
    keeps nobody from writing for a transaction that is over, and its clock is its own:
    everything is looked for every time, in all rows.
    """

    def __init__(
        self,
        table: OrderedTable,
        cache: ScanCache,
        gate: Gate | None,
        rewriting: threading.Lock,
    ) -> None:
        self._table = table
        self._rewriting = rewriting
        self._cache = cache
        self._gate = gate
        self._marked: set[int] = set()
        self._went_through = False

    def due(self, snapshot: Transaction) -> set[int]:
        """The invalid pointers that may still have rows which are not marked."""
        self._marked.intersection_update(snapshot.invalids)
        return {
            pointer
            for pointer in snapshot.invalids
            if self._gate is None
            or not (pointer in self._marked or self._gate.is_writing(pointer))
        }

    def forgettable(self, snapshot: Transaction, late_ms: int) -> list[int]:
        """The invalid pointers that nothing here needs any more.

        Without a gate only those from before `late_ms`, with which nobody writes now.
        """
        return [
            pointer
            for pointer in snapshot.invalids
            if pointer in self._marked
            and (self._gate is not None or pointer < late_ms * POINTERS_PER_MS)
        ]

    def least_needed(self, snapshot: Transaction) -> int:
        """Every invalid pointer below this one is marked, and may be forgotten."""
        needed = (p for p in snapshot.invalids if p not in self._marked)
        return min(next(needed, snapshot.transaction_id), snapshot.first_in_progress)

    def first_key(self, pointers: Collection[int]) -> bytes:
        """Where the first message row may be that they wrote, in any topic."""
        if self._gate is None or not self._went_through:
            return b""
        return row_key(max(0, min(pointers) // POINTERS_PER_MS - MARGIN_MS))

    def mark_topic(
        self,
        topic: Topic,
        pointers: Collection[int],
        *,
        start: bytes,
        stop: bytes | None,
    ) -> int:
        """Marks the message rows of one topic in a range; answers how many."""
        marked = 0
        prefix = MESSAGE + topic.prefix
        for keys in self._mark(prefix, pointers, start=start, stop=stop):
            self._cache.negate(topic.prefix, keys)
            marked += len(keys)
        return marked

    def mark_positions(self, pointers: Collection[int]) -> int:
        """Marks the positions that they saved."""
        if not pointers:
            return 0
        return sum(len(keys) for keys in self._mark(POSITION, pointers))

    def _mark(
        self,
        prefix: bytes,
        pointers: Collection[int],
        *,
        start: bytes = b"",
        stop: bytes | None = None,
    ) -> Iterator[list[bytes]]:
        """Marks rows, and answers the keys of each piece without the prefix."""
        for rows in pieces(self._table, prefix, start=start, stop=stop):
            found = [key for key, value in rows if pointer_of(value) in pointers]
            if found:
                yield self._negate(prefix, found, pointers)

    def _negate(
        self, prefix: bytes, keys: list[bytes], pointers: Collection[int]
    ) -> list[bytes]:
        """Looks once more while nobody removes any: what is gone must not come back."""
        with self._rewriting:
            there = [
                (key, value)
                for key in keys
                if (value := self._table.get(prefix + key)) is not None
                and pointer_of(value) in pointers
            ]
            negate(self._table, [(prefix + key, value) for key, value in there])
        return [key for key, _ in there]

    def done(self, pointers: Iterable[int]) -> None:
        """All tables were gone through for these."""
        self._went_through = True
        self._marked.update(pointers)
