"""A real HBase that gets requests long after their time-out, and lost answers."""

from collections.abc import Iterator

import pytest

from tests.support.doubles import Clock
from tests.support.late_proxy import LateProxy
from txaware.errors import NotWritten
from txaware.model.settings import Settings
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.hbase.scans import CellRange, read_range
from txaware.store.hbase.schema import META
from txaware.store.hbase.table import HBaseTable
from txaware.store.keys import MESSAGE, TOPIC, row_key

pytestmark = pytest.mark.hbase

PREFIX = MESSAGE + b"ns:t:\0\0\0\1"
FIRST, SECOND, THIRD = [PREFIX + row_key(1_700_000_000_000, n) for n in range(3)]
KEPT = TOPIC + b"ns:t"
TIMEOUT_S = 5


@pytest.fixture
def proxy(hbase_url: str) -> Iterator[LateProxy]:
    """Before the Thrift server."""
    with LateProxy(HBaseAddress.parse(hbase_url).port) as found:
        yield found


def opened(hbase_url: str, proxy: LateProxy, *, patience_s: float = 30) -> HBaseTable:
    address = HBaseAddress.parse(hbase_url)
    through = HBaseAddress("127.0.0.1", proxy.port, address.prefix)
    settings = Settings(hbase_timeout_s=TIMEOUT_S, hbase_patience_s=patience_s)
    return HBaseTable.open(through, settings, clock_ms=Clock())


def test_a_put_that_comes_seconds_late_changes_nothing(
    hbase_url: str, proxy: LateProxy
) -> None:
    """Neither what was overwritten meanwhile, nor what was deleted."""
    table = opened(hbase_url, proxy)
    proxy.hold = [b"mutateRowsTs", b"mutateRowsTs"]
    table.submit([(FIRST, b"\0one"), (SECOND, b"\0two"), (THIRD, b"\0three")])()
    assert [value for _, value in table.scan(PREFIX)] == [
        b"\0one",
        b"\0two",
        b"\0three",
    ]
    table.submit([(FIRST, b"\0later"), (SECOND, None)])()
    wanted = [(FIRST[-10:], b"\0later"), (THIRD[-10:], b"\0three")]
    assert table.scan(PREFIX) == wanted
    assert proxy.release() == 2
    assert table.scan(PREFIX) == wanted
    assert table.get(SECOND) is None
    table.close()


def test_a_head_that_is_set_late_is_not_set(hbase_url: str, proxy: LateProxy) -> None:
    """The batch was told as not written, and others came after it."""
    table = opened(hbase_url, proxy, patience_s=0)
    table.submit([(KEPT, b"first")])()
    proxy.hold = [b"checkAndPut", b"checkAndPut"]
    with pytest.raises(NotWritten):
        table.submit([(KEPT, b"late")])()
    assert table.get(KEPT) == b"first"
    assert proxy.release() == 2
    assert table.get(KEPT) == b"first"
    table.submit([(FIRST, b"\0one")])()
    assert table.get(KEPT) == b"first"
    table.close()
    again = opened(hbase_url, proxy)
    assert (again.get(KEPT), again.get(FIRST)) == (b"first", b"\0one")
    again.close()


def test_a_head_whose_answer_is_lost_is_found_to_be_set(
    hbase_url: str, proxy: LateProxy
) -> None:
    table = opened(hbase_url, proxy)
    proxy.lose = [b"checkAndPut"]
    table.submit([(KEPT, b"first")])()
    assert not proxy.lose
    assert table.get(KEPT) == b"first"
    number = table._database.last_batch
    table.submit([(KEPT, b"second")])()
    assert table._database.last_batch == number + 1
    table.close()


def test_a_large_record_that_comes_late_leaves_the_younger_one(
    hbase_url: str, proxy: LateProxy
) -> None:
    """And a new owner reads that one, and removes it."""
    table = opened(hbase_url, proxy, patience_s=0)
    proxy.hold = [b"mutateRowTs"]
    with pytest.raises(NotWritten):
        table.submit([(KEPT, b"late" * 10_000)])()
    table.submit([(KEPT, b"then" * 10_000)])()
    assert proxy.release() == 1
    reader = table._database
    assert isinstance(reader, HBaseDatabase)
    reader._broken = True
    reader.reopen()  # reads the record again
    assert table.get(KEPT) == b"then" * 10_000
    table.close()
    again = opened(hbase_url, proxy)
    assert again.get(KEPT) == b"then" * 10_000
    database = again._database
    assert isinstance(database, HBaseDatabase)
    connections = database.connections
    left, _ = read_range(
        connections,
        CellRange(
            table=connections.address.table(META),
            start=b"\0redo",
            stop=b"\0redp",
            limit=10,
            max_bytes=1 << 20,
            reverse=False,
            before_ms=1 << 62,
        ),
    )
    assert not left
    again.close()
