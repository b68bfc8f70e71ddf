"""Ranges of rows in a table: read piece by piece, or rolled back."""

from collections.abc import Iterable, Iterator

from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.store.columns import negated

PIECE_ROWS = 1000


def pieces(
    table: OrderedTable,
    prefix: bytes,
    *,
    start: bytes = b"",
    stop: bytes | None = None,
    limit: int = PIECE_ROWS,
) -> Iterator[list[Row]]:
    """Reads all rows of a range, a bounded number at a time.

    Each piece is a view of its own. The rows of a piece may be changed or deleted
    before the next one is asked for.
    """
    while rows := table.scan(prefix, start=start, stop=stop, limit=limit):
        yield rows
        start = rows[-1][0] + b"\0"


def negate(table: OrderedTable, rows: Iterable[Row]) -> None:
    """Marks rows, named by whole keys, as rolled back; on disk unless they are held."""
    marked = [(key, negated(value)) for key, value in rows]
    writes: list[Write] = [
        (key, value) for key, value in marked if not table.replace_held(key, value)
    ]
    if writes:
        table.submit(writes)()
