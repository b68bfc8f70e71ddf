"""Removes positions that no open transaction can still read, and old markers."""

from collections.abc import Iterator
from itertools import groupby

from coordinator.gate import Gate
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.config import Settings
from txaware.interfaces import OrderedTable
from txaware.markers import MARKERS, is_marker, is_save_marker
from txaware.rowkeys import POINTER_BYTES, POSITION
from txaware.service.deleting import Deleting
from txaware.tables.columns import pointer_of
from txaware.tables.ranges import pieces

# A position: its key, and the pointer that saved it.
Saved = tuple[bytes, int]


class PositionRetention:
    """Looks twice: at the second time all who were open at the first have ended.

    Once is enough where nobody is open at all. Everybody who is open now then sees the
    newest position that the first look saw, and those before it are of no use.
    """

    def __init__(
        self, table: OrderedTable, settings: Settings, gate: Gate | None = None
    ) -> None:
        self._table = table
        self._settings = settings
        self._gate = gate
        self._earlier: Transaction | None = None

    def has_positions(self) -> bool:
        """Whether there is anything to judge."""
        return bool(self._table.scan(POSITION, limit=1))

    def clean_up(self, snapshot: Transaction, deleting: Deleting) -> int:
        """Removes what is due; answers how many rows."""
        earlier = snapshot if not snapshot.in_progress else self._earlier
        if earlier is None or snapshot.transaction_id < earlier.transaction_id:
            self._earlier = earlier or snapshot
            return 0
        if any(snapshot.is_in_progress(pointer) for pointer in earlier.in_progress):
            return 0
        self._earlier = snapshot
        keys: list[bytes] = []
        for _, saved in groupby(self._rows(), key=lambda row: row[0][:-POINTER_BYTES]):
            keys += self._superseded(saved, earlier)
        deleting.delete(keys)
        return len(keys)

    def _superseded(self, saved: Iterator[Saved], earlier: Transaction) -> list[bytes]:
        """All but the newest that the earlier look saw, and all that never count.

        Those were taken back, or a crash lost their transaction. (A snapshot that was
        encoded does not say of a lost one that it is not visible.)
        """
        gone: list[bytes] = []
        newest: bytes | None = None
        for key, pointer in saved:
            if pointer < 0:
                if -pointer < earlier.transaction_id:
                    gone.append(key)
            elif self._gate is not None and self._gate.was_lost(pointer):
                gone.append(key)
            elif earlier.is_visible(pointer):
                if newest is not None:
                    gone.append(newest)
                newest = key
        return gone

    def forget_markers(
        self, snapshot: Transaction, deleting: Deleting, *, now_ms: int
    ) -> int:
        """Removes markers that were last moved too long ago; answers how many rows."""
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
        """How long after its last move a marker stays; None is for ever."""
        if not is_marker(group):
            return None
        settings = self._settings
        kept_s = (
            settings.save_marker_ttl_s
            if is_save_marker(group)
            else settings.stream_marker_ttl_s
        )
        return kept_s * 1000 if kept_s else None

    def _rows(self, prefix: bytes = POSITION) -> Iterator[Saved]:
        for rows in pieces(self._table, prefix):
            for key, value in rows:
                yield prefix + key, pointer_of(value) or 0
