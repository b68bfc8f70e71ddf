"""The keys of all rows as HBase has them, and when each was written last."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from txaware.store.hbase.connections import Connections
from txaware.store.hbase.scanner import scanner

PAGE_ROWS = 1000
# A key as it is there, and the timestamp of its newest cell.
StoredKey = tuple[bytes, int]


def stored_keys(connections: Connections, kind: str) -> Iterator[list[StoredKey]]:
    """All keys of one of our tables, a page at a time; values are not sent."""
    table = connections.address.table(kind)
    start = b""
    while True:
        page = connections.repeat(partial(_page, connections.structs, table, start))
        if page:
            yield page
        if len(page) < PAGE_ROWS:
            return
        start = page[-1][0] + b"\0"


def _page(structs: Any, table: bytes, start: bytes, client: Any) -> list[StoredKey]:
    wanted = structs.TScan(
        startRow=start, caching=PAGE_ROWS, filterString=b"KeyOnlyFilter()"
    )
    with scanner(client, table, wanted) as more:
        return [
            (row.row, max(cell.timestamp for cell in row.columns.values()))
            for row in more(PAGE_ROWS)
        ]
