"""A scanner of HBase's Thrift server, which is given back however reading ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from txaware.errors import TxAwareError


@contextmanager
def scanner(client: Any, table: bytes, wanted: Any) -> Iterator[Callable[[int], Any]]:
    """How to ask for the next rows, so many at most; `wanted` is a TScan.

    A connection that has failed is not asked to close it, since that would be one more
    time-out: the server forgets a scanner that nobody uses.
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
    """Whether HBase itself said so, or we did of what it had answered."""
    return isinstance(error, TxAwareError) or type(error).__module__ == "Hbase_thrift"
