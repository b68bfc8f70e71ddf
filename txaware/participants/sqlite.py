"""SQLite: rows, messages and positions commit in one transaction of the user's file."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from txaware.errors import BadRequest, MisusedTransaction, Unavailable
from txaware.participants.database_steps import Steps
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.sqlite_link import SQLITE, SqliteLink
from txaware.participants.sqlite_outbox import SqliteOutbox

SAVEPOINT = "txaware_block"
# Values of PRAGMA synchronous.
FULL, EXTRA = 2, 3
# What another writer, or the disk, does to a statement.
AWAY = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)


class Sqlite(DecidingDatabase):
    """A connection to a file of SQLite, whose commit decides the block.

    A block has the file's lock for writers from its beginning. Each thread has a
    connection of its own.
    """

    kind = "sqlite"
    dialect = SQLITE
    # The synchronous setting of the program, while another one takes its place.
    _synchronous: int | None = None
    _was_synced = False
    _path = ""

    def _name(self) -> Steps[str]:
        self._path = yield from path_of(self.connection)
        return f"sqlite {self._path}"

    def _new_rows(self) -> SqliteOutbox:
        return SqliteOutbox(self._path)

    def _new_link(self) -> SqliteLink:
        return SqliteLink(self._path)

    def require_any_thread(self) -> None:
        """Raises `BadRequest` where only one thread may use the connection."""
        with ThreadPoolExecutor(1) as other:
            try:
                other.submit(lambda: self.connection.cursor().close()).result()
            except sqlite3.ProgrammingError as error:
                raise BadRequest(
                    f"the connection to {self.transaction_aware_name} is for the "
                    f"thread that opened it: open it with check_same_thread=False, or "
                    f"give a function that opens one in each thread"
                ) from error

    def is_away(self, error: BaseException) -> bool:
        """Tells whether an error says that the file is locked, or the disk full."""
        code = getattr(error, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in AWAY

    def _require_idle(self) -> None:
        if self.connection.in_transaction:
            raise MisusedTransaction(
                f"the connection to {self.transaction_aware_name} has a transaction "
                f"open that began before the block; commit it or roll it back first"
            )

    def _begin(self) -> Steps[None]:
        yield from self._begin_immediate()
        yield self.connection.execute(f"SAVEPOINT {SAVEPOINT}")

    def _begin_immediate(self) -> Steps[None]:
        if self._cleaner.expects_notes:
            yield from self._raise_synchronous()
        # Not a deferred one: it could fail at its first write, when it has read before.
        try:
            yield self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not self.is_away(error):
                raise
            raise Unavailable(
                f"{self.transaction_aware_name} cannot be written to now: {error}"
            ) from error

    def _commit(self) -> Steps[None]:
        try:
            yield self.connection.execute(f"RELEASE {SAVEPOINT}")
        except sqlite3.OperationalError as error:
            raise MisusedTransaction(
                f"the transaction of {self.transaction_aware_name} was ended inside "
                f"of its block, by commit(), rollback() or `with connection:`; the end "
                f"of the block commits. What came after that call is rolled back"
            ) from error
        yield self.connection.execute("COMMIT")
        yield from self._has_committed()

    def _has_committed(self) -> Steps[None]:
        self._was_synced = self._synchronous is not None
        yield from self._restore_synchronous()

    def _is_synced(self) -> Steps[bool]:
        if self._was_synced:
            return True
        return (yield from self._is_enough((yield from self._setting())))

    def _raise_synchronous(self) -> Steps[None]:
        """Has the commit of a block synced that probably pops, as the last one did."""
        found = yield from self._setting()
        if not (yield from self._is_enough(found)):
            self._synchronous = found
            yield self.connection.execute("PRAGMA synchronous = EXTRA")

    def _restore_synchronous(self) -> Steps[None]:
        if self._synchronous is not None:
            yield self.connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._synchronous = None

    def _setting(self) -> Steps[int]:
        [[found]] = yield from SQLITE.rows(self.connection, "PRAGMA synchronous")
        return int(found)

    def _is_enough(self, synchronous: int) -> Steps[bool]:
        """Tells whether a commit is on disk when it returns.

        Outside of WAL, FULL does not sync that the journal is gone.
        """
        [[found]] = yield from SQLITE.rows(self.connection, "PRAGMA journal_mode")
        return synchronous >= (FULL if found in ("wal", b"wal") else EXTRA)

    def _rollback(self) -> Steps[None]:
        try:
            if self.connection.in_transaction:
                yield self.connection.execute("ROLLBACK")
            yield from self._restore_synchronous()
        except (sqlite3.ProgrammingError, ValueError):
            return  # it was closed, which rolls back


def path_of(connection: Any) -> Steps[str]:
    """Asks for the file of a connection; refuses one to a database in memory."""
    found = yield from SQLITE.rows(connection, "PRAGMA database_list")
    path = next((row[2] for row in found if row[1] in ("main", b"main")), "")
    if not path:
        raise BadRequest(
            "the connection is to a database in memory, which ends with it, so nobody "
            "could carry its messages over; open a file: sqlite3.connect(path)"
        )
    return path if isinstance(path, str) else bytes(path).decode()
