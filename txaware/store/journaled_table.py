"""The durable table, which outlives the process, with the coordinator's journal."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter

from coordinator.embedded.commit_log import Wait
from coordinator.embedded.group_commit import End, GroupCommit
from coordinator.embedded.lives import NO_PLACE
from coordinator.embedded.records import Aborted, Invalidated, Record
from coordinator.interfaces import OnWritten
from txaware.errors import StoreCorrupted, Unavailable
from txaware.model.clock import ClockMs, StoreClock, system_clock_ms
from txaware.model.interfaces import Emptiness, OrderedTable, Row, Write
from txaware.model.metrics import WriteMetrics
from txaware.store.batch_writer import BatchWriter, UncommittedRows
from txaware.store.interfaces import RowStore
from txaware.store.keys import STATE, UNWATCHED, after, pointer_key

FORMAT, FIRST_FORMAT = STATE + b"format", b"txaware 1"
# These formats have the same rows. A version that knows the third also notes who keeps
# rows elsewhere, and forgets no invalid transaction that those rows may need. Earlier
# versions do not, so they refuse the third format.
SECOND_FORMAT, OUR_FORMAT = b"txaware 2", b"txaware 3"
# The fourth has rows, or records of prepared transactions, that earlier versions do not
# know, and comes with the first one.
NEWEST_FORMAT = b"txaware 4"
# This one comes with the first topic of several partitions: an earlier version would
# take the topic's own rows for all of it.
PARTITIONED_FORMAT = b"txaware 4.1"
# This one comes with the first batch of compressed messages, which an earlier version
# would deliver as one message.
PACKED_FORMAT = b"txaware 4.2"
# This one comes with the first further shard, whose rows an earlier version would miss.
SHARDED_FORMAT = b"txaware 5"
# All that this version reads, in the order in which they came.
FORMATS = (
    *(FIRST_FORMAT, SECOND_FORMAT, OUR_FORMAT),
    *(NEWEST_FORMAT, PARTITIONED_FORMAT, PACKED_FORMAT),
    SHARDED_FORMAT,
)


def keep_earlier_versions_away(table: OrderedTable) -> None:
    """Raises the format of a table, before the first row that those do not know.

    An earlier version would forget transactions that such rows need. It is durable
    when this returns, and costs a sync once in the life of a store.
    """
    if writes := table.newest_format():
        table.submit(writes)()


class StoreJournal(GroupCommit):
    """The coordinator's journal, which tells the held rows of ended transactions."""

    called = "this Messaging"

    def __init__(
        self,
        batches: BatchWriter,
        held: UncommittedRows,
        newest_format: Callable[[], Sequence[Write]],
        *,
        place: bytes = NO_PLACE,
    ) -> None:
        super().__init__(batches, place=place)
        self._held = held
        self._newest_format = newest_format

    def newest_format(self) -> Sequence[Write]:
        """Returns the row that keeps earlier versions away, unless it is there."""
        return self._newest_format()

    def _noted(self, transaction_id: int, record: Record) -> None:
        if isinstance(record, Aborted):
            self._held.release((transaction_id,))
        elif isinstance(record, Invalidated):
            self._held.release(record.pointers)

    def close(self) -> None:
        """Gives the database back; a second close finishes what an interrupt left.

        Before that it writes released rows that no batch has carried, with the records
        that judge them. No caller that got its answer depends on them.
        """
        try:
            if self._held and not self._closed:
                with suppress(Unavailable):
                    self.append()
        finally:
            super().close()


class JournaledTable:
    """A table whose batches are on disk, each shared by all threads that wait for one.

    Rows of open transactions are held in memory and are written with the commit. One
    process owns the store.
    """

    reads_wait = False

    def __init__(
        self,
        store: RowStore,
        *,
        clock_ms: ClockMs = system_clock_ms,
        sync_limit_bytes: int = 1 << 20,
    ) -> None:
        self.name = store.name
        self._sync_limit_bytes = sync_limit_bytes
        self._setting = threading.Lock()
        self._held = UncommittedRows()
        self._database = store
        try:
            self._batches = BatchWriter(store, self._held)
            self.clock = self._clock(clock_ms)
        except BaseException:
            store.close()
            raise
        self.journal = self._journal()

    def _journal(self) -> StoreJournal:
        """Makes the journal, whose batches the rows share."""
        return StoreJournal(
            self._batches, self._held, self.newest_format, place=self._place()
        )

    def _place(self) -> bytes:
        """Returns the place of the store: see `Journal`."""
        return NO_PLACE

    def _clock(self, clock_ms: ClockMs) -> StoreClock:
        """Makes the store's clock, which begins at the last time that was saved."""
        found = self._database.get(FORMAT)
        if found is not None and found not in FORMATS:
            raise StoreCorrupted(
                f"{self.name} has the format {found!r}, and this version reads "
                f"{FORMATS[0]!r} to {FORMATS[-1]!r}"
            )
        self._kept_format = found or b""
        self._format = max(self._kept_format, OUR_FORMAT)
        saved_ms = self._batches.saved_ms
        clock = StoreClock(clock_ms, clock_ms() if saved_ms is None else saved_ms)
        self._batches.clock = clock
        if found == FIRST_FORMAT:
            self._bring_up_to_date()
        if self._kept_format < OUR_FORMAT:
            writes: list[Write] = [(FORMAT, OUR_FORMAT)]
            if found is not None:
                unwatched = self._batches.history.reserved
                writes.append((UNWATCHED, pointer_key(unwatched)))
            self._batches.write([], writes)
        return clock

    def _bring_up_to_date(self) -> None:
        """Turns rows of the first format into ours; what was done is not redone."""

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""
        held = self._held.get(key)
        return self._database.get(key) if held is None else held

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        reverse: bool = False,
    ) -> list[Row]:
        """Returns rows whose key begins with `prefix`, in order and without it."""
        # Held rows come first: one that moves to the disk meanwhile is then seen twice.
        held: list[Row] = []
        if self._held:
            last = after(prefix) if stop is None else prefix + stop
            held = self._held.scan(prefix, prefix + start, last)
        rows = self._database.scan(
            prefix,
            start=start,
            stop=stop,
            limit=limit,
            max_bytes=max_bytes,
            reverse=reverse,
        )
        return _merged(rows, held, limit, max_bytes, reverse=reverse) if held else rows

    def submit(
        self, writes: Sequence[Write], on_written: OnWritten | None = None
    ) -> Wait:
        """Takes writes for the next batch."""
        self._drop_held(writes)
        return self.journal.submit(
            end=None if on_written is None else End(on_written), rows=writes
        )

    def hand_over(self, writes: Sequence[Write], on_written: OnWritten) -> None:
        """Takes writes for the next batch; another thread calls `on_written`."""
        self._drop_held(writes)
        self.journal.hand_over(writes, End(on_written))

    def _drop_held(self, writes: Sequence[Write]) -> None:
        if self._held:
            self._held.drop(key for key, value in writes if value is None)

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Holds rows for the commit; False if they are too many for that."""
        return self._held.hold(pointer, writes, self._sync_limit_bytes)

    def replace_held(self, key: bytes, value: bytes) -> bool:
        """Changes a row that is held; False if it is not held (any more)."""
        return self._held.replace(key, value)

    def reserve_time(self) -> None:
        """Makes sure that no restart gives out a time again that was given out."""
        if not self.clock.is_saved:
            # Any batch saves the time; this one has to have something in it.
            self.submit([(FORMAT, self._format)])()

    def newest_format(self) -> Sequence[Write]:
        """Returns the row that keeps earlier versions away, unless it is there."""
        return self._raised(NEWEST_FORMAT)

    def partitioned_format(self) -> Sequence[Write]:
        """Returns the row that comes before partitions, unless it is there."""
        return self._raised(PARTITIONED_FORMAT)

    def sharded_format(self) -> Sequence[Write]:
        """Returns the row that comes before further shards, unless it is there."""
        return self._raised(SHARDED_FORMAT)

    def packed_format(self) -> Sequence[Write]:
        """Returns the row that comes with compressed messages, unless it is there."""
        return self._raised(PACKED_FORMAT)

    @property
    def has_batches(self) -> bool:
        """True once a batch of compressed messages was written, or was about to be."""
        return self._format >= PACKED_FORMAT

    def _raised(self, least: bytes) -> Sequence[Write]:
        if self._kept_format >= least:
            return ()
        # First: nobody writes the earlier one again.
        self._format = max(self._format, least)
        self._kept_format = self._database.get(FORMAT) or b""
        return () if self._kept_format >= least else ((FORMAT, self._format),)

    def compare_and_set(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        """Sets a value if it is still `old`; that is kept when this returns."""
        with self._setting:
            if self.get(key) != old:
                return False
            self.submit([(key, new)])()
            return True

    def compact(self, start: bytes, stop: bytes) -> None:
        """Gives the space of deleted rows back to the disk."""
        self._database.compact(start, stop)

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about the size of a range on disk, without the write buffer."""
        return self._database.size_bytes(start, stop)

    def outline(self, tag: bytes) -> Emptiness | None:
        """Returns None: a look into each topic costs hardly more."""
        return None

    def write_metrics(self) -> WriteMetrics:
        """Returns the figures about the batches."""
        return self._batches.counters.snapshot()

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return self.journal.status()

    def close(self) -> None:
        """Writes the released rows and gives the store back."""
        self.journal.close()


def _merged(
    rows: list[Row], held: list[Row], limit: int, max_bytes: int, *, reverse: bool
) -> list[Row]:
    """Merges rows in order; a held row may be newer than that on disk."""
    values = dict(rows)
    if len(rows) >= limit or sum([len(value) for _, value in rows]) >= max_bytes:
        last = rows[-1][0]  # there may be more rows on disk after it
        held = [row for row in held if (row[0] > last) == reverse or row[0] == last]
    values.update(held)
    return sorted(values.items(), key=itemgetter(0), reverse=reverse)[:limit]
