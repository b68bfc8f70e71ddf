"""HBase's own Admin does what its Thrift server does not: it frees the disk."""

import pytest

from tests.support.concurrency import until
from tests.support.hbase_fixtures import MIB, connected, deleted_rows
from txaware.errors import BadRequest, Unavailable
from txaware.local_hbase import HBaseAdmin, LocalHBase

pytestmark = pytest.mark.hbase


def test_a_major_compaction_frees_what_was_deleted(
    hbase: LocalHBase, hbase_admin: HBaseAdmin
) -> None:
    deleted_rows(hbase, hbase_admin, "compacted")
    assert hbase_admin.store_bytes("compacted") >= 8 * MIB
    assert hbase.file_bytes("compacted") > 8 * MIB
    hbase_admin.major_compact("compacted")
    assert hbase_admin.store_bytes("compacted") <= MIB
    assert until(lambda: hbase.file_bytes("compacted") < 10_000, timeout_s=60)


def test_tables_are_listed_by_how_their_names_begin(
    hbase: LocalHBase, hbase_admin: HBaseAdmin
) -> None:
    with connected(hbase) as connection:
        for name in ("listed.b", "listed.a", "not.listed"):
            connection.create_table(name, {"f": {}})
    assert hbase_admin.tables("listed.") == ["listed.a", "listed.b"]


@pytest.mark.parametrize("name", ["nonesuch", "no/table", ""])
def test_a_table_that_is_not_there_is_a_bad_request(
    hbase_admin: HBaseAdmin, name: str
) -> None:
    with pytest.raises(BadRequest):
        hbase_admin.major_compact(name)


def test_without_a_cluster_it_is_unavailable_at_once(hbase_java: str) -> None:
    with pytest.raises(Unavailable, match=r"no ZooKeeper listens at 127\.0\.0\.1:1$"):
        HBaseAdmin("127.0.0.1:1")


@pytest.mark.parametrize("address", ["", "localhost", "a:1,b", "a:1/path"])
def test_a_wrong_address_is_a_bad_request(address: str) -> None:
    with pytest.raises(BadRequest, match="ZooKeeper's address is HOST:PORT"):
        HBaseAdmin(address)
