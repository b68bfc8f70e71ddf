"""Processes that own a store in a `FakeHBase`, one after the other or at once."""

from collections.abc import Callable
from contextlib import suppress

from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.fake_leveldb import Crash
from tests.support.hbase_faults import Way
from txaware.errors import TxAwareError
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.hbase.ownership import Ownership, Process
from txaware.store.hbase.schema import create_tables
from txaware.store.hbase.table import HBaseTable
from txaware.store.hbase.writing import Writing
from txaware.store.keys import MESSAGE, PAYLOAD, POSITION, TOPIC

ADDRESS = HBaseAddress("fake", 9090, "t")
PREFIXES = (MESSAGE, PAYLOAD, POSITION, TOPIC)
NEVER_S = 1e6
Contents = dict[bytes, bytes]


def elsewhere(name: str) -> Process:
    """A process of which nobody here knows whether it lives."""
    return Process("elsewhere", "another", 1, name)


class Owner:
    """A process with a way of its own; what it waits passes in no time.

    While it waits, `meanwhile` is called.
    """

    def __init__(
        self,
        hbase: FakeHBase,
        clock: Clock,
        *,
        process: Process | None = None,
        patience_s: float = 0,
        sync_limit_bytes: int = 1 << 20,
    ) -> None:
        self.way = Way(hbase)
        self.clock = clock
        self.meanwhile: Callable[[], object] = lambda: None
        self.waited_s = self._passed_s = 0.0
        self._process = process or elsewhere(f"{id(self)}")
        self._patience_s = patience_s
        self._sync_limit_bytes = sync_limit_bytes

    def connections(self) -> HBaseConnections:
        """Connections of this process."""
        return HBaseConnections(
            ADDRESS,
            patience_s=self._patience_s,
            connect=self.way.connect,
            clock_s=lambda: self._passed_s,
            sleep_s=self._sleep,
        )

    def database(self) -> HBaseDatabase:
        """The store, taken."""
        connections = self.connections()
        ownership = Ownership(
            connections, process=self._process, beat_s=NEVER_S, sleep_s=self._sleep
        )
        writing = Writing(connections, now_ms=self.clock, clock_ms=self.clock)
        return HBaseDatabase(
            connections,
            ownership,
            writing,
            clock_ms=self.clock,
            clock_s=self._clock_s,
        )

    def table(self) -> HBaseTable:
        """The table over it."""
        return HBaseTable(
            self.database(),
            clock_ms=self.clock,
            sync_limit_bytes=self._sync_limit_bytes,
        )

    def _sleep(self, pause_s: float) -> None:
        self.waited_s += pause_s
        self._passed_s += pause_s
        self.meanwhile()

    def _clock_s(self) -> float:
        """So that readers look each time whether a failed batch can be settled."""
        self._passed_s += 1
        return self._passed_s


def made(hbase: FakeHBase) -> FakeHBase:
    """With the tables of a store."""
    create_tables(Owner(hbase, Clock()).connections())
    return hbase


def database_of(table: HBaseTable) -> HBaseDatabase:
    """What is below a table."""
    database = table._database
    assert isinstance(database, HBaseDatabase)
    return database


def contents(database: HBaseDatabase) -> Contents:
    """All rows but those that the store itself keeps."""
    found: Contents = {}
    for prefix in PREFIXES:
        rows = database.scan(
            prefix,
            start=b"",
            stop=None,
            limit=10_000,
            max_bytes=1 << 30,
            reverse=False,
        )
        found |= {prefix + key: value for key, value in rows}
    return found


def close(store: HBaseDatabase | HBaseTable | None) -> None:
    """Closes it, also where its process has crashed."""
    if store is not None:
        with suppress(Crash, TxAwareError):
            store.close()
