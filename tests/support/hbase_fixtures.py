"""A real HBase for tests; where it cannot run they are skipped, in CI they fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator.errors import MissingExtra, Unavailable
from coordinator.java.jars import cached_jars
from coordinator.java.process import find_java, py4j_jar
from tests.support.tephra_fixtures import missing
from txaware.local_hbase import HBaseAdmin, LocalHBase
from txaware.local_hbase.jars import HBASE_JARS

MIB = 1 << 20
VALUE = bytes(range(256)) * 4096  # one MiB


@pytest.fixture(scope="session")
def hbase_java() -> str:
    """A Java, with HBase's jars and what Python needs to speak to it."""
    for package in ("happybase", "thriftpy2", "py4j", "jgo"):
        try:
            __import__(package)
        except ImportError as error:
            missing(f"the hbase extra is not installed: {error}")
    try:
        py4j_jar()
        cached_jars(HBASE_JARS)
        return find_java()
    except (MissingExtra, Unavailable) as error:
        missing(str(error))


@pytest.fixture(scope="session")
def shared_hbase(
    hbase_java: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalHBase]:
    """One HBase for the whole run; tests take it by the name `hbase`."""
    with LocalHBase(tmp_path_factory.mktemp("hbase")) as found:
        yield found


@pytest.fixture
def hbase(shared_hbase: LocalHBase) -> Iterator[LocalHBase]:
    """The HBase of the run, at the same ports always; a test may kill and pause it.

    What a test ended is started again afterwards. Tables stay: name them by the test.
    """
    yield shared_hbase
    shared_hbase.master.resume()
    shared_hbase.thrift.resume()
    if not (shared_hbase.master.alive and shared_hbase.thrift.alive):
        shared_hbase.start()


@pytest.fixture(scope="session")
def hbase_admin(shared_hbase: LocalHBase) -> Iterator[HBaseAdmin]:
    """HBase's own Admin for the HBase of the run, which it finds again by itself."""
    with HBaseAdmin(shared_hbase.zookeeper) as found:
        yield found


@contextmanager
def connected(hbase: LocalHBase) -> Iterator[Any]:
    import happybase

    connection = happybase.Connection("127.0.0.1", hbase.thrift_port, timeout=60_000)
    try:
        yield connection
    finally:
        connection.close()


def deleted_rows(hbase: LocalHBase, admin: HBaseAdmin, name: str) -> None:
    """Eight MiB in the files of a table, of which nothing can be read any more."""
    with connected(hbase) as connection:
        connection.create_table(name, {"f": {"max_versions": 1}})
        table = connection.table(name)
        for number in range(8):
            table.put(b"%d" % number, {b"f:q": VALUE}, timestamp=1000)
        admin.flush(name)
        for number in range(8):
            table.delete(b"%d" % number, timestamp=1001)
        admin.flush(name)
        assert list(table.scan()) == []
