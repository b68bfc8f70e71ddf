"""Deletes rows in bounded batches, and gives their space back."""

from collections.abc import Callable

from txaware.interfaces import OrderedTable, Row, Write
from txaware.rowkeys import after
from txaware.tables.ranges import pieces

BATCH_ROWS = 1000

Look = Callable[[list[Row]], object]


class Deleting:
    """Deletes by range; `compact` then rewrites what was touched, without it."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table
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
        """Deletes rows of a range, each batch on disk before the next; how many.

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
            self._table.submit(writes)()
            count += len(rows)
        if count:
            self._touch(prefix, after(prefix) if stop is None else prefix + stop)
        return count

    def _touch(self, start: bytes, stop: bytes) -> None:
        """One range for each table and topic: from the first row touched on."""
        of = b":".join(start.split(b":", 2)[:2])
        first, last = self._touched.get(of, (start, stop))
        self._touched[of] = min(first, start), max(last, stop)

    def delete(self, keys: list[bytes]) -> None:
        """Deletes single rows."""
        for first in range(0, len(keys), BATCH_ROWS):
            batch: list[Write] = [(key, None) for key in keys[first:][:BATCH_ROWS]]
            self._table.submit(batch)()

    def compact(self) -> None:
        """Gives back to the disk what the deleted ranges took."""
        for start, stop in self._touched.values():
            self._table.compact(start, stop)
        self._touched.clear()
