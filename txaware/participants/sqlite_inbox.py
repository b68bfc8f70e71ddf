"""The notes of handled items in a file of SQLite."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from txaware.errors import Unavailable
from txaware.participants.inbox_cleaner import Noted

WAIT_S = 5.0
NOTE = "INSERT OR IGNORE INTO txaware_inbox_items VALUES (?, ?, ?)"
IS_NOTED = """SELECT 1 FROM txaware_inbox_items
    WHERE store = ? AND queue = ? AND item = ?"""
FORGET = "DELETE FROM txaware_inbox_items WHERE store = ? AND queue = ? AND item = ?"
_ANY = "SELECT 1 FROM txaware_inbox_items LIMIT 1"
_NEXT = """SELECT queue, item FROM txaware_inbox_items
    WHERE store = ? AND (queue, item) > (?, ?) ORDER BY queue, item LIMIT ?"""
_SYNC = "UPDATE txaware_state SET reads = reads + 1"


class SqliteNotedItems:
    """The table of one file, which is there; it is opened at its first use."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._opened: sqlite3.Connection | None = None

    def has_any(self) -> bool:
        """Tells whether an item is noted, of any store."""
        with self._used() as connection:
            return connection.execute(_ANY).fetchone() is not None

    def take(
        self, store: str, gone: Sequence[Noted], *, after: Noted, limit: int
    ) -> list[Noted]:
        """Removes items that are gone; returns the next notes in their order."""
        with self._written() as connection:
            connection.executemany(FORGET, [(store, *one) for one in gone])
            return connection.execute(_NEXT, (store, *after, limit)).fetchall()

    def sync(self) -> None:
        """Has all on disk that was committed by now: a later commit is synced."""
        with self._written():
            pass

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    def __repr__(self) -> str:
        return f"<SqliteNotedItems in {self.path}>"

    @contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        with self._used() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(_SYNC)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._opened is None:
                    self._opened = sqlite3.connect(
                        self.path,
                        timeout=WAIT_S,
                        isolation_level=None,
                        check_same_thread=False,
                    )
                    self._opened.execute("PRAGMA synchronous = EXTRA")
                yield self._opened
            except sqlite3.Error as error:
                raise Unavailable(f"SQLite cannot use {self.path}: {error}") from error
