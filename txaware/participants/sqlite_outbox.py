"""The outbox and inbox tables in a file of SQLite, over a connection of the relay's."""

import sqlite3
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from txaware.errors import BadRequest, Unavailable
from txaware.messages import MessageId
from txaware.participants.database_tables import prepared_sqlite
from txaware.participants.outbox_row import TOKEN_BYTES, Batch

WAIT_S = 5.0
INSERT = """INSERT INTO txaware_outbox
    (topic, payload, "key", headers, expire_after_s, token) VALUES (?, ?, ?, ?, ?, ?)"""
POSITION = "SELECT position FROM txaware_inbox WHERE consumer_group = ? AND topic = ?"
SAVE = "INSERT OR REPLACE INTO txaware_inbox VALUES (?, ?, ?)"
_READ = """SELECT id, topic, payload, "key", headers, expire_after_s, token
    FROM txaware_outbox ORDER BY id LIMIT ?"""
_IS_THERE = "SELECT count(*) FROM txaware_outbox WHERE (id, token) IN ((?, ?), (?, ?))"
_DELETE = "DELETE FROM txaware_outbox WHERE id BETWEEN ? AND ?"
# The places and tokens of the first and the last row of a batch.
_MARKS = struct.Struct(f">q{TOKEN_BYTES}sq{TOKEN_BYTES}s")


class SqliteOutbox:
    """The tables of one file; they are made if they are not there."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._lock = threading.Lock()
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

    def take(self, carried: bytes, *, limit: int) -> Batch:
        """Removes the batch of which `carried` are the marks; returns the next one.

        Its commit writes something in any case: so what others have committed before,
        perhaps without a sync, is on disk as well.
        """
        with self._used():
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute("UPDATE txaware_state SET reads = reads + 1")
                self._remove(carried)
                with closing(connection.execute(_READ, (limit,))) as found:
                    batch = Batch.of(found)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        return batch

    def marks(self, batch: Batch) -> bytes:
        """Returns bytes by which `take` knows a batch again: its ends tell it.

        One writer at a time adds rows, and a batch is removed in one piece.
        """
        return _MARKS.pack(*batch.rows[0], *batch.rows[-1])

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""
        with self._used():
            found = self._connection.execute(POSITION, (group, topic)).fetchone()
        return None if found is None else MessageId(found[0])

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

    def _remove(self, carried: bytes) -> None:
        if not carried:
            return
        first, first_token, last, last_token = _MARKS.unpack(carried)
        ends = (first, first_token, last, last_token)
        [count] = self._connection.execute(_IS_THERE, ends).fetchone()
        if count == len({first, last}):
            self._connection.execute(_DELETE, (first, last))
