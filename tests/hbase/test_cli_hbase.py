"""`txaware hbase`: a local HBase until a signal, and compactions with their effect."""

import signal
from pathlib import Path

import pytest

from tests.support.cli_runs import error_of, run, run_json, start
from tests.support.hbase_fixtures import MIB, deleted_rows
from tests.support.ports import free_port
from txaware.local_hbase import HBaseAdmin, LocalHBase
from txaware.local_hbase.readiness import listens

pytestmark = pytest.mark.hbase


def test_run_says_where_it_is_and_ends_by_a_signal(
    hbase_java: str, tmp_path: Path
) -> None:
    thrift, at = free_port(), free_port()
    ports = ("--thrift-port", str(thrift), "--zookeeper-port", str(at))
    process = start("hbase", "run", str(tmp_path / "new"), *ports)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().decode().split()
        zookeeper = process.stdout.readline().decode().split()
        port = int(
            address[1].removeprefix("hbase://127.0.0.1:").removesuffix("/txaware")
        )
        assert (address[0], zookeeper[0]) == ("address", "zookeeper")
        assert (port, zookeeper[1]) == (thrift, f"127.0.0.1:{at}")
        assert listens(port)
        assert listens(int(zookeeper[1].removeprefix("127.0.0.1:")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not listens(port)
    finally:
        process.kill()
        process.communicate()


def test_run_on_a_directory_in_use_is_not_now(hbase: LocalHBase) -> None:
    said = error_of("hbase", "run", str(hbase.directory), code=3)
    assert "is in use by process" in said


def test_compact_says_what_it_freed(hbase: LocalHBase, hbase_admin: HBaseAdmin) -> None:
    deleted_rows(hbase, hbase_admin, "by-hand.rows")
    options = (
        "hbase",
        "compact",
        "--zookeeper",
        hbase.zookeeper,
        "--prefix",
        "by-hand",
    )
    lines = run(*options).stdout.splitlines()
    assert lines[0].split("  ")[0] == "TABLE"
    name, before, after = lines[1].split()
    assert name == "by-hand.rows"
    assert int(before) >= 8 * MIB
    assert int(after) <= MIB
    (again,) = run_json(*options)
    assert again["table"] == "by-hand.rows"
    assert again["before"] <= MIB


def test_compact_without_tables_says_so(hbase: LocalHBase) -> None:
    options = (
        "hbase",
        "compact",
        "--zookeeper",
        hbase.zookeeper,
        "--prefix",
        "nobodys",
    )
    assert "no table's name begins with nobodys" in run(*options).stderr


def test_compact_without_a_cluster_is_not_now(hbase_java: str) -> None:
    said = error_of("hbase", "compact", "--zookeeper", "127.0.0.1:1", code=3)
    assert said == "no ZooKeeper listens at 127.0.0.1:1"
