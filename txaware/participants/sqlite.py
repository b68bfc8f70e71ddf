"""SQLite: rows, messages and positions commit in one transaction of the user's file."""

import sqlite3
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from txaware.errors import BadRequest, MisusedTransaction, Unavailable
from txaware.messaging import Messaging
from txaware.messaging.messaging import checked_messaging
from txaware.model.messages import MessageId
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.inbox_cleaner import InboxCleaner
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import Columns, OutboxRows
from txaware.participants.sqlite_inbox import (
    FORGET,
    IS_NOTED,
    NOTE,
    SqliteNotedItems,
)
from txaware.participants.sqlite_outbox import INSERT, POSITION, SAVE, SqliteOutbox

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


def sqlite(
    messaging: Messaging, connection: sqlite3.Connection, *, relay: bool = True
) -> "Sqlite":
    """Makes a participant of a connection to a file of SQLite.

    `with messaging.transaction(sqlite(messaging, connection)):` commits what the
    connection writes in the block together with the messages that are published there.
    They are carried over in the background of this process, also those that a crash has
    left; with `relay=False` that is left to `txaware outbox relay`.
    """
    checked_messaging(messaging, taker="participants.sqlite")
    if not isinstance(connection, sqlite3.Connection):
        raise BadRequest(
            f"{connection!r:.200} is no connection of sqlite3: open one by "
            f"sqlite3.connect(path)"
        )
    path = _path_of(connection)

    def make() -> OutboxRelay[OutboxRows]:
        return OutboxRelay(messaging, SqliteOutbox(path))

    def make_cleaner() -> InboxCleaner:
        return InboxCleaner(messaging, SqliteNotedItems(path))

    kept = messaging.kept_once(("sqlite", path), make)
    cleaner = messaging.kept_once(("sqlite inbox", path), make_cleaner)
    if relay:
        kept.start()
    return Sqlite(messaging, connection, kept, cleaner, path=path, in_background=relay)


class Sqlite(DecidingDatabase):
    """A connection to a file of SQLite, whose commit decides the block.

    A block has the file's lock for writers from its beginning. Each thread has a
    connection of its own.
    """

    def __init__(
        self,
        messaging: Messaging,
        connection: sqlite3.Connection,
        relay: OutboxRelay[OutboxRows],
        cleaner: InboxCleaner,
        *,
        path: str,
        in_background: bool,
    ) -> None:
        super().__init__(
            messaging,
            relay,
            cleaner,
            name=f"sqlite {path}",
            in_background=in_background,
        )
        self.connection = connection
        # The synchronous setting of the program, while another one takes its place.
        self._synchronous: int | None = None
        self._was_synced = False

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

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as the block sees it."""
        found = _plain(self.connection).execute(POSITION, (group, topic)).fetchone()
        return None if found is None else MessageId(found[0])

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""
        self.connection.execute(SAVE, (group, topic, bytes(position)))

    def is_away(self, error: BaseException) -> bool:
        """Tells whether an error says that the file is locked, or the disk full."""
        code = getattr(error, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in AWAY

    def _begin(self) -> None:
        if self.connection.in_transaction:
            raise MisusedTransaction(
                f"the connection to {self.transaction_aware_name} has a transaction "
                f"open that began before the block; commit it or roll it back first"
            )
        if self._cleaner.expects_notes:
            self._raise_synchronous()
        # Not a deferred one: it could fail at its first write, when it has read before.
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not self.is_away(error):
                raise
            raise Unavailable(
                f"{self.transaction_aware_name} cannot be written to now: {error}"
            ) from error
        self.connection.execute(f"SAVEPOINT {SAVEPOINT}")

    def _commit(self) -> None:
        try:
            self.connection.execute(f"RELEASE {SAVEPOINT}")
        except sqlite3.OperationalError as error:
            raise MisusedTransaction(
                f"the transaction of {self.transaction_aware_name} was ended inside "
                f"of its block, by commit(), rollback() or `with connection:`; the end "
                f"of the block commits. What came after that call is rolled back"
            ) from error
        self.connection.execute("COMMIT")
        self._was_synced = self._synchronous is not None
        self._restore_synchronous()

    def _is_synced(self) -> bool:
        return self._was_synced or self._is_enough(self._setting())

    def _raise_synchronous(self) -> None:
        """Has the commit of a block synced that probably pops, as the last one did."""
        found = self._setting()
        if not self._is_enough(found):
            self._synchronous = found
            self.connection.execute("PRAGMA synchronous = EXTRA")

    def _restore_synchronous(self) -> None:
        if self._synchronous is not None:
            self.connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            self._synchronous = None

    def _setting(self) -> int:
        found = _plain(self.connection).execute("PRAGMA synchronous").fetchone()
        return int(found[0])

    def _is_enough(self, synchronous: int) -> bool:
        """Tells whether a commit is on disk when it returns.

        Outside of WAL, FULL does not sync that the journal is gone.
        """
        found = _plain(self.connection).execute("PRAGMA journal_mode").fetchone()
        return synchronous >= (FULL if found[0] in ("wal", b"wal") else EXTRA)

    def _rollback(self) -> None:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._restore_synchronous()
        except sqlite3.ProgrammingError:
            return  # it was closed, which rolls back

    def _insert(self, rows: Sequence[Columns]) -> None:
        self.connection.executemany(INSERT, rows)

    def _note(self, store: str, queue: str, items: Collection[str]) -> set[str]:
        made = self.connection.execute
        return {one for one in items if not made(NOTE, (store, queue, one)).rowcount}

    def _still_noted(self, store: str, queue: str, items: Collection[str]) -> set[str]:
        find = _plain(self.connection).execute
        return {one for one in items if find(IS_NOTED, (store, queue, one)).fetchone()}

    def _forget(self, store: str, queue: str, items: Collection[str]) -> None:
        for one in items:
            self.connection.execute(FORGET, (store, queue, one))


def _path_of(connection: sqlite3.Connection) -> str:
    found = _plain(connection).execute("PRAGMA database_list").fetchall()
    path = next((row[2] for row in found if row[1] in ("main", b"main")), "")
    if not path:
        raise BadRequest(
            "the connection is to a database in memory, which ends with it, so nobody "
            "could carry its messages over; open a file: sqlite3.connect(path)"
        )
    return path if isinstance(path, str) else bytes(path).decode()


def _plain(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Returns a cursor with rows as tuples, whatever the program has chosen."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor
