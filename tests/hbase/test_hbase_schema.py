"""Our tables in HBase: made when they are missing, told about when they differ."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.hbase_fixtures import connected
from txaware.errors import BadRequest
from txaware.local_hbase import LocalHBase
from txaware.store.hbase import schema
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections

pytestmark = pytest.mark.hbase

FINE = "all tables are as they should be"


def url_of(hbase: LocalHBase, prefix: str) -> str:
    return f"hbase://127.0.0.1:{hbase.thrift_port}/{prefix}"


@contextmanager
def connections_of(url: str) -> Iterator[HBaseConnections]:
    connections = HBaseConnections(HBaseAddress.parse(url))
    try:
        yield connections
    finally:
        connections.close()


def regions(hbase: LocalHBase, table: str) -> list[bytes]:
    with connected(hbase) as connection:
        return [one["start_key"] for one in connection.table(table).regions()]


def test_tables_are_made_once_and_found_again(hbase: LocalHBase) -> None:
    url = url_of(hbase, "schema.one")
    lines = run("hbase", "create-tables", url).stdout.splitlines()
    kinds = ["messages", "payloads", "meta"]
    assert lines[:3] == [f"schema.one_{kind} is made" for kind in kinds]
    assert "begin with one region" in lines[3]
    assert lines[4] == FINE
    again = run("hbase", "create-tables", url).stdout.splitlines()
    assert again == lines[3:]
    with txaware.connect(url) as messaging:
        messaging.create_topic("t")
        messaging.publish("t", [b"a"])
        assert [message.payload for message in messaging.poll("t")] == [b"a"]


def test_with_zookeeper_each_bucket_has_a_region_of_its_own(hbase: LocalHBase) -> None:
    url = url_of(hbase, "schema.split")
    options = ("hbase", "create-tables", url, "--zookeeper", hbase.zookeeper)
    assert run(*options, "--compression", "none").stdout.splitlines()[-1] == FINE
    begin = [b"", *(bytes([number]) for number in range(1, 16))]
    assert regions(hbase, "schema.split_messages") == begin
    assert regions(hbase, "schema.split_payloads") == begin
    assert regions(hbase, "schema.split_meta") == [b""]
    assert run(*options, "--compression", "none").stdout.splitlines() == [FINE]
    told = run(*options, code=1).stdout.splitlines()  # wants GZ
    assert told == [
        f"schema.split_{kind}: its compression is NONE, not GZ"
        for kind in ("messages", "payloads", "meta")
    ]


def test_by_thrift_and_by_admin_they_are_made_alike(
    hbase: LocalHBase,
) -> None:
    for prefix in ("schema.one", "schema.two"):
        run("hbase", "create-tables", url_of(hbase, prefix))
    url = url_of(hbase, "schema.admin")
    run("hbase", "create-tables", url, "--zookeeper", hbase.zookeeper)
    with connected(hbase) as connection:
        for kind in schema.KINDS:
            one, other = (
                connection.table(f"{prefix}_{kind}").families()
                for prefix in ("schema.two", "schema.admin")
            )
            assert one == other


def test_what_differs_in_tables_is_told_and_left_as_it_is(hbase: LocalHBase) -> None:
    url = url_of(hbase, "schema.other")
    with connected(hbase) as connection:
        connection.create_table(
            "schema.other_messages",
            {"f": {"max_versions": 1, "time_to_live": 5, "bloom_filter_type": "NONE"}},
        )
        connection.create_table("schema.other_payloads", {"g": {}})
    told = run("hbase", "create-tables", url, code=1).stdout.splitlines()
    assert told[:7] == [
        "schema.other_meta is made",
        "schema.other_messages: keeps 1 versions, not 3",
        "schema.other_messages: its bloom filter is NONE, not ROW",
        "schema.other_messages: its compression is NONE, not GZ",
        "schema.other_messages: blocks that were read are not kept (BLOCKCACHE)",
        "schema.other_messages: everything is lost after 5 s (TTL)",
        "schema.other_payloads: it has no family f",
    ]
    assert FINE not in told
    with connected(hbase) as connection:
        (family,) = connection.table("schema.other_messages").families().values()
        assert family["max_versions"] == 1
    split = run(
        "hbase", "create-tables", url, "--zookeeper", hbase.zookeeper, code=1
    ).stdout.splitlines()
    assert split[-2:] == [
        "schema.other_messages: its buckets share regions",
        "schema.other_payloads: its buckets share regions",
    ]


def test_missing_tables_are_told_by_what_is_missing(hbase: LocalHBase) -> None:
    with connections_of(url_of(hbase, "schema.none")) as connections:
        assert schema.missing_tables(connections) == list(schema.KINDS)
        told = schema.differences(connections, compression="GZ")
    assert told == [f"schema.none_{kind} is missing" for kind in schema.KINDS]


def test_whoever_connects_to_missing_tables_is_told_what_to_run(
    hbase: LocalHBase,
) -> None:
    url = url_of(hbase, "schema.absent")
    with pytest.raises(BadRequest, match=f"txaware hbase create-tables {url}$"):
        txaware.connect(url)
    assert "tables are missing" in error_of("--url", url, "topic", "list", code=2)


@pytest.mark.parametrize("options", [(), ("--zookeeper",)])
def test_what_hbase_refuses_to_make_is_one_sentence(
    hbase: LocalHBase, options: tuple[str, ...]
) -> None:
    more = (*options, hbase.zookeeper) if options else ()
    for prefix, named in (("nowhere:x", "Namespace"), ("schema.zstd", "native")):
        compression = "ZSTD" if prefix == "schema.zstd" else "GZ"
        said = error_of(
            "hbase",
            "create-tables",
            url_of(hbase, prefix),
            "--compression",
            compression,
            *more,
            code=2,
        )
        assert f"HBase does not make {prefix}_messages: " in said
        assert named in said or "previously failed" in said
    with connected(hbase) as connection:
        assert not any(b"zstd" in name for name in connection.tables())
