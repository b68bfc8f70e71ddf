"""The rows of a store in HBase: read as they are settled, written batch by batch."""

import threading
import time
from collections.abc import Callable, Sequence
from zlib import crc32

from coordinator.threads import try_lock
from txaware.errors import StoreCorrupted, Unavailable, closed
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import Row, Write
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.head import StoreHead
from txaware.store.hbase.ownership import Ownership, StoreInUse
from txaware.store.hbase.redo import RedoLog, decode_writes, encode_writes
from txaware.store.hbase.scans import Scanning, ScanRequest, whole_range
from txaware.store.hbase.schema import check_fits
from txaware.store.hbase.tallies import Tallies, common_prefix
from txaware.store.hbase.writing import Writing

# After a batch that failed, reads try at this interval to settle it.
LOOK_AGAIN_S = 0.5


class HBaseDatabase:
    """The `RowStore` in HBase, for the one process that owns it.

    A batch is part of the store when the head names its redo record. Its rows are
    written next, with a timestamp above all before. Until all of them are there,
    readers see the rows from before the batch. (Only a deletion is seen at once.)
    """

    def __init__(
        self,
        connections: HBaseConnections,
        ownership: Ownership,
        writing: Writing,
        *,
        clock_ms: ClockMs = system_clock_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = str(connections.address)
        self._connections = connections
        self._ownership = ownership
        self._scanning = Scanning(connections)
        self._redo = RedoLog(connections)
        self._tallies = Tallies(connections)
        self._writing = writing
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._settling = threading.RLock()
        self._looked_s = clock_s()
        self._closed = self._has_ended = False
        self._broken = True
        self._wanted: StoreHead | None = None
        self._tried_ms = self._settled_ms = 0
        try:
            self._head = ownership.take()
            if ownership.was_given_back:
                self._settled_ms, self._broken = self._head.time_ms, False
            self.reopen()
            self._forget_predecessors()
        except BaseException:
            ownership.close()
            raise

    @property
    def connections(self) -> HBaseConnections:
        """The connections to the store, for other ways to look at it."""
        return self._connections

    def announce(self, url: str | None) -> None:
        """Tells others where this process serves the store; None takes that back."""
        self._ownership.announce(url)

    def require_owned(self) -> None:
        """Raises `StoreInUse` where another process is known to have the store."""
        self._ownership.require()

    def look_owned(self) -> None:
        """Finds out whether another process has the store; raises `StoreInUse` then."""
        self._ownership.look()

    def status(self) -> str:
        """Returns `"OK"`, or that the store is another's, as the last beat found."""
        try:
            self._ownership.require()
        except StoreInUse as error:
            return str(error)
        return "OK"

    @property
    def last_batch(self) -> int:
        """The number of the last batch that is part of the store."""
        return self._head.batch

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""
        while True:
            settled_ms = self._settled()
            value = self._scanning.get(key, before_ms=settled_ms + 1)
            # A row that was overwritten several times meanwhile has no cell that old.
            if value is not None or settled_ms == self._settled_ms:
                return value

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes,
        stop: bytes | None,
        limit: int,
        max_bytes: int,
        reverse: bool,
    ) -> list[Row]:
        """Returns rows of one consistent view; see `OrderedTable.scan`."""
        first, last = whole_range(prefix, start, stop)
        before_ms = self._settled() + 1
        return self._scanning.scan(
            ScanRequest(prefix, first, last, limit, max_bytes, reverse, before_ms)
        )

    def has_batch(self, number: int, writes: Sequence[Write]) -> bool:
        """Tells whether the head names that batch."""
        return self._head.batch == number

    def batch(self, number: int) -> "HBaseBatch":
        """Begins a batch to fill; its rows are there when its `write()` returns."""
        if self._closed:
            raise closed()
        return HBaseBatch(self, number)

    def write(self, number: int, writes: list[Write]) -> None:
        """Makes a batch part of the store, and then writes its rows."""
        check_fits(writes)  # entries of the journal too, which are checked nowhere else
        with self._settling:
            if self._broken:
                raise Unavailable(f"{self.name}: an earlier batch is not settled")
            try:
                self._write(number, writes)
            except BaseException:
                self._broken = True
                raise

    def _write(self, number: int, writes: list[Write]) -> None:
        # No timestamp is used twice: rows of a failed batch's record may come late.
        last_ms = max(self._head.time_ms, self._tried_ms)
        time_ms = self._tried_ms = max(last_ms + 1, self._clock_ms())
        wanted = self._head.follow(batch=number, time_ms=time_ms)
        wanted = self._redo.keep(encode_writes(writes), wanted)
        self._wanted = wanted
        self._ownership.move(self._head, wanted)
        self._head, self._wanted = wanted, None
        self._writing.write(writes, time_ms=time_ms)
        self._settled_ms = time_ms
        self._tallies.count(writes, time_ms=time_ms)

    def reopen(self) -> None:
        """Finds out the outcome of the last batch, and finishes it."""
        with self._settling:
            if self._closed:
                raise closed()
            if not self._broken:
                return
            head = self._head = self._ownership.settle(self._head, self._wanted)
            self._wanted = None
            writes = decode_writes(self._record(head))
            self._writing.write(writes, time_ms=head.time_ms)
            self._settled_ms = head.time_ms
            self._broken = False

    def _record(self, head: StoreHead) -> bytes:
        """Reads the redo record of the last batch."""
        try:
            return self._redo.read(head)
        except StoreCorrupted:
            self._ownership.settle(head, None)  # or the next owner has removed it
            raise

    def _forget_predecessors(self) -> None:
        """Removes the redo records of earlier owners, whose rows are all written.

        This one has none yet. If another process has taken over by now, its records are
        younger, and stay.
        """
        found = self._head
        if found.pieces:
            self._head = found.follow().with_record(crc=crc32(b""))
            self._ownership.move(found, self._head)
        self._redo.remove_all(time_ms=self._head.time_ms)

    def damage(self, error: Exception) -> str | None:
        """Returns None: HBase keeps its files, and reports damage in them itself."""
        return None

    def compact(self, start: bytes, stop: bytes) -> None:
        """Removes the tallies of a range without rows, so that its size is told as 0.

        HBase itself frees the disk; `txaware hbase compact` makes it do so at once.
        """
        self._tallies.forget(start, stop, self._rows)

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about how many bytes a range takes; see `tallies`."""
        self._settled()  # raises once the store is closed
        return self._tallies.size_bytes(start, stop, self._rows)

    def _rows(self, start: bytes, stop: bytes, limit: int, max_bytes: int) -> list[Row]:
        """Reads rows from one whole key to before another."""
        prefix = common_prefix(start, stop)
        ask = ScanRequest(
            prefix,
            start,
            stop,
            limit,
            max_bytes,
            reverse=False,
            before_ms=self._settled() + 1,
        )
        return [(prefix + key, value) for key, value in self._scanning.scan(ask)]

    def close(self) -> None:
        """Gives the store up for others; a second close does nothing."""
        with self._settling:
            if self._has_ended:
                return
            is_first, self._closed = not self._closed, True
            try:
                if is_first and not self._broken:
                    self._ownership.give_back(self._head)
            finally:
                self._ownership.close()
                self._connections.close()
            self._has_ended = True  # or a second close finishes what is left

    def _settled(self) -> int:
        """Returns the timestamp up to which readers see everything.

        After a batch that failed this is unknown until the batch is settled. A reader
        settles it here, if nobody writes.
        """
        if self._closed:
            raise closed()
        self._ownership.require()
        if self._broken:
            self._settle_for_readers()
        return self._settled_ms

    def _settle_for_readers(self) -> None:
        now_s = self._clock_s()
        if now_s - self._looked_s >= LOOK_AGAIN_S:
            acquired: list[bool] = []
            try:
                if try_lock(self._settling, acquired):
                    self.reopen()
            finally:
                if True in acquired:
                    self._looked_s = self._clock_s()
                    self._settling.release()
        if self._broken:
            raise Unavailable(f"{self.name}: a batch that failed is not settled yet")


class HBaseBatch:
    """Writes to be made as a whole; for each key the last write counts."""

    def __init__(self, database: HBaseDatabase, number: int) -> None:
        self._database = database
        self._number = number
        self._writes: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        """Sets the value of a key."""
        self._writes[key] = value

    def delete(self, key: bytes) -> None:
        """Removes a row."""
        self._writes[key] = None

    def write(self) -> None:
        """Writes the batch; all of it can be read when this returns."""
        self._database.write(self._number, list(self._writes.items()))
