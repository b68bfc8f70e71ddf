"""A scanner of HBase's Thrift server, which is closed however reading ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from txaware.errors import TxAwareError
from txaware.store.hbase.connections import HBaseConnections


@contextmanager
def scanner(client: Any, table: bytes, wanted: Any) -> Iterator[Callable[[int], Any]]:
    """Opens a scanner for a TScan; yields a function that reads the next rows.

    A connection that has failed is not asked to close the scanner, since that would be
    one more time-out: the server forgets a scanner that nobody uses.
    """
    number = client.scannerOpenWithScan(table, wanted, {})
    try:
        yield partial(client.scannerGetList, number)
    except BaseException as error:
        if _is_answer(error):
            client.scannerClose(number)
        raise
    client.scannerClose(number)


def _is_answer(error: BaseException) -> bool:
    """Tells whether an error is HBase's answer, or ours to an answer of HBase."""
    return isinstance(error, TxAwareError) or type(error).__module__ == "Hbase_thrift"


PAGE_ROWS = 1000
# A key as HBase has it, and the timestamp of its newest cell.
StoredKey = tuple[bytes, int]


def stored_keys(connections: HBaseConnections, kind: str) -> Iterator[list[StoredKey]]:
    """Reads all keys of one of our tables, a page at a time; values are not sent."""
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
