"""PostgreSQL that decides its block: its outbox and inbox, and the participant."""

import struct
from typing import TYPE_CHECKING, Any

from txaware.errors import TransactionOutcomeUnknown, Unavailable
from txaware.messages import MessageId
from txaware.messaging import Messaging
from txaware.participants.database_tables import prepared_postgres
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import TOKEN_BYTES, Batch, Columns
from txaware.participants.postgres_block import (
    mark_begin,
    require_idle,
    require_marked,
)
from txaware.participants.postgres_link import PostgresLink, driver, name_of

if TYPE_CHECKING:
    from psycopg import Connection

MOST_ROWS = 10_000
INSERT = """INSERT INTO txaware_outbox
    (topic, payload, "key", headers, expire_after_s, token)
    VALUES (%s, %s, %s, %s, %s, %s)"""
POSITION = "SELECT position FROM txaware_inbox WHERE consumer_group = %s AND topic = %s"
# A row to lock, for members of a group that begin at the same time.
ENTER = "INSERT INTO txaware_inbox VALUES (%s, %s, NULL) ON CONFLICT DO NOTHING"
SAVE = "UPDATE txaware_inbox SET position = %s WHERE consumer_group = %s AND topic = %s"
_READ = """SELECT id, topic, payload, "key", headers, expire_after_s, token
    FROM txaware_outbox ORDER BY id LIMIT %s"""
_DELETE = """DELETE FROM txaware_outbox AS row
    USING unnest(%s::bigint[], %s::bytea[]) AS carried (id, token)
    WHERE row.id = carried.id AND row.token = carried.token"""
_MARK = struct.Struct(f">q{TOKEN_BYTES}s")


class PostgresOutbox:
    """The tables of one database; they are made if they are not there."""

    def __init__(self, link: PostgresLink) -> None:
        self._link = link
        self.outbox_id = link.run(prepared_postgres)

    def has_rows(self) -> bool:
        """Tells whether a row is there, carried over or not."""
        ask = "SELECT 1 FROM txaware_outbox LIMIT 1"
        return self._link.run(lambda link: link.execute(ask).fetchone()) is not None

    def take(self, carried: bytes, *, limit: int) -> Batch:
        """Removes the batch of which `carried` are the marks; returns the next one.

        Its commit writes something in any case, and is synced: so what others have
        committed before, perhaps without a sync, is on disk as well.
        """
        marks = list(_MARK.iter_unpack(carried))

        def work(link: "Connection[Any]") -> Batch:
            with link.transaction():
                link.execute("SET LOCAL synchronous_commit = on")
                link.execute("UPDATE txaware_state SET reads = reads + 1")
                if marks:
                    columns = [[mark[at] for mark in marks] for at in (0, 1)]
                    link.execute(_DELETE, columns)
                return Batch.of(link.execute(_READ, (min(limit, MOST_ROWS),)))

        return self._link.run(work)

    def marks(self, batch: Batch) -> bytes:
        """Returns bytes by which `take` knows a batch again: each of its rows.

        Transactions commit in another order than they draw the places of their rows.
        """
        return b"".join([_MARK.pack(*row) for row in batch.rows])

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""
        asked = (group, topic)
        return _id_of(self._link.run(lambda link: link.execute(POSITION, asked)))

    def has_committed(self, xid: str) -> bool:
        """Tells how a transaction ended whose answer was lost.

        Raises `TransactionOutcomeUnknown` where PostgreSQL cannot be asked.
        """
        ask = "SELECT pg_xact_status(%s::xid8)"
        try:
            found = self._link.run(lambda link: link.execute(ask, (xid,)).fetchone())
        except Unavailable as error:
            raise TransactionOutcomeUnknown(
                f"the answer to a commit in PostgreSQL was lost, and nobody can ask "
                f"it: SELECT pg_xact_status('{xid}') tells whether it took place"
            ) from error
        return found is not None and found[0] == "committed"

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def __repr__(self) -> str:
        return f"<PostgresOutbox {self.outbox_id}>"


class DecidingPostgres(DecidingDatabase):
    """A connection to PostgreSQL whose own commit decides the block."""

    def __init__(
        self,
        messaging: Messaging,
        connection: "Connection[Any]",
        relay: OutboxRelay[PostgresOutbox],
    ) -> None:
        super().__init__(messaging, relay, name=name_of(connection))
        self.connection = connection
        self._rows = relay.rows

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come; other members wait for this block."""
        asked = (group, topic)
        self.connection.execute(ENTER, asked)
        plain = self.connection.cursor(row_factory=driver().rows.tuple_row)
        return _id_of(plain.execute(f"{POSITION} FOR UPDATE", asked))

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""
        self.connection.execute(SAVE, (bytes(position), group, topic))

    def _begin(self) -> None:
        require_idle(self.connection, self.transaction_aware_name)
        mark_begin(self.connection)

    def _commit(self) -> None:
        connection, name = self.connection, self.transaction_aware_name
        require_marked(connection, name)
        plain = connection.cursor(row_factory=driver().rows.tuple_row)
        found = plain.execute("SELECT pg_current_xact_id_if_assigned()::text")
        [xid] = found.fetchone() or [None]
        try:
            connection.commit()
        except driver().OperationalError:
            if xid is None or not self._rows.has_committed(xid):
                raise

    def _rollback(self) -> None:
        try:
            self.connection.rollback()
        except driver().OperationalError:
            return  # a server rolls back what it has lost the connection to

    def _insert(self, columns: Columns) -> None:
        self.connection.execute(INSERT, columns)


def _id_of(cursor: Any) -> MessageId | None:
    found = cursor.fetchone()
    return None if found is None or found[0] is None else MessageId(bytes(found[0]))
