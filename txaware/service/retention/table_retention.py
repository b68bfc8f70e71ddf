"""Removes the versions of users' rows that nobody can read any more."""

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator
from coordinator.threads import try_lock
from coordinator.transaction import Transaction
from txaware.errors import TxAwareError, Unavailable
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.service.retention.deletion import Deleting
from txaware.service.retention.position_retention import Looks, saved_rows, unneeded
from txaware.service.visibility import ForeignPointers
from txaware.store.columns import pointer_of
from txaware.store.keys import POINTER_BYTES, TABLE
from txaware.store.ranges import pieces
from txaware.store.table_versions import expires, value_at

log = logging.getLogger(__name__)

# After so many changes of a row its versions are looked through at once.
CHANGES = 64
# With more changed rows than this, a clean-up goes through all rows instead.
MOST_LISTED = 200_000


class TableRetention:
    """Lists the rows that changed, so that a clean-up reads only these.

    The first clean-up of a process reads all rows: nobody knows what the one before
    left. A row stays listed until one version is left, which neither deletes it nor
    expires. Where the coordinator is elsewhere, others may have written with its
    pointers at any time, so that every clean-up reads all rows.
    """

    def __init__(
        self,
        table: OrderedTable,
        coordinator: Coordinator,
        strangers: ForeignPointers,
        rewriting: threading.Lock,
        barrier: WriteBarrier | None,
        looks: Looks,
        clock_ms: ClockMs,
    ) -> None:
        # Counts removals: a reader with a fresh snapshot may have come too late.
        self.removals = 0
        self._table = table
        self._coordinator = coordinator
        self._strangers = strangers
        self._rewriting = rewriting
        self._barrier = barrier
        self._looks = looks
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._changes: dict[bytes, int] = {}
        self._knows_all = False

    def has_rows(self) -> bool:
        """Tells whether any table has a row."""
        return bool(self._table.scan(TABLE, limit=1))

    def changed(self, keys: Iterable[bytes]) -> None:
        """Lists the rows of versions that were written, named by whole keys.

        A row that changes often is trimmed. A failure of that is logged, and the next
        clean-up does it: the row is written all the same.
        """
        counts = [(row, self._count(row) % CHANGES) for row in map(_row_of, keys)]
        try:
            if any(count == CHANGES - 1 for _, count in counts):
                # So that little is between this look and that of the trim.
                self._looks.before(self._coordinator.snapshot())
            for row, count in counts:
                if not count:
                    self._trim(row)
        except TxAwareError as error:
            log.info("versions of a row are looked through again later: %s", error)

    def clean_up(self, snapshot: Transaction, deleting: Deleting) -> int:
        """Removes versions that nobody needs; returns how many.

        After it no row is left of transactions that are invalid in the snapshot.
        """
        with self._lock:
            listed, self._changes = self._changes, {}
            reads_all = not self._knows_all or self._barrier is None
            self._knows_all = True
        removed, done, looks = 0, False, self._looks.before(snapshot)
        try:
            for row, versions in self._all() if reads_all else self._of(listed):
                keys, is_settled = self._unneeded(versions, snapshot, looks)
                if keys:
                    self.removals += 1
                    deleting.delete(keys)
                    removed += len(keys)
                if not is_settled:
                    self._count(row)
            done = True
        finally:
            if not done:
                self._knows_all = False
        return removed

    def _count(self, row: bytes) -> int:
        with self._lock:
            count = self._changes.get(row, 0) + 1
            self._changes[row] = count
            if len(self._changes) > MOST_LISTED:
                self._changes.clear()
                self._knows_all = False
        return count

    def _trim(self, row: bytes) -> None:
        taken: list[bool] = []
        try:
            if not try_lock(self._rewriting, taken):
                return
            snapshot = self._coordinator.snapshot()
            looks = self._looks.before(snapshot)
            for _, versions in self._of([row]):
                saved = saved_rows(versions, self._strangers, self._barrier)
                keys = unneeded(saved, snapshot, looks)
                if keys:
                    self.removals += 1
                    writes: list[Write] = [(key, None) for key in keys]
                    # Nobody waits for it: a sync of its own would cost a commit.
                    self._table.hand_over(writes, _told)
        finally:
            if True in taken:
                self._rewriting.release()

    def _unneeded(
        self, versions: list[Row], snapshot: Transaction, looks: Sequence[Transaction]
    ) -> tuple[list[bytes], bool]:
        """Returns the keys to remove, and whether nothing will be due here later."""
        saved = saved_rows(versions, self._strangers, self._barrier)
        keys = unneeded(saved, snapshot, looks)
        gone = set(keys)
        left = [(key, value) for key, value in versions if key not in gone]
        if len(left) != 1:
            return keys, not left
        key, value = left[0]
        pointer = pointer_of(value) or 0
        if value_at(value, self._clock_ms()) is not None:
            return keys, not expires(value) and snapshot.is_visible(pointer)
        # Without it an earlier version could appear, of whoever is still writing one.
        if 0 < pointer < snapshot.first_in_progress and snapshot.is_visible(pointer):
            return [*keys, key], True
        return keys, False

    def _all(self) -> Iterator[tuple[bytes, list[Row]]]:
        rows = (
            (TABLE + key, value)
            for piece in pieces(self._table, TABLE)
            for key, value in piece
        )
        for row, versions in groupby(rows, key=lambda version: _row_of(version[0])):
            yield row, list(versions)

    def _of(self, rows: Iterable[bytes]) -> Iterator[tuple[bytes, list[Row]]]:
        for row in rows:
            versions = [
                (row + key, value)
                for piece in pieces(self._table, row)
                for key, value in piece
            ]
            yield row, versions


def _row_of(version: bytes) -> bytes:
    """Returns the beginning of the keys of all versions of a row."""
    return version[:-POINTER_BYTES]


def _told(error: Unavailable | None) -> None:
    if error is not None:
        log.info("versions of a row are looked through again later: %s", error)
