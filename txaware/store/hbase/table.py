"""The table in HBase; everything above its database is as in LevelDB."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from coordinator.embedded.commit_log import Wait
from coordinator.embedded.group_commit import End
from coordinator.embedded.records import Record
from coordinator.interfaces import OnWritten
from txaware.errors import BadRequest
from txaware.model.clock import ClockMs
from txaware.model.interfaces import Write
from txaware.model.settings import Settings
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.hbase.key_check import KeyCheck
from txaware.store.hbase.ownership import Ownership, Pause
from txaware.store.hbase.salting import BUCKETS
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import SALTED, check_fits, kind_of
from txaware.store.hbase.view import HBaseView
from txaware.store.hbase.writing import Writing
from txaware.store.interfaces import Notes
from txaware.store.journaled_table import JournaledTable, StoreJournal
from txaware.store.keys import after
from txaware.store.outline import Outline, group_of

PAGE_ROWS = 256
# If a page tells of less than two topics, a look into each topic is not worse. The walk
# reads so many pages before it judges that.
FREE_PAGES = 32


class HBaseJournal(StoreJournal):
    """The coordinator's journal in HBase, which takes no rows above HBase's limits."""

    def submit(
        self, *records: Record, end: End | None = None, rows: Sequence[Any] = ()
    ) -> Callable[[], None]:
        """Puts records and rows into the next batch; returns a function that waits."""
        if rows:
            check_fits(rows)
        return super().submit(*records, end=end, rows=rows)


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

    def look_owned(self) -> None:
        """Finds out whether another process has the store; raises `StoreInUse` then."""
        self._hbase.look_owned()

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

    def _journal(self) -> StoreJournal:
        """Makes the journal, whose batches the rows share."""
        return HBaseJournal(self._batches, self._held, self.newest_format)

    def submit(
        self, writes: Sequence[Write], on_written: OnWritten | None = None
    ) -> Wait:
        """Takes writes for the next batch; refuses any above HBase's limits."""
        check_fits(writes)
        return super().submit(writes, on_written)

    def hand_over(self, writes: Sequence[Write], on_written: OnWritten) -> None:
        """Takes writes for the next batch; another thread calls `on_written`."""
        check_fits(writes)
        super().hand_over(writes, on_written)

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Holds rows for the commit; False if they are too many for that."""
        check_fits(writes)
        return super().hold(pointer, writes)

    def outline(self, tag: bytes) -> Outline:
        """Makes the outline of a table; held rows come first, as they move to HBase."""
        found = Outline()
        found.saw(tag + key for key, _ in self._held.scan(tag, tag, after(tag)))
        _walk(self.connections, tag, found)
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
        return cls.on(connections, settings, clock_ms=clock_ms, pause=pause)

    @classmethod
    def on(
        cls,
        connections: HBaseConnections,
        settings: Settings,
        *,
        clock_ms: ClockMs,
        pause: Pause | None = None,
        seizes: bool = False,
    ) -> "HBaseTable":
        """Takes the store at the end of connections, which are closed with it.

        With `seizes` nobody waits for whether its owner is gone.
        """
        try:
            database = HBaseDatabase(
                connections,
                Ownership(
                    connections,
                    watches=pause is not None,
                    seizes=seizes,
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


def _walk(connections: HBaseConnections, tag: bytes, outline: Outline) -> None:
    """Tells an outline of all rows whose keys begin with the byte of a table.

    Topics with few rows are read whole, by their keys alone, many of them in one call.
    After a page with one topic only, the rest of that topic is passed over. So the walk
    takes some calls for each bucket, and not for each topic.
    """
    if kind_of(tag) in SALTED:
        for bucket in range(BUCKETS):
            _Bucket(connections, tag, outline, bytes([bucket])).walk()
    else:
        _Bucket(connections, tag, outline, tag).walk()


class _Bucket:
    """Rows that lie in order, with a byte in place of their table's."""

    def __init__(
        self, connections: HBaseConnections, tag: bytes, outline: Outline, byte: bytes
    ) -> None:
        self._connections = connections
        self._table = connections.address.table(kind_of(tag))
        self._tag = tag
        self._outline = outline
        self._byte = byte

    def walk(self) -> None:
        """Reads pages to the end, or until that takes too many for the topics found."""
        at, pages, topics = self._tag, 0, 0
        while True:
            keys = self._connections.repeat(partial(self._page, at))
            self._outline.saw(keys)
            if len(keys) < PAGE_ROWS:
                return
            groups = {group_of(key) for key in keys}
            last = group_of(keys[-1])
            if len(groups) == 1 and last is not None:
                self._outline.passed_over(last)
                at = after(last)
            else:
                at = keys[-1] + b"\0"
            pages, topics = pages + 1, topics + len(groups)
            if pages > FREE_PAGES + topics // 2:
                self._outline.stopped_at(at)
                return

    def _page(self, start: bytes, client: Any) -> list[bytes]:
        """Reads a page of whole keys from `start` on."""
        wanted = self._connections.structs.TScan(
            startRow=self._byte + start[1:],
            stopRow=bytes([self._byte[0] + 1]),
            caching=PAGE_ROWS,
            filterString=b"KeyOnlyFilter()",
        )
        with scanner(client, self._table, wanted) as more:
            return [self._tag + row.row[1:] for row in more(PAGE_ROWS)]
