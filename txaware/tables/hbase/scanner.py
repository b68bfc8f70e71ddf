"""A scanner of HBase's Thrift server, which is given back however reading ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


@contextmanager
def scanner(client: Any, table: bytes, wanted: Any) -> Iterator[Callable[[int], Any]]:
    """How to ask for the next rows, so many at most; `wanted` is a TScan."""
    number = client.scannerOpenWithScan(table, wanted, {})
    try:
        yield partial(client.scannerGetList, number)
    finally:
        client.scannerClose(number)
