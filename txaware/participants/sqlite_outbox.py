"""The outbox and inbox tables in a file of SQLite."""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from txaware.participants.outbox_progress import Mark, Progress
from txaware.participants.outbox_row import (
    COLUMNS,
    MOST_BYTES,
    WHOLE_BYTES,
    WHOLE_ROWS,
    Pause,
    Row,
)
from txaware.participants.outbox_tables import OutboxTables
from txaware.participants.sql_dialect import Execute
from txaware.participants.sqlite_link import SqliteLink
from txaware.publish.publisher import OVERHEAD_BYTES

# A relay that waits looks so often whether the file has changed.
LOOK_S = 0.005
_VERSION = "PRAGMA data_version"
_READ = f"SELECT id, {COLUMNS} FROM txaware_outbox ORDER BY id"
_IS_THERE = "SELECT count(*) FROM txaware_outbox WHERE (id, token) IN ((?, ?), (?, ?))"
_REMOVE_PIECE = "DELETE FROM txaware_outbox WHERE id BETWEEN ? AND ?"
_REMOVE = "DELETE FROM txaware_outbox WHERE id = ? AND token = ?"


class SqliteOutbox(OutboxTables):
    """The tables of one file, to which one writer at a time adds rows."""

    tells_pieces = True

    def __init__(self, path: str | Path) -> None:
        self._version: int | None = None
        super().__init__(SqliteLink(path))

    def wait(self, timeout_s: float, *, pause: Pause = time.sleep) -> bool:
        """Waits until another connection has changed the file.

        The file's change counter tells; a look at it costs some microseconds.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            [found] = self._link.ask(lambda execute: execute(_VERSION, ()).fetchone())
            before, self._version = self._version, found
            if before != self._version:
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            pause(min(left_s, LOOK_S))

    def _remove(self, execute: Execute, last: Progress) -> None:
        """Removes what was carried over; a piece at once, as its ends tell of it."""
        if not last.is_piece:
            self._remove_marks(execute, last.carried)
            return
        first, end = last.carried[0], last.carried[-1]
        [count] = execute(_IS_THERE, (*first, *end)).fetchone()
        if count == len({first, end}):
            execute(_REMOVE_PIECE, (first[0], end[0]))

    def _remove_marks(self, execute: Execute, marks: Sequence[Mark]) -> None:
        for mark in marks:
            execute(_REMOVE, mark)

    def _next(self, execute: Execute, limit: int) -> tuple[list[Row], bool]:
        with closing(execute(_READ, ())) as found:
            return _cut(map(Row._make, found), limit)


def _cut(found: Iterable[Row], limit: int) -> tuple[list[Row], bool]:
    """Returns the first rows, up to the end of a block, and whether these are all.

    A block that does not fit is left to the next batch; if it is the first one, it is
    taken as a whole, or as much of it as one batch may ever be.
    """
    rows: list[Row] = []
    size_bytes = block_at = 0
    for row in found:
        if rows and row.token != rows[-1].token:
            block_at = len(rows)
        size_bytes += len(row.payload) + OVERHEAD_BYTES
        rows.append(row)
        is_full = len(rows) > limit or size_bytes > MOST_BYTES
        if is_full and block_at:
            return rows[:block_at], False
        if is_full and (len(rows) > WHOLE_ROWS or size_bytes > WHOLE_BYTES):
            return rows[: max(1, len(rows) - 1)], False
    return rows, True
