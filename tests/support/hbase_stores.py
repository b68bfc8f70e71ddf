"""Empty stores in one HBase: its tables are made once, and emptied between tests."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from txaware.errors import TxAwareError
from txaware.local_hbase import LocalHBase
from txaware.model.interfaces import OrderedTable
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.cells import FAMILY, WHOLE
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.hbase.head import NOBODY, StoreHead
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import HEAD_KEY, KINDS, META, OWN_ROWS, create_tables
from txaware.store.hbase.table import HBaseTable

PAGE_ROWS = 1000


class HBaseStores:
    """Lends stores; a new one is made only when all others are lent."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._made = 0
        self._free: list[str] = []

    @contextmanager
    def lent(self) -> Iterator[str]:
        """The address of an empty store."""
        url = self._free.pop() if self._free else self._make()
        try:
            yield url
        finally:
            empty(url)
            self._free.append(url)

    def _make(self) -> str:
        self._made += 1
        url = f"hbase://127.0.0.1:{self._port}/test{self._made}"
        connections = HBaseConnections(HBaseAddress.parse(url))
        create_tables(connections)
        connections.close()
        return url


def empty(url: str) -> None:
    """Removes all rows, and whoever owns them; timestamps go on rising."""
    connections = HBaseConnections(HBaseAddress.parse(url))
    try:
        connections.repeat(lambda client: _empty(client, connections))
    finally:
        connections.close()


def _empty(client: Any, connections: HBaseConnections) -> None:
    meta = connections.address.table(META)
    found = client.getRow(meta, HEAD_KEY, {})
    if not found:
        return
    old = StoreHead.from_bytes(found[0].columns[WHOLE].value)
    new = old.follow(owner=NOBODY, time_ms=old.time_ms + 1).with_record(crc=0)
    structs = connections.structs
    deletion = [structs.Mutation(isDelete=True, column=FAMILY)]
    for kind in KINDS:
        table = connections.address.table(kind)
        with scanner(client, table, structs.TScan(caching=PAGE_ROWS)) as more:
            while rows := more(PAGE_ROWS):
                keys = [row.row for row in rows if row.row != HEAD_KEY]
                batch = [structs.BatchMutation(key, deletion) for key in keys]
                ours = [one for one in batch if one.row[:1] != OWN_ROWS or kind != META]
                client.mutateRowsTs(table, ours, new.time_ms, {})
                for key in keys:  # those have a time of HBase's own
                    if kind == META and key[:1] == OWN_ROWS:
                        client.deleteAllRow(table, key, {})
    client.mutateRow(
        meta, HEAD_KEY, [structs.Mutation(column=WHOLE, value=new.to_bytes())], {}
    )


def abandon(table: OrderedTable) -> None:
    """Makes it look as if the process of this table had been killed."""
    assert isinstance(table, HBaseTable)
    database = table._database
    assert isinstance(database, HBaseDatabase)
    with suppress(TxAwareError):
        database._ownership.close()


@pytest.fixture(scope="session")
def hbase_stores(shared_hbase: LocalHBase) -> HBaseStores:
    """Stores in the HBase of the run."""
    return HBaseStores(shared_hbase.thrift_port)


@pytest.fixture
def hbase_url(hbase_stores: HBaseStores) -> Iterator[str]:
    """The address of an empty store."""
    with hbase_stores.lent() as url:
        yield url
