"""Deletes rows in bounded batches, and remembers the ranges."""

import threading
from collections.abc import Callable, Iterable

from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.service.retention.clean_up_plan import Touched
from txaware.store.interfaces import pieces
from txaware.store.keys import after

BATCH_ROWS = 1000

Look = Callable[[list[Row]], object]


class Deleting:
    """Deletes by range, in batches that take turns with those of `rewriting`."""

    def __init__(self, table: OrderedTable, rewriting: threading.Lock) -> None:
        self._table = table
        self._rewriting = rewriting
        self._touched: dict[bytes, tuple[bytes, bytes]] = {}

    def delete_range(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        with_first: Write | None = None,
        look: Look | None = None,
    ) -> int:
        """Deletes a range, each batch on disk before the next; returns how many rows.

        `with_first` is written in the batch of the first rows, and `look` sees all rows
        before they go.
        """
        count = 0
        for rows in pieces(
            self._table, prefix, start=start, stop=stop, limit=BATCH_ROWS
        ):
            if look is not None:
                look(rows)
            writes: list[Write] = [(prefix + key, None) for key, _ in rows]
            if with_first is not None and not count:
                writes.append(with_first)
            with self._rewriting:
                self._table.submit(writes)()
            count += len(rows)
        if count:
            last = after(prefix) if stop is None else prefix + stop
            self._touch(prefix + start, last)
        return count

    def _touch(self, start: bytes, stop: bytes) -> None:
        """Widens the one range of a table and topic to cover these keys."""
        of = _table_and_topic(start)
        first, last = self._touched.get(of, (start, stop))
        self._touched[of] = min(first, start), max(last, stop)

    def delete(self, keys: list[bytes]) -> None:
        """Deletes single rows."""
        for first in range(0, len(keys), BATCH_ROWS):
            batch: list[Write] = [(key, None) for key in keys[first:][:BATCH_ROWS]]
            with self._rewriting:
                self._table.submit(batch)()

    @property
    def touched(self) -> tuple[Touched, ...]:
        """The ranges in which rows were deleted by range."""
        return tuple(Touched(*ends) for ends in self._touched.values())

    def compact(self, touched: Iterable[Touched]) -> None:
        """Compacts these ranges and its own, so that their disk space is freed."""
        for one in touched:
            self._touch(one.start, one.stop)
        for start, stop in self._touched.values():
            self._table.compact(start, stop)
        self._touched.clear()


def _table_and_topic(key: bytes) -> bytes:
    return b":".join(key.split(b":", 2)[:2])
