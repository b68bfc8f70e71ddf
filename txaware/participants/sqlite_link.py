"""A connection of ours to a user's file of SQLite, and how SQLite is spoken to."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from txaware.errors import BadRequest, Unavailable
from txaware.participants.database_link import DatabaseLink
from txaware.participants.database_steps import Steps
from txaware.participants.outbox_row import INSERT
from txaware.participants.sql_dialect import SqlDialect

WAIT_S = 5.0
_TYPES = {
    "place": "INTEGER",
    "name": "TEXT",
    "text": "TEXT",
    "bytes": "BLOB",
    "seconds": "REAL",
    "integer": "INTEGER",
    "table": "",
}


class SqliteDialect(SqlDialect):
    """Speaks to SQLite, by sqlite3 and aiosqlite."""

    types = _TYPES
    columns = """SELECT made.name, info.name
        FROM sqlite_master AS made, pragma_table_info(made.name) AS info
        WHERE made.type = 'table' AND made.name LIKE 'txaware%'"""
    insert = insert_alone = INSERT
    enter = ""
    save = """INSERT OR REPLACE INTO txaware_inbox (position, consumer_group, topic)
        VALUES (?, ?, ?)"""
    note = "INSERT OR IGNORE INTO txaware_inbox_items VALUES (?, ?, ?)"
    state = "INSERT OR IGNORE INTO txaware_state VALUES (1, ?, 0)"

    def cursor(self, connection: Any) -> Steps[Any]:
        """Makes a cursor whose rows are tuples."""
        cursor = yield connection.cursor()
        cursor.row_factory = None
        return cursor

    def executed(self, connection: Any, own: str, values: Sequence[Any]) -> Steps[Any]:
        """Runs a statement in one call: aiosqlite asks its thread for each."""
        cursor = yield connection.execute(own, values)
        cursor.row_factory = None
        return cursor

    def is_outside(self, connection: Any) -> bool:
        """Tells whether it is in autocommit, and nobody has begun a transaction."""
        return connection.isolation_level is None and not connection.in_transaction


SQLITE = SqliteDialect()


class SqliteLink(DatabaseLink):
    """A connection to one file, opened at its first use."""

    dialect = SQLITE

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = str(path)

    @property
    def name(self) -> str:
        """The name of the file, for its people."""
        return f"sqlite {self.path}"

    def another(self) -> Self:
        """Makes another one to the same file."""
        return type(self)(self.path)

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # locked, full, not to be written
            raise Unavailable(f"SQLite cannot use {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise BadRequest(f"SQLite cannot read {self.path}: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        if self._is_closed:
            raise Unavailable(f"the connection to {self.name} is closed")
        if self._connection is None:
            self._connection = sqlite3.connect(
                self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
            )
            # A row that was carried over must not come back by a power cut; FULL does
            # not sync that the rollback journal is gone.
            self._connection.execute("PRAGMA synchronous = EXTRA")
        return self._connection  # type: ignore[no-any-return]

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    making_tables = _transaction
