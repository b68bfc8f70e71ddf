"""Removes positions that nobody can read, as groups move, and old markers."""

import logging
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator
from coordinator.threads import try_lock
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import TxAwareError, Unavailable
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.markers import MARKERS, is_marker, is_save_marker
from txaware.model.settings import Settings
from txaware.service.retention.deletion import Deleting
from txaware.service.visibility import ForeignPointers
from txaware.store.columns import pointer_of
from txaware.store.keys import POINTER_BYTES, POSITION
from txaware.store.ranges import pieces

log = logging.getLogger(__name__)

# After so many saves of a group in a topic its positions are looked through.
SAVES = 16
# So many earlier snapshots are kept; with fewer a few rows more stay.
MOST_LOOKS = 16

# A position: its key, and the pointer that saved it, negative after a rollback.
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


class PositionRetention:
    """Removes positions, but keeps all that open or later transactions may read.

    It looks with a snapshot, and at `looks`. So a group costs about `SAVES` rows, and
    as many for each pair of looks with an open transaction between them.
    """

    def __init__(
        self,
        table: OrderedTable,
        coordinator: Coordinator,
        strangers: ForeignPointers,
        rewriting: threading.Lock,
        settings: Settings,
        barrier: WriteBarrier | None,
    ) -> None:
        # Counts removals: a reader that found no row may have come too late.
        self.removals = 0
        self.looks = Looks()
        self._table = table
        self._coordinator = coordinator
        self._strangers = strangers
        self._rewriting = rewriting
        self._settings = settings
        self._barrier = barrier
        self._saves: dict[bytes, int] = {}

    def has_positions(self) -> bool:
        """Tells whether any group has saved a position."""
        return bool(self._table.scan(POSITION, limit=1))

    def saved(self, prefix: bytes) -> None:
        """Counts a save of a group, and trims its positions after every `SAVES`.

        `prefix` begins the group's keys. A failure is logged and the trim done another
        time: the position is saved all the same.
        """
        count = self._saves.get(prefix, 0) + 1
        self._saves[prefix] = count
        try:
            if count == SAVES - 1:  # so that little is between this and the next one
                self.looks.before(self._coordinator.snapshot())
            elif count >= SAVES:
                taken: list[bool] = []
                try:
                    if try_lock(self._rewriting, taken):
                        self._saves.pop(prefix, None)
                        self._trim(prefix)
                finally:
                    if True in taken:
                        self._rewriting.release()
        except TxAwareError as error:
            log.info("positions are looked through again later: %s", error)

    def clean_up(self, snapshot: Transaction, deleting: Deleting) -> int:
        """Removes the unneeded positions of all groups; returns how many rows."""
        looks = self.looks.before(snapshot)
        keys: list[bytes] = []
        for _, saved in groupby(self._rows(), key=lambda row: row[0][:-POINTER_BYTES]):
            keys += unneeded(saved, snapshot, looks)
        if keys:
            self.removals += 1
            deleting.delete(keys)
        return len(keys)

    def forget_markers(
        self, snapshot: Transaction, deleting: Deleting, *, now_ms: int
    ) -> int:
        """Removes markers that moved last too long ago; returns how many rows."""
        keys: list[bytes] = []
        saved = self._rows(POSITION + MARKERS.encode("ascii"))
        for name, rows in groupby(saved, key=lambda row: row[0][:-POINTER_BYTES]):
            moved_ms, marker = 0, []
            for key, pointer in rows:
                # A rolled back one, too, says that somebody was there.
                moved_ms = max(moved_ms, abs(pointer) // POINTERS_PER_MS)
                marker.append(key)
                if snapshot.is_in_progress(abs(pointer)):
                    moved_ms = now_ms
            group = name[len(POSITION) :].decode("ascii").partition(":")[0]
            kept_ms = self._kept_ms(group)
            if kept_ms is not None and moved_ms + kept_ms < now_ms:
                keys += marker
        deleting.delete(keys)
        return len(keys)

    def _kept_ms(self, group: str) -> float | None:
        """Returns how long a marker stays after its last move; None is for ever."""
        if not is_marker(group):
            return None
        settings = self._settings
        kept_s = (
            settings.save_marker_ttl_s
            if is_save_marker(group)
            else settings.stream_marker_ttl_s
        )
        return kept_s * 1000 if kept_s else None

    def _trim(self, prefix: bytes) -> None:
        snapshot = self._coordinator.snapshot()
        looks = self.looks.before(snapshot)
        keys = unneeded(self._rows(prefix), snapshot, looks)
        if keys:
            self.removals += 1
            writes: list[Write] = [(key, None) for key in keys]
            # Nobody waits for it: a sync of its own would cost a commit.
            self._table.hand_over(writes, _told)

    def _rows(self, prefix: bytes = POSITION) -> Iterator[Saved]:
        for rows in pieces(self._table, prefix):
            whole = ((prefix + key, value) for key, value in rows)
            yield from saved_rows(whole, self._strangers, self._barrier)


def saved_rows(
    rows: Iterable[Row], strangers: ForeignPointers, barrier: WriteBarrier | None
) -> Iterator[Saved]:
    """Yields the keys and pointers of rows, but not those of unknown transactions."""
    for key, value in rows:
        pointer = pointer_of(value) or 0
        if strangers.has(pointer):  # whose end nobody here knows
            continue
        # A snapshot that was encoded does not know who was lost in a crash.
        if barrier is not None and barrier.was_lost(pointer):
            pointer = -pointer
        yield key, pointer


def _told(error: Unavailable | None) -> None:
    if error is not None:
        log.info("positions are looked through again later: %s", error)


def unneeded(
    saved: Iterable[Saved], now: Transaction, looks: Sequence[Transaction]
) -> list[bytes]:
    """Returns the keys of one group's positions that nobody can read any more.

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
