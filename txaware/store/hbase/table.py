"""The table in HBase; everything above its database is as in LevelDB."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from coordinator.embedded.commit_log import Wait
from coordinator.embedded.group_commit import Then
from txaware.clock import ClockMs
from txaware.config import Settings
from txaware.errors import BadRequest
from txaware.interfaces import Write
from txaware.keys import after
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.hbase.key_check import KeyCheck
from txaware.store.hbase.key_walk import walk
from txaware.store.hbase.ownership import Ownership, Pause
from txaware.store.hbase.schema import check_fits
from txaware.store.hbase.view import HBaseView
from txaware.store.hbase.writing import Writing
from txaware.store.interfaces import Notes
from txaware.store.journaled_table import JournaledTable
from txaware.store.outline import Outline


class HBaseTable(JournaledTable):
    """The durable table in HBase; this process owns its rows and its journal."""

    reads_wait = True

    def __init__(self, database: HBaseDatabase, **options: Any) -> None:
        super().__init__(database, **options)
        self._hbase = database

    @property
    def connections(self) -> HBaseConnections:
        """The connections to the store, for other ways to look at it."""
        return self._hbase.connections

    def announce(self, url: str | None) -> None:
        """Tells others where this process serves the store; None takes that back."""
        self._hbase.announce(url)

    def require_owned(self) -> None:
        """Raises `StoreInUse` where another process is known to have the store."""
        self._hbase.require_owned()

    def view(self) -> NoReturn:
        """Raises `BadRequest`, and says what there is instead of a backup."""
        raise BadRequest(
            "a backup is made of a directory; of data in HBase, txaware copy makes a "
            "copy elsewhere, and HBase has snapshots of its own"
        )

    def checked_keys(
        self, notes: Notes, tags: Iterable[bytes], go_on: Callable[[], object]
    ) -> HBaseView | None:
        """Notes what is wrong with keys as HBase has them; returns a view of all."""
        return KeyCheck(self.connections).checked_keys(notes, tags, go_on)

    def submit(self, writes: Sequence[Write], then: Then | None = None) -> Wait:
        """Takes writes for the next batch; refuses any above HBase's limits."""
        check_fits(writes)
        return super().submit(writes, then)

    def hand_over(self, writes: Sequence[Write], then: Then) -> None:
        """Takes writes for the next batch; another thread calls `then`."""
        check_fits(writes)
        super().hand_over(writes, then)

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Holds rows for the commit; False if they are too many for that."""
        check_fits(writes)
        return super().hold(pointer, writes)

    def outline(self, tag: bytes) -> Outline:
        """Makes the outline of a table; held rows come first, as they move to HBase."""
        found = Outline()
        found.saw(tag + key for key, _ in self._held.scan(tag, tag, after(tag)))
        walk(self.connections, tag, found)
        return found

    @classmethod
    def open(
        cls,
        address: HBaseAddress,
        settings: Settings,
        *,
        clock_ms: ClockMs,
        pause: Pause | None = None,
    ) -> "HBaseTable":
        """Takes the store at an address, whose tables have been made.

        With `pause` an owner is watched in any case, and `pause` is called between two
        looks.
        """
        connections = HBaseConnections(
            address,
            timeout_s=settings.hbase_timeout_s,
            patience_s=settings.hbase_patience_s,
        )
        try:
            database = HBaseDatabase(
                connections,
                Ownership(
                    connections,
                    watches=pause is not None,
                    sleep_s=pause or time.sleep,
                ),
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
