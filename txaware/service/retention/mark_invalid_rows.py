"""Marks the rows of invalid transactions, so that these can be forgotten."""

import threading
from collections.abc import Collection, Iterable, Iterator

from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.model.interfaces import OrderedTable
from txaware.model.topics import Topic
from txaware.service.read.scan_cache import ScanCache
from txaware.store.columns import pointer_of
from txaware.store.interfaces import negate, pieces
from txaware.store.keys import MESSAGE, row_key
from txaware.store.kinds import versioned_tables

# The embedded coordinator uses the clock of the rows, but after a crash it may be ahead
# of that by some seconds. Nothing is assumed about earlier runs.
MARGIN_MS = 600_000


class Marking:
    """Inverts the pointer of every row that an invalid transaction wrote.

    With a `barrier`, marked transactions are remembered, so that it only looks for
    those that became invalid since. No row of them can come later, as writes are
    refused. One with a write under way is marked another time. A coordinator elsewhere
    keeps nobody from writing for a transaction that is over, and its clock is its own:
    every look is for all invalid transactions, in all rows.
    """

    def __init__(
        self,
        table: OrderedTable,
        cache: ScanCache,
        barrier: WriteBarrier | None,
        rewriting: threading.Lock,
    ) -> None:
        self._table = table
        self._rewriting = rewriting
        self._cache = cache
        self._barrier = barrier
        self._marked: set[int] = set()
        self._went_through = False
        # Counts when rows came from elsewhere, and as it was when a look began.
        self._lives = self._began_in = 0

    def forget(self) -> None:
        """Looks for all invalid transactions again, as rows came from elsewhere."""
        self._lives += 1
        self._marked, self._went_through = set(), False

    def due(self, snapshot: Transaction) -> set[int]:
        """Returns the invalid pointers that may still have unmarked rows."""
        self._began_in = self._lives
        self._marked.intersection_update(snapshot.invalids)
        return {
            pointer
            for pointer in snapshot.invalids
            if self._barrier is None
            or not (pointer in self._marked or self._barrier.is_writing(pointer))
        }

    def forgettable(self, snapshot: Transaction, late_ms: int) -> list[int]:
        """Returns the invalid pointers that nothing here needs any more.

        Without a barrier these are only pointers from before `late_ms`: nobody writes
        with them now.
        """
        return [
            pointer
            for pointer in snapshot.invalids
            if pointer in self._marked
            and (self._barrier is not None or pointer < late_ms * POINTERS_PER_MS)
        ]

    def least_needed(self, snapshot: Transaction) -> int:
        """Returns the pointer below which all invalid ones are marked."""
        needed = (p for p in snapshot.invalids if p not in self._marked)
        return min(next(needed, snapshot.transaction_id), snapshot.first_in_progress)

    def first_key(self, pointers: Collection[int]) -> bytes:
        """Returns the least key that a message row of these pointers may have."""
        if self._barrier is None or not self._went_through:
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
        """Marks the message rows of one topic in a range; returns how many."""
        marked = 0
        prefix = MESSAGE + topic.prefix
        for keys in self._mark(prefix, pointers, start=start, stop=stop):
            self._cache.negate(topic.prefix, keys)
            marked += len(keys)
        return marked

    def mark_items(self, prefix: bytes, pointers: Collection[int]) -> int:
        """Marks the items of a queue that these pointers pushed; returns how many."""
        if not pointers:
            return 0
        return sum(len(keys) for keys in self._mark(MESSAGE + prefix, pointers))

    def mark_versions(self, pointers: Collection[int]) -> int:
        """Marks the versions that these pointers wrote; returns how many.

        Where all are listed, a clean-up removes them, without a walk through all rows.
        """
        if not pointers:
            return 0
        tables = [table for table, listed in versioned_tables().items() if not listed]
        return sum(len(keys) for one in tables for keys in self._mark(one, pointers))

    def _mark(
        self,
        prefix: bytes,
        pointers: Collection[int],
        *,
        start: bytes = b"",
        stop: bytes | None = None,
    ) -> Iterator[list[bytes]]:
        """Marks rows, and yields the keys of each piece without the prefix."""
        for rows in pieces(self._table, prefix, start=start, stop=stop):
            found = [key for key, value in rows if pointer_of(value) in pointers]
            if found:
                yield self._negate(prefix, found, pointers)

    def _negate(
        self, prefix: bytes, keys: list[bytes], pointers: Collection[int]
    ) -> list[bytes]:
        """Negates the rows that still exist, while nobody removes any."""
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
        """Remembers pointers as marked, once all tables were gone through for them."""
        if self._began_in == self._lives:
            self._went_through = True
            self._marked.update(pointers)
