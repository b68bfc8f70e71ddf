"""The message table: all messages of all topics, in the order of their delivery."""

from collections.abc import Iterator, Sequence

from txaware.interfaces import OrderedTable, Row
from txaware.keys import MESSAGE
from txaware.store.columns import pointer_of
from txaware.store.ranges import negate, pieces
from txaware.tables.blocks import Block, decode_block


class MessageTable:
    """Rows of one generation of a topic have one prefix, and keys of ten bytes."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def read(
        self, prefix: bytes, *, start: bytes, stop: bytes, limit: int, max_bytes: int
    ) -> Block:
        """Rows from `start` to before `stop`, decoded; none when the end is reached."""
        return decode_block(
            self._table.scan(
                MESSAGE + prefix,
                start=start,
                stop=stop,
                limit=limit,
                max_bytes=max_bytes,
            )
        )

    def first(self, prefix: bytes, *, start: bytes, stop: bytes) -> Row | None:
        """The first row of a range."""
        rows = self._table.scan(MESSAGE + prefix, start=start, stop=stop, limit=1)
        return rows[0] if rows else None

    def last(self, prefix: bytes, *, start: bytes, stop: bytes) -> Row | None:
        """The last row of a range."""
        rows = self._table.scan(
            MESSAGE + prefix, start=start, stop=stop, limit=1, reverse=True
        )
        return rows[0] if rows else None

    def rows(self, prefix: bytes, *, start: bytes, stop: bytes) -> Iterator[Row]:
        """All rows of a range, a bounded number at a time."""
        for rows in pieces(self._table, MESSAGE + prefix, start=start, stop=stop):
            yield from rows

    def to_negate(
        self, prefix: bytes, pointer: int, *, start: bytes, stop: bytes
    ) -> list[Row]:
        """The rows of a range that carry exactly that pointer, as they are now."""
        return [
            (key, value)
            for key, value in self.rows(prefix, start=start, stop=stop)
            if pointer_of(value) == pointer
        ]

    def negate(self, prefix: bytes, rows: Sequence[Row]) -> None:
        """Marks rows as rolled back; on disk when it returns, or held as they were."""
        negate(self._table, [(MESSAGE + prefix + key, value) for key, value in rows])
