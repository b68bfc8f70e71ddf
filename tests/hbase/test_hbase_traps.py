"""What a real HBase and happybase do, and nobody expects: raw calls, nothing of ours.

One test a trap; each trap is a reason for something in `txaware/tables/hbase`. That a
directory must not be taken while an old JVM still stops in it is in
`tests/hbase/test_local_hbase.py`.
"""

import struct
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.hbase_fixtures import MIB, connected, deleted_rows
from txaware.local_hbase import HBaseAdmin, LocalHBase

pytestmark = pytest.mark.hbase

CELL = b"f:q"
IDLE_MS = 2000


@pytest.fixture
def connection(hbase: LocalHBase) -> Iterator[Any]:
    with connected(hbase) as found:
        yield found


def table_of(connection: Any, name: str) -> Any:
    connection.create_table(name, {"f": {"max_versions": 1}})
    return connection.table(name)


def errors() -> tuple[type[Exception], ...]:
    """All that a call may raise whose fate is open."""
    from thriftpy2.thrift import TException

    return TException, OSError


def mutation(value: bytes, *, is_delete: bool = False) -> Any:
    from Hbase_thrift import Mutation  # a module that happybase makes

    return Mutation(isDelete=is_delete, column=CELL, value=value, writeToWAL=True)


def time_to_live(ttl_ms: int) -> dict[bytes, bytes]:
    return {b"_ttl": struct.pack(">q", ttl_ms)}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def impatient_hbase(hbase: LocalHBase) -> Iterator[LocalHBase]:
    """Its Thrift server closes a connection that is idle for two seconds."""
    name = "hbase.thrift.server.socket.read.timeout"
    hbase.settings[name] = IDLE_MS
    try:
        hbase.kill_thrift()
        hbase.start_thrift()
        yield hbase
    finally:
        del hbase.settings[name]
        hbase.kill_thrift()
        hbase.start_thrift()


def test_an_idle_connection_is_closed_and_still_says_it_is_open(
    impatient_hbase: LocalHBase,
) -> None:
    with connected(impatient_hbase) as connection:
        table = table_of(connection, "trap-idle")
        time.sleep(IDLE_MS / 1000 * 3)  # HBase's own clock
        assert connection.transport.is_open()
        connection.open()
        with pytest.raises(errors()):
            table.row(b"r")
        connection.close()
        connection.open()
        assert table.row(b"r") == {}


def test_a_put_that_timed_out_is_applied_later(
    hbase: LocalHBase, connection: Any
) -> None:
    import happybase

    table = table_of(connection, "trap-late")
    table.put(b"before", {CELL: b"1"})
    hasty = happybase.Connection("127.0.0.1", hbase.thrift_port, timeout=300)
    hbase.master.pause()
    try:
        with pytest.raises(errors()):
            hasty.table("trap-late").put(b"late", {CELL: b"2"})
    finally:
        hbase.master.resume()
        hasty.close()
    assert until(lambda: table.row(b"late") == {CELL: b"2"}, timeout_s=20)


def test_delete_and_put_of_a_row_in_one_batch_lose_the_put(connection: Any) -> None:
    table = table_of(connection, "trap-batch")
    with table.batch() as batch:
        for number in range(50):
            batch.delete(b"%d" % number)
            batch.put(b"%d" % number, {CELL: b"lost"})
    assert list(table.scan()) == []
    for number in range(50):
        table.delete(b"rising %d" % number, timestamp=10)
        table.put(b"rising %d" % number, {CELL: b"kept"}, timestamp=11)
    assert len(list(table.scan())) == 50


def test_one_bad_row_fails_a_batch_and_the_others_are_stored(connection: Any) -> None:
    table = table_of(connection, "trap-torn")
    batch = table.batch()
    batch.put(b"good", {CELL: b"stored"})
    batch.put(b"bad", {b"nosuch:q": b"refused"})
    with pytest.raises(errors()):
        batch.send()
    assert dict(table.scan()) == {b"good": {CELL: b"stored"}}


@pytest.mark.parametrize("expected", [None, b""])
def test_for_check_and_put_an_empty_cell_is_absent_too(
    connection: Any, expected: bytes | None
) -> None:
    name = "trap-check-none" if expected is None else "trap-check-empty"
    table = table_of(connection, name)
    table.put(b"empty", {CELL: b""})
    table.put(b"full", {CELL: b"old"})

    def check_and_put(row: bytes) -> bool:
        done: bool = connection.client.checkAndPut(
            name.encode(), row, CELL, expected, mutation(b"new"), {}
        )
        return done

    rows = (b"absent", b"empty", b"full")
    assert [check_and_put(row) for row in rows] == [True, True, False]


def test_check_and_put_ignores_that_it_shall_delete(connection: Any) -> None:
    table = table_of(connection, "trap-delete")
    table.put(b"r", {CELL: b"old"})
    assert connection.client.checkAndPut(
        b"trap-delete", b"r", CELL, b"old", mutation(b"new", is_delete=True), {}
    )
    assert table.row(b"r") == {CELL: b"new"}


def test_a_cell_that_expires_uncovers_an_older_one(connection: Any) -> None:
    table = table_of(connection, "trap-ttl")
    at_ms = now_ms() - 10_000
    for row, ttl_ms in ((b"expired", 5000), (b"living", 600_000)):
        table.put(row, {CELL: b"old"}, timestamp=at_ms - 1)
        connection.client.mutateRowTs(
            b"trap-ttl", row, [mutation(b"new")], at_ms, time_to_live(ttl_ms)
        )
    assert dict(table.scan()) == {b"expired": {CELL: b"old"}, b"living": {CELL: b"new"}}


def test_a_time_to_live_counts_in_each_of_three_calls(connection: Any) -> None:
    from Hbase_thrift import BatchMutation

    table, client = table_of(connection, "trap-ttl-calls"), connection.client
    name, at_ms, short = b"trap-ttl-calls", now_ms() - 10_000, time_to_live(5000)
    client.mutateRowTs(name, b"row", [mutation(b"1")], at_ms, short)
    batch = [BatchMutation(row=b"rows", mutations=[mutation(b"2")])]
    client.mutateRowsTs(name, batch, at_ms, short)
    assert list(table.scan()) == []
    assert client.checkAndPut(
        name, b"check", CELL, None, mutation(b"3"), time_to_live(6000)
    )
    assert table.row(b"check") == {CELL: b"3"}
    assert until(lambda: table.row(b"check") == {}, timeout_s=60)


def test_a_major_compaction_of_thrift_frees_nothing(
    hbase: LocalHBase, hbase_admin: HBaseAdmin, connection: Any
) -> None:
    deleted_rows(hbase, hbase_admin, "trap-compaction")
    connection.client.majorCompact(b"trap-compaction")
    time.sleep(3)  # a compaction that does take place is over by then
    assert hbase.file_bytes("trap-compaction") > 8 * MIB
    hbase_admin.major_compact("trap-compaction")
    assert until(lambda: hbase.file_bytes("trap-compaction") < 10_000, timeout_s=60)


def test_thrift_flushes_only_by_disabling_a_table(
    hbase: LocalHBase, connection: Any
) -> None:
    table = table_of(connection, "trap-flush")
    table.put(b"r", {CELL: b"v"})
    assert not hasattr(connection.client, "flush")
    assert hbase.file_bytes("trap-flush") == 0
    connection.disable_table("trap-flush")
    connection.enable_table("trap-flush")
    assert hbase.file_bytes("trap-flush") > 0


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("PrefixFilter('a')", [b"a1", b"a2"]),
        ("ColumnPrefixFilter('x')", []),
        ("SingleColumnValueFilter('f', 'q', =, 'binary:v2')", [b"a2"]),
        ("RowFilter(>=, 'binary:b')", [b"b1"]),
        ("PageFilter(1)", [b"a1"]),
    ],
)
def test_these_filters_work(connection: Any, text: str, rows: list[bytes]) -> None:
    table = filtered(connection)
    assert [row for row, _ in table.scan(filter=text)] == rows


@pytest.mark.parametrize(
    "text", ["FuzzyRowFilter('a?', '01')", "MultiRowRangeFilter('a', 'b')"]
)
def test_these_filters_fail_with_an_error_that_cannot_be_printed(
    connection: Any, text: str
) -> None:
    table = filtered(connection)
    with pytest.raises(errors()) as raised:
        list(table.scan(filter=text))
    assert getattr(raised.value, "message", b"").startswith(b"Internal error")
    with pytest.raises(TypeError):
        str(raised.value)


def test_scans_go_backwards_end_early_and_stop(connection: Any) -> None:
    table = filtered(connection)
    assert [row for row, _ in table.scan(reverse=True, limit=2)] == [b"b1", b"a2"]
    assert [row for row, _ in table.scan(row_start=b"a2", row_stop=b"b1")] == [b"a2"]


def filtered(connection: Any) -> Any:
    if b"trap-filters" not in connection.tables():
        table = table_of(connection, "trap-filters")
        for row, value in ((b"a1", b"v1"), (b"a2", b"v2"), (b"b1", b"v3")):
            table.put(row, {CELL: value})
    return connection.table("trap-filters")


def test_of_a_missing_table_only_reads_say_that_it_is_missing(connection: Any) -> None:
    table = connection.table("trap-missing")
    for read in (partial(table.row, b"r"), partial(next, table.scan())):
        with pytest.raises(errors(), match="TableNotFoundException: trap-missing"):
            read()
    cells = {CELL: b"v"}
    for write in (
        partial(table.put, b"r", cells),
        partial(table.delete, b"r", [CELL]),
    ):
        with pytest.raises(errors(), match="Failed 1 action: trap-missing") as raised:
            write()
        assert "TableNotFoundException" not in str(raised.value)


def test_a_delete_hides_an_older_put_that_comes_after_it(
    connection: Any, hbase_admin: HBaseAdmin
) -> None:
    table = table_of(connection, "trap-settle")
    table.delete(b"r", timestamp=10)
    table.put(b"r", {CELL: b"too late"}, timestamp=10)
    assert table.row(b"r") == {}
    hbase_admin.flush("trap-settle")
    table.put(b"r", {CELL: b"too late"}, timestamp=9)
    assert table.row(b"r") == {}
    table.put(b"r", {CELL: b"newer"}, timestamp=11)
    assert table.row(b"r") == {CELL: b"newer"}
