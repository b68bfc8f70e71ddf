"""Removes versions of rows that nobody can read, and names that are over."""

import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator
from coordinator.threads import try_lock
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import BadRequest, TxAwareError, Unavailable
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.settings import Settings
from txaware.service.retention.deletion import BATCH_ROWS, Deleting
from txaware.service.visibility import ForeignPointers, Visibility
from txaware.store.columns import pointer_of
from txaware.store.interfaces import pieces
from txaware.store.kinds import versioned_kind, versioned_prefixes, versioned_tables
from txaware.store.versioned_rows import (
    AnyKind,
    expires,
    payload_at,
    without_pointer,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

# So many earlier snapshots are kept; with fewer a few rows more stay.
MOST_LOOKS = 16
# With more written names than this, a clean-up goes through all rows instead.
MOST_LISTED = 200_000

# A version: its key, and the pointer that wrote it, negative after a rollback.
Saved = tuple[bytes, int]


class Looks:
    """Earlier snapshots, by which versions are judged that an open transaction sees.

    Two of them are remembered while a transaction is open that began between them: it
    sees at least as much as the first, and no more than the second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: list[Transaction] = []

    def before(self, now: Transaction) -> list[Transaction]:
        """Returns the earlier looks; remembers this one and forgets useless ones."""
        with self._lock:
            before = now.transaction_id
            earlier = [one for one in self._looks if one.transaction_id < before]
            if len(earlier) == len(self._looks):  # else a later one was faster
                self._looks = _useful([*earlier, now])[-MOST_LOOKS:]
            return earlier


class VersionRetention:
    """Removes versions, but keeps all that open or later transactions may read.

    It looks with a snapshot, and at earlier `looks`. So a name costs about as many rows
    as its kind is written before a trim, and as many for each pair of looks with an
    open transaction between them.

    Names that were written are listed. Of kinds that are listed, a clean-up reads no
    others; but the first of a process reads all, as nobody knows what the one before
    left. A name stays listed until one version is left, which neither deletes it nor
    expires. Where the coordinator is elsewhere, others may have written with its
    pointers at any time, so that every clean-up reads all rows.
    """

    def __init__(
        self,
        table: OrderedTable,
        coordinator: Coordinator,
        foreign_pointers: ForeignPointers,
        rewriting: threading.Lock,
        settings: Settings,
        barrier: WriteBarrier | None,
        clock_ms: ClockMs,
    ) -> None:
        # Counts removals: a reader with a fresh snapshot may have come too late.
        self.removals = 0
        self._looks = Looks()
        self._table = table
        self._coordinator = coordinator
        self._foreign_pointers = foreign_pointers
        self._rewriting = rewriting
        self._settings = settings
        self._barrier = barrier
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        # How often each name was written since its last trim.
        self._writes: dict[bytes, int] = {}
        self._knows_all = False

    def has_any(self) -> bool:
        """Tells whether there is any versioned row."""
        return any(self._table.scan(one, limit=1) for one in versioned_prefixes())

    def as_seen(
        self,
        transaction: Transaction | None,
        judge: Callable[[Transaction | None], Visibility],
        look: Callable[[Visibility], T],
    ) -> T:
        """Looks by a snapshot; again if versions went while it looked by a fresh one.

        What an open transaction sees is never removed.
        """
        while True:
            removals = self.removals
            found = look(judge(transaction))
            if transaction is not None or removals == self.removals:
                return found

    def wrote(self, kind: AnyKind, names: Iterable[bytes]) -> None:
        """Lists names, by the beginnings of their keys, and trims what is due.

        A failure of that is logged, and the trim done another time: the row is written
        all the same.
        """
        nearly_due = kind.trim_after - 1
        due = self._counted(names, nearly_due)
        if not due:  # nearly always
            return
        try:
            if any(count == nearly_due for _, count in due):
                # So that little is between this look and that of the trim.
                self._looks.before(self._coordinator.snapshot())
            for name, count in due:
                if count > nearly_due:
                    self._trim(name)
        except TxAwareError as error:
            log.info("versions of a row are looked through again later: %s", error)

    def clean_up(self, snapshot: Transaction, deleting: Deleting) -> Counter[str]:
        """Removes what nobody needs; returns how many versions, by their reason.

        After it no version is left, of kinds that are listed, of transactions that are
        invalid in the snapshot.
        """
        with self._lock:
            listed, self._writes = self._writes, {}
            reads_all = not self._knows_all or self._barrier is None
            self._knows_all = True
        removed, done, looks = Counter[str](), False, self._looks.before(snapshot)
        keys: list[bytes] = []
        try:
            for name, versions in self._due(None if reads_all else listed):
                kind = versioned_kind(name)
                if kind is None:
                    continue
                gone, is_settled = self._unneeded(kind, name, versions, snapshot, looks)
                if gone:
                    keys += gone
                    removed[kind.reason] += len(gone)
                if len(keys) >= BATCH_ROWS:
                    self._remove(keys, deleting)
                    keys = []
                if kind.is_listed and not is_settled:
                    self._counted([name], MOST_LISTED)
            self._remove(keys, deleting)
            done = True
        finally:
            if not done:
                self._knows_all = False
        return removed

    def _counted(self, names: Iterable[bytes], least: int) -> list[tuple[bytes, int]]:
        """Counts a write of each name; returns the names that have so many, or more."""
        counts = []
        with self._lock:
            writes = self._writes
            for name in names:
                count = writes[name] = writes.get(name, 0) + 1
                if count >= least:
                    counts.append((name, count))
            if len(writes) > MOST_LISTED:
                writes.clear()
                self._knows_all = False
        return counts

    def _remove(self, keys: list[bytes], deleting: Deleting) -> None:
        if keys:
            self.removals += 1
            deleting.delete(keys)

    def _trim(self, name: bytes) -> None:
        acquired: list[bool] = []
        try:
            if not try_lock(self._rewriting, acquired):
                return
            with self._lock:
                self._writes[name] = 0
            snapshot = self._coordinator.snapshot()
            saved = self._saved(self._of(name))
            keys = unneeded(saved, snapshot, self._looks.before(snapshot))
            if keys:
                self.removals += 1
                writes: list[Write] = [(key, None) for key in keys]
                # Nobody waits for it: a sync of its own would cost a commit.
                self._table.hand_over(writes, _log_failure)
        finally:
            if True in acquired:
                self._rewriting.release()

    def _due(
        self, listed: Iterable[bytes] | None
    ) -> Iterator[tuple[bytes, Iterable[Row]]]:
        """Yields the names to look through, with their versions; None is for all."""
        tables = versioned_tables()
        for name in listed or ():
            if tables.get(name[:1]):
                yield name, self._of(name)
        for table, is_listed in tables.items():
            if listed is None or not is_listed:
                yield from groupby(self._of(table), lambda row: without_pointer(row[0]))

    def _of(self, prefix: bytes) -> Iterator[Row]:
        for rows in pieces(self._table, prefix):
            for key, value in rows:
                yield prefix + key, value

    def _saved(self, versions: Iterable[Row]) -> Iterator[Saved]:
        """Yields keys and pointers, but not those of unknown transactions."""
        for key, value in versions:
            pointer = pointer_of(value) or 0
            if self._foreign_pointers.has(pointer):  # whose end nobody here knows
                continue
            # A snapshot that was encoded does not know who was lost in a crash.
            if self._barrier is not None and self._barrier.was_lost(pointer):
                pointer = -pointer
            yield key, pointer

    def _unneeded(
        self,
        kind: AnyKind,
        name: bytes,
        rows: Iterable[Row],
        snapshot: Transaction,
        looks: Sequence[Transaction],
    ) -> tuple[list[bytes], bool]:
        """Returns the keys to remove, and whether nothing will be due here later."""
        versions = list(rows)
        saved = list(self._saved(versions))
        if self._is_over(kind, name, saved, snapshot):
            return [key for key, _ in saved], True
        keys = unneeded(saved, snapshot, looks)
        gone = set(keys)
        left = [(key, value) for key, value in versions if key not in gone]
        if len(left) != 1:
            return keys, not left
        key, value = left[0]
        pointer = pointer_of(value) or 0
        if payload_at(value, self._clock_ms()) is not None:
            return keys, not expires(value) and snapshot.is_visible(pointer)
        # Without it an earlier version could appear, of whoever is still writing one.
        if 0 < pointer < snapshot.first_in_progress and snapshot.is_visible(pointer):
            return [*keys, key], True
        return keys, False

    def _is_over(
        self,
        kind: AnyKind,
        name: bytes,
        saved: Sequence[Saved],
        snapshot: Transaction,
    ) -> bool:
        """Tells whether a name was written last too long ago for its kind."""
        if kind.kept_s is None or not saved:
            return False
        try:
            kept_s = kind.kept_s(kind.name_of(name), self._settings)
        except (ValueError, BadRequest):
            return False  # a check says what is wrong with it
        # A rolled back one, too, says that somebody was there.
        pointers = [abs(pointer) for _, pointer in saved]
        if not kept_s or any(map(snapshot.is_in_progress, pointers)):
            return False
        return max(pointers) // POINTERS_PER_MS + kept_s * 1000 < self._clock_ms()


def _log_failure(error: Unavailable | None) -> None:
    if error is not None:
        log.info("versions of a row are looked through again later: %s", error)


def unneeded(
    saved: Iterable[Saved], now: Transaction, looks: Sequence[Transaction]
) -> list[bytes]:
    """Returns the keys of one name's versions that nobody can read any more.

    `saved` rises by pointer, and `looks` are snapshots from before `now`. A reader
    takes the greatest pointer that it sees. A reader that begins later sees all that
    `now` does, or more. An open one began between two looks: it sees all that the first
    sees, nothing that the second does not, and nothing above its own id.
    """
    gone: list[bytes] = []
    seen: list[Saved] = []
    for key, pointer in saved:
        if pointer < 0:
            if -pointer < now.transaction_id and not now.is_in_progress(-pointer):
                gone.append(key)
        elif now.is_visible(pointer):
            seen.append((key, pointer))
        elif pointer in now.invalids:
            gone.append(key)
    pointers = [pointer for _, pointer in seen]
    needed = set(pointers[-1:])
    for first, second in pairwise([None, *looks, now]):
        assert second is not None
        last_open = _last_open_between(first, second, now)
        if last_open is None:
            continue
        surely = 0
        if first is not None:
            surely = max((p for p in pointers if first.is_visible(p)), default=0)
        from_here = bisect_left(pointers, surely)
        up_to = bisect_left(pointers, last_open)
        needed.update(
            pointer
            for pointer in pointers[from_here:up_to]
            if pointer == surely or second.is_visible(pointer)
        )
    gone += [key for key, pointer in seen if pointer not in needed]
    return gone


def _last_open_between(
    first: Transaction | None, second: Transaction, now: Transaction
) -> int | None:
    """Returns the greatest open pointer that began between two looks, or None."""
    place = now.in_progress.place(second.transaction_id)
    if not place:
        return None
    pointer = now.in_progress[place - 1]
    return pointer if first is None or pointer > first.transaction_id else None


def _useful(looks: Sequence[Transaction]) -> list[Transaction]:
    """Returns the last look, and those next to which an open transaction began."""
    now = looks[-1]
    useful: list[Transaction] = []
    between = [
        _last_open_between(first, second, now) is not None
        for first, second in pairwise([None, *looks])
        if second is not None
    ]
    for number, look in enumerate(looks):
        after = between[number + 1] if number + 1 < len(looks) else True
        if between[number] or after:
            useful.append(look)
    return useful
