"""SQLite: rows, messages and positions commit in one transaction of the user's file."""

import sqlite3

from txaware.errors import BadRequest, MisusedTransaction
from txaware.messages import MessageId
from txaware.messaging import Messaging
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import Columns, OutboxRows
from txaware.participants.sqlite_outbox import INSERT, POSITION, SAVE, SqliteOutbox

SAVEPOINT = "txaware_block"


def sqlite(
    messaging: Messaging, connection: sqlite3.Connection, *, relay: bool = True
) -> "Sqlite":
    """Makes a participant of a connection to a file of SQLite.

    `with messaging.transaction(sqlite(messaging, connection)):` commits what the
    connection writes in the block together with the messages that are published there.
    They are carried over in the background of this process, also those that a crash has
    left; with `relay=False` that is left to `txaware outbox relay`.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise BadRequest(f"{connection!r:.200} is no connection of sqlite3")
    path = _path_of(connection)

    def make() -> OutboxRelay[OutboxRows]:
        return OutboxRelay(messaging, SqliteOutbox(path))

    kept = messaging.kept_once(("sqlite", path), make)
    if relay:
        kept.start()
    return Sqlite(messaging, connection, kept, path=path)


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
        *,
        path: str,
    ) -> None:
        super().__init__(messaging, relay, name=f"sqlite {path}")
        self.connection = connection

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as the block sees it."""
        found = _plain(self.connection).execute(POSITION, (group, topic)).fetchone()
        return None if found is None else MessageId(found[0])

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""
        self.connection.execute(SAVE, (group, topic, bytes(position)))

    def _begin(self) -> None:
        if self.connection.in_transaction:
            raise MisusedTransaction(
                f"the connection to {self.transaction_aware_name} has a transaction "
                f"open that began before the block; commit it or roll it back first"
            )
        # Not a deferred one: it could fail at its first write, when it has read before.
        self.connection.execute("BEGIN IMMEDIATE")
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

    def _rollback(self) -> None:
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.ProgrammingError:
            return  # it was closed, which rolls back

    def _insert(self, columns: Columns) -> None:
        self.connection.execute(INSERT, columns)


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
