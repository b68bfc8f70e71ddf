"""The table in HBase, opened: everything above its database is as in LevelDB."""

from typing import Any

from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.tables.durable import DurableTable
from txaware.tables.hbase.address import HBaseAddress
from txaware.tables.hbase.connections import Connections
from txaware.tables.hbase.database import HBaseDatabase
from txaware.tables.hbase.ownership import Ownership
from txaware.tables.hbase.writing import Writing


class HBaseTable(DurableTable):
    """Rows and journal in HBase; this process owns them."""

    reads_wait = True

    def __init__(self, database: HBaseDatabase, **options: Any) -> None:
        super().__init__(database, **options)
        self._hbase = database

    @property
    def connections(self) -> Connections:
        """Those to the store, for whoever looks at it in another way."""
        return self._hbase.connections

    def announce(self, url: str | None) -> None:
        """Says where this process serves the store; None for nowhere any more."""
        self._hbase.announce(url)

    @classmethod
    def open(
        cls, address: HBaseAddress, settings: Settings, *, clock_ms: ClockMs
    ) -> "HBaseTable":
        """Takes the store at an address, whose tables have been made."""
        connections = Connections(
            address,
            timeout_s=settings.hbase_timeout_s,
            patience_s=settings.hbase_patience_s,
        )
        try:
            database = HBaseDatabase(
                connections,
                Ownership(connections),
                Writing(connections, now_ms=clock_ms),
            )
        except BaseException:
            connections.close()
            raise
        return cls(
            database,
            clock_ms=clock_ms,
            sync_limit_bytes=settings.sync_limit_bytes,
        )
