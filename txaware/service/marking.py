"""Marks what invalid transactions wrote, so that they can be forgotten."""

from collections.abc import Iterable

from coordinator.gate import Gate
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.interfaces import OrderedTable, Row, Write
from txaware.rowkeys import MESSAGE, POSITION, row_key
from txaware.service.scan_cache import ScanCache
from txaware.tables.columns import negated, pointer_of
from txaware.topics import Topic

# A pointer's time is its coordinator's, and a row's is the store's: after a crash, or
# on another machine, the two differ by less than this.
MARGIN_MS = 600_000


class Marking:
    """Inverts the pointer of every row that an invalid transaction wrote.

    What was marked is remembered, so only what became invalid since is looked for. No
    row of it can come later: its writes are refused, and one under way is waited for,
    by marking that transaction another time.
    """

    def __init__(
        self, table: OrderedTable, cache: ScanCache, gate: Gate | None
    ) -> None:
        self._table = table
        self._cache = cache
        self._gate = gate
        self._marked: set[int] = set()

    def due(self, snapshot: Transaction) -> set[int]:
        """The invalid pointers that may still have rows which are not marked."""
        self._marked.intersection_update(snapshot.invalids)
        return {
            pointer
            for pointer in snapshot.invalids
            if pointer not in self._marked and not self._is_writing(pointer)
        }

    def marked(self, snapshot: Transaction) -> list[int]:
        """The invalid pointers that nothing here needs any more."""
        return [pointer for pointer in snapshot.invalids if pointer in self._marked]

    def least_needed(self, snapshot: Transaction) -> int:
        """Every invalid pointer below this one is marked, and may be forgotten."""
        needed = (p for p in snapshot.invalids if p not in self._marked)
        return min(next(needed, snapshot.transaction_id), snapshot.first_in_progress)

    def mark_topic(self, topic: Topic, pointers: set[int]) -> int:
        """Marks the message rows of one topic; answers how many."""
        prefix = MESSAGE + topic.prefix
        first_ms = max(0, min(pointers) // POINTERS_PER_MS - MARGIN_MS)
        marked = 0
        start = row_key(first_ms)
        while rows := self._table.scan(prefix, start=start):
            found = [row for row in rows if pointer_of(row[1]) in pointers]
            self._negate(prefix, found)
            self._cache.negate(topic.prefix, [key for key, _ in found])
            marked += len(found)
            start = rows[-1][0] + b"\0"
        return marked

    def mark_positions(self, pointers: set[int]) -> int:
        """Marks the positions that they saved."""
        marked, start = 0, b""
        while rows := self._table.scan(POSITION, start=start):
            found = [row for row in rows if pointer_of(row[1]) in pointers]
            self._negate(POSITION, found)
            marked += len(found)
            start = rows[-1][0] + b"\0"
        return marked

    def done(self, pointers: Iterable[int]) -> None:
        """All tables were gone through for these."""
        self._marked.update(pointers)

    def _negate(self, prefix: bytes, rows: list[Row]) -> None:
        writes: list[Write] = []
        for key, value in rows:
            row = (prefix + key, negated(value))
            if not self._table.replace_held(*row):
                writes.append(row)
        if writes:
            self._table.submit(writes)()

    def _is_writing(self, pointer: int) -> bool:
        return self._gate is not None and self._gate.is_writing(pointer)
