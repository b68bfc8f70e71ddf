"""The outbox and inbox tables in a file of SQLite, over a connection of the relay's."""

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from txaware.errors import BadRequest, Unavailable
from txaware.model.messages import MessageId
from txaware.participants import set_aside_rows
from txaware.participants.database_tables import prepared_sqlite
from txaware.participants.outbox_progress import Progress
from txaware.participants.outbox_row import (
    COLUMNS,
    MOST_BYTES,
    WHOLE_BYTES,
    WHOLE_ROWS,
    OutboxBatch,
    OutboxDestination,
    Row,
    SetAside,
    SetAsideMessage,
)
from txaware.participants.set_aside_rows import CountedLately, Execute
from txaware.publish.publisher import OVERHEAD_BYTES

WAIT_S = 5.0
# A relay that waits looks so often whether the file has changed.
LOOK_S = 0.005
INSERT = f"""INSERT INTO txaware_outbox ({COLUMNS})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
POSITION = "SELECT position FROM txaware_inbox WHERE consumer_group = ? AND topic = ?"
SAVE = "INSERT OR REPLACE INTO txaware_inbox VALUES (?, ?, ?)"
_READ = f"SELECT id, {COLUMNS} FROM txaware_outbox ORDER BY id"
_IS_THERE = "SELECT count(*) FROM txaware_outbox WHERE (id, token) IN ((?, ?), (?, ?))"
_REMOVE_PIECE = "DELETE FROM txaware_outbox WHERE id BETWEEN ? AND ?"
_REMOVE = "DELETE FROM txaware_outbox WHERE id = ? AND token = ?"


class SqliteOutbox:
    """The tables of one file; they are made if they are not there."""

    tells_pieces = True

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._count = CountedLately()
        self._lock = threading.Lock()
        self._version: int | None = None
        with self._used():
            self._connection = sqlite3.connect(
                path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
            )
            try:
                # A row that was carried over must not come back by a power cut; FULL
                # does not sync that the rollback journal is gone.
                self._connection.execute("PRAGMA synchronous = EXTRA")
                self.outbox_id = prepared_sqlite(self._connection)
            except BaseException:
                self._connection.close()
                raise

    def has_rows(self) -> bool:
        """Tells whether a row is there, carried over or not."""
        with self._used():
            found = self._connection.execute("SELECT 1 FROM txaware_outbox LIMIT 1")
            return found.fetchone() is not None

    @property
    def name(self) -> str:
        """The name of the file, for its people."""
        return f"sqlite {self.path}"

    def take(self, progress: bytes, *, limit: int) -> OutboxBatch:
        """Removes what a relay carried over last, or sets it aside; returns the next.

        Its commit writes something in any case: so what others have committed before,
        perhaps without a sync, is on disk as well.
        """
        last = Progress.read(progress, tells_pieces=True)
        with self._used(), self._transaction() as execute:
            execute("UPDATE txaware_state SET reads = reads + 1", ())
            self._remove(last)
            newly = set_aside_rows.set_aside_refused(execute, last.refused)
            with closing(execute(_READ, ())) as found:
                rows, is_all = _cut(map(Row._make, found), limit)
            rest = 0 if is_all else set_aside_rows.waiting(execute) - len(rows)
        if last.refused:
            self._count.forget()
        return OutboxBatch(rows, rest, newly)

    def waiting(self) -> int:
        """Returns how many rows wait, those carried over a moment ago included."""
        with self._used():
            return set_aside_rows.waiting(self._connection.execute)

    def oldest_ms(self) -> int | None:
        """Returns when the first row that waits was written; None where none waits."""
        with self._used():
            return set_aside_rows.oldest_ms(self._connection.execute)

    def wait(self, timeout_s: float) -> bool:
        """Waits until another connection has changed the file.

        The file's change counter tells; a look at it costs some microseconds.
        """
        until_s = time.monotonic() + timeout_s
        while True:
            with self._used():
                found = self._connection.execute("PRAGMA data_version").fetchone()
            before, self._version = self._version, found[0]
            if before != self._version:
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(left_s, LOOK_S))

    def set_aside_count(self) -> int:
        """Returns how many rows are set aside; some seconds old at most."""
        with self._used():
            count = set_aside_rows.set_aside_count
            return self._count.get(lambda: count(self._connection.execute))

    def set_aside(self) -> list[SetAside]:
        """Returns what is set aside, by topic and queue; the oldest first."""
        with self._used():
            return set_aside_rows.entries(self._connection.execute)

    def set_aside_messages(
        self, destination: OutboxDestination, *, limit: int
    ) -> list[SetAsideMessage]:
        """Returns the first rows that are set aside for a topic or queue."""
        with self._used():
            execute = self._connection.execute
            return set_aside_rows.messages(execute, destination.column, limit=limit)

    def put_back(self, destination: OutboxDestination, *, to: str | None = None) -> int:
        """Has all that is set aside for a topic or queue wait again, in its order."""
        self._count.forget()
        with self._used(), self._transaction() as execute:
            topic = destination.column
            return set_aside_rows.put_back(execute, topic, to=to or topic)

    def discard(self, destination: OutboxDestination) -> int:
        """Removes what is set aside for a topic or queue; returns how many rows."""
        self._count.forget()
        with self._used(), self._transaction() as execute:
            return set_aside_rows.discard(execute, destination.column)

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""
        with self._used():
            found = self._connection.execute(POSITION, (group, topic)).fetchone()
        return None if found is None else MessageId(found[0])

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves an inbox outside of a block; on disk when it returns."""
        with self._used():
            self._connection.execute(SAVE, (group, topic, bytes(position)))

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._connection.close()

    def __repr__(self) -> str:
        return f"<SqliteOutbox in {self.path}>"

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Holds the connection; maps errors of SQLite to what their reader can do."""
        with self._lock:
            try:
                yield
            except sqlite3.OperationalError as error:  # locked, full, not to be written
                raise Unavailable(f"SQLite cannot use {self.path}: {error}") from error
            except sqlite3.DatabaseError as error:
                raise BadRequest(f"SQLite cannot read {self.path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[Execute]:
        """Surrounds changes, which commit together."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection.execute
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _remove(self, last: Progress) -> None:
        """Removes what was carried over.

        One writer at a time adds rows, and a piece is removed at once, so that its ends
        tell of it.
        """
        if not last.is_piece:
            self._connection.executemany(_REMOVE, last.carried)
            return
        first, end = last.carried[0], last.carried[-1]
        [count] = self._connection.execute(_IS_THERE, (*first, *end)).fetchone()
        if count == len({first, end}):
            self._connection.execute(_REMOVE_PIECE, (first[0], end[0]))


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
