"""PostgreSQL that decides its block: its outbox and inbox, and the participant."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from txaware.errors import TransactionOutcomeUnknown, Unavailable
from txaware.model.messages import MessageId
from txaware.participants import set_aside_rows
from txaware.participants.database_steps import Steps, postgres_rows
from txaware.participants.database_tables import prepared_postgres
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.inbox_cleaner import InboxCleaner
from txaware.participants.outbox_progress import Progress
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import (
    COLUMNS,
    MOST_BYTES,
    WHOLE_BYTES,
    WHOLE_ROWS,
    Columns,
    OutboxBatch,
    OutboxDestination,
    Row,
    SetAside,
    SetAsideMessage,
)
from txaware.participants.postgres_block import (
    mark_begin,
    require_idle,
    require_marked,
)
from txaware.participants.postgres_inbox import (
    FORGET,
    NOTE,
    NOTED,
    SYNCED,
    PostgresNotedItems,
)
from txaware.participants.postgres_link import PostgresLink, driver, name_of
from txaware.participants.set_aside_rows import CountedLately, Execute
from txaware.publish.publisher import OVERHEAD_BYTES

if TYPE_CHECKING:
    from psycopg import Connection

MOST_ROWS = 10_000
# The relays that listen are woken by the commit.
CHANNEL = "txaware_outbox"
_WITH_WAKE = f"""WITH written AS (
    INSERT INTO txaware_outbox ({COLUMNS})
    VALUES (%s, %s, %s, %s, %s, {{token}}, %s, %s, %s, %s) RETURNING id)
    SELECT pg_notify('{CHANNEL}', '') FROM written"""
INSERT = _WITH_WAKE.format(token="%s")
# All rows of one transaction have one token; the one that comes with them is not used.
INSERT_BY_TRANSACTION = _WITH_WAKE.format(
    token="CASE WHEN %s::bytea IS NULL THEN NULL "
    "ELSE int8send(pg_current_xact_id()::text::bigint) END"
)
POSITION = "SELECT position FROM txaware_inbox WHERE consumer_group = %s AND topic = %s"
# A row to lock, for members of a group that begin at the same time.
ENTER = "INSERT INTO txaware_inbox VALUES (%s, %s, NULL) ON CONFLICT DO NOTHING"
SAVE = "UPDATE txaware_inbox SET position = %s WHERE consumer_group = %s AND topic = %s"
_SIZES = """SELECT id, token, octet_length(payload) FROM txaware_outbox
    ORDER BY id LIMIT %s"""
_SIZES_OF_BLOCK = """SELECT id, token, octet_length(payload) FROM txaware_outbox
    WHERE token = %s ORDER BY id LIMIT %s"""
_LONGER = """SELECT DISTINCT token FROM txaware_outbox
    WHERE id > %s AND token = ANY(%s)"""
_READ = f"SELECT id, {COLUMNS} FROM txaware_outbox WHERE id = ANY(%s) ORDER BY id"
_DELETE = """DELETE FROM txaware_outbox AS row
    USING unnest(%s::bigint[], %s::bytea[]) AS carried (id, token)
    WHERE row.id = carried.id AND row.token = carried.token"""
# Nobody sets rows aside while others are put back or removed: they would be lost.
_LOCK = "LOCK TABLE txaware_set_aside IN SHARE ROW EXCLUSIVE MODE"
# The place of a row, its token, and the bytes of its payload.
Size = tuple[int, bytes, int]


class PostgresOutbox:
    """The tables of one database; they are made if they are not there."""

    # Transactions commit in another order than they draw the places of their rows.
    tells_pieces = False

    def __init__(self, link: PostgresLink) -> None:
        self._link = link
        self._listening = link.another()
        self._listens_by: object = None
        self._count = CountedLately()
        self.name = link.name
        self.outbox_id = link.run(prepared_postgres)

    def has_rows(self) -> bool:
        """Tells whether a row is there, carried over or not."""
        ask = "SELECT 1 FROM txaware_outbox LIMIT 1"
        return self._link.run(lambda link: link.execute(ask).fetchone()) is not None

    def take(self, progress: bytes, *, limit: int) -> OutboxBatch:
        """Removes what a relay carried over last, or sets it aside; returns the next.

        Its commit writes something in any case, and is synced: so what others have
        committed before, perhaps without a sync, is on disk as well.
        """
        last = Progress.read(progress, tells_pieces=False)

        def work(link: "Connection[Any]") -> OutboxBatch:
            with link.transaction():
                link.execute("SET LOCAL synchronous_commit = on")
                link.execute("UPDATE txaware_state SET reads = reads + 1")
                if last.carried:
                    columns = [[mark[at] for mark in last.carried] for at in (0, 1)]
                    link.execute(_DELETE, columns)
                execute = _executing(link)
                newly = set_aside_rows.set_aside_refused(execute, last.refused)
                places, is_all = _whole_blocks(link, min(limit, MOST_ROWS))
                rows = [*map(Row._make, link.execute(_READ, (places,)))]
                rest = 0 if is_all else set_aside_rows.waiting(execute) - len(rows)
                return OutboxBatch(rows, rest, newly)

        if last.refused:
            self._count.forget()
        return self._link.run(work)

    def waiting(self) -> int:
        """Returns how many rows wait, those carried over a moment ago included."""
        return self._link.run(lambda link: set_aside_rows.waiting(_executing(link)))

    def oldest_ms(self) -> int | None:
        """Returns when the first row that waits was written; None where none waits."""
        oldest_ms = set_aside_rows.oldest_ms
        return self._link.run(lambda link: oldest_ms(_executing(link)))

    def wait(self, timeout_s: float) -> bool:
        """Waits until a transaction has committed that wrote rows: it notifies."""
        return self._listening.run(partial(self._notified, timeout_s))

    def _notified(self, timeout_s: float, link: "Connection[Any]") -> bool:
        if self._listens_by is not link:  # a new one, and nobody told it before
            link.execute(f"LISTEN {CHANNEL}")
            self._listens_by = link
            return True
        return any(True for _ in link.notifies(timeout=timeout_s, stop_after=1))

    def set_aside_count(self) -> int:
        """Returns how many rows are set aside; some seconds old at most."""
        count = set_aside_rows.set_aside_count
        return self._link.run(
            lambda link: self._count.get(lambda: count(_executing(link)))
        )

    def set_aside(self) -> list[SetAside]:
        """Returns what is set aside, by topic and queue; the oldest first."""
        return self._link.run(lambda link: set_aside_rows.entries(_executing(link)))

    def set_aside_messages(
        self, destination: OutboxDestination, *, limit: int
    ) -> list[SetAsideMessage]:
        """Returns the first rows that are set aside for a topic or queue."""
        topic, messages = destination.column, set_aside_rows.messages
        return self._link.run(
            lambda link: messages(_executing(link), topic, limit=limit)
        )

    def put_back(self, destination: OutboxDestination, *, to: str | None = None) -> int:
        """Has all that is set aside for a topic or queue wait again, in its order."""
        topic, put_back = destination.column, set_aside_rows.put_back
        return self._changed(lambda execute: put_back(execute, topic, to=to or topic))

    def discard(self, destination: OutboxDestination) -> int:
        """Removes what is set aside for a topic or queue; returns how many rows."""
        topic, discard = destination.column, set_aside_rows.discard
        return self._changed(lambda execute: discard(execute, topic))

    def _changed(self, change: Callable[[Execute], int]) -> int:
        """Changes what is set aside, while nobody adds to it."""

        def work(link: "Connection[Any]") -> int:
            with link.transaction():
                link.execute(_LOCK)
                return change(_executing(link))

        self._count.forget()
        return self._link.run(work)

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""
        asked = (group, topic)
        read = self._link.run(lambda link: link.execute(POSITION, asked).fetchall())
        return _id_of(read)

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves an inbox outside of a block; on disk when it returns."""

        def work(link: "Connection[Any]") -> None:
            with link.transaction():
                link.execute("SET LOCAL synchronous_commit = on")
                link.execute(ENTER, (group, topic))
                link.execute(SAVE, (bytes(position), group, topic))

        self._link.run(work)

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
        """Closes the connections."""
        self._listening.close()
        self._link.close()

    def __repr__(self) -> str:
        return f"<PostgresOutbox {self.outbox_id}>"


class DecidingPostgres(DecidingDatabase):
    """A connection to PostgreSQL whose own commit decides the block."""

    kind = "postgres"
    _relay: OutboxRelay[PostgresOutbox]

    def _name(self) -> Steps[str]:
        yield from ()
        return name_of(self.connection)

    def _new_relay(self) -> OutboxRelay[PostgresOutbox]:
        link = PostgresLink.beside(self.connection)
        return OutboxRelay(self.messaging, PostgresOutbox(link))

    def _new_cleaner(self) -> InboxCleaner:
        link = PostgresLink.beside(self.connection)
        return InboxCleaner(self.messaging, PostgresNotedItems(link))

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        """True once the connection was closed or lost."""
        return bool(self.connection.closed)

    def is_away(self, error: BaseException) -> bool:
        """Tells whether an error says that PostgreSQL is away, or has a conflict.

        A statement that took too long is none: it may do so for ever.
        """
        errors = driver()
        if isinstance(error, errors.errors.QueryCanceled):
            return False
        return isinstance(error, errors.OperationalError | errors.InterfaceError)

    def _require_idle(self) -> None:
        require_idle(self.connection, self.transaction_aware_name)

    def _begin(self) -> Steps[None]:
        yield from mark_begin(self.connection)

    def _commit(self) -> Steps[None]:
        connection, name = self.connection, self.transaction_aware_name
        yield from require_marked(connection, name)
        if self._noted:
            yield from postgres_rows(connection, SYNCED)
        ask = "SELECT pg_current_xact_id_if_assigned()::text"
        [[xid]] = yield from postgres_rows(connection, ask)
        try:
            yield connection.commit()
        except (driver().OperationalError, asyncio.CancelledError):
            if xid is None or not self._relay.rows.has_committed(xid):
                raise

    def _is_synced(self) -> Steps[bool]:
        yield from ()
        return True  # the commit of a block that noted something is

    def _rollback(self) -> Steps[None]:
        try:
            yield self.connection.rollback()
        except driver().OperationalError:
            return  # a server rolls back what it has lost the connection to

    def _insert(self, rows: Sequence[Columns]) -> Steps[None]:
        yield self.connection.cursor().executemany(INSERT, rows)

    def _position(self, group: str, topic: str) -> Steps[MessageId | None]:
        """Reads how far a group has come; other members wait for this block."""
        yield self.connection.execute(ENTER, (group, topic))
        found = postgres_rows(self.connection, f"{POSITION} FOR UPDATE", group, topic)
        return _id_of((yield from found))

    def _save_position(
        self, group: str, topic: str, position: MessageId
    ) -> Steps[None]:
        yield self.connection.execute(SAVE, (bytes(position), group, topic))

    def _note(self, store: str, queue: str, items: Collection[str]) -> Steps[set[str]]:
        noted = yield from self._items(NOTE, store, queue, items)
        return {*items} - noted

    def _still_noted(
        self, store: str, queue: str, items: Collection[str]
    ) -> Steps[set[str]]:
        return (yield from self._items(NOTED, store, queue, items))

    def _forget(self, store: str, queue: str, items: Collection[str]) -> Steps[None]:
        yield self.connection.execute(FORGET, (store, queue, list(items)))

    def _items(
        self, query: str, store: str, queue: str, items: Collection[str]
    ) -> Steps[set[str]]:
        found = postgres_rows(self.connection, query, store, queue, list(items))
        return {item for (item,) in (yield from found)}


def _executing(link: "Connection[Any]") -> Execute:
    """Returns what runs statements whose values are `?` over a connection."""
    return lambda sql, values: link.execute(sql.replace("?", "%s"), values)


def _whole_blocks(link: "Connection[Any]", limit: int) -> tuple[list[int], bool]:
    """Returns the places of the first rows of whole blocks, and whether these are all.

    Rows of one block may have those of others between them. A block that does not fit
    is left to the next batch; if nothing else fits, the first one is taken as a whole,
    or as much of it as one batch may ever be.
    """
    sizes: list[Size] = link.execute(_SIZES, (limit + 1,)).fetchall()
    count = min(limit, _fitting(sizes, MOST_BYTES))
    if count == len(sizes):
        return [place for place, *_ in sizes], True
    taken = sizes[:count]
    tokens = list({bytes(token) for _, token, _ in taken})
    found = link.execute(_LONGER, (taken[-1][0], tokens))
    longer = {bytes(token) for (token,) in found}
    whole = [place for place, token, _ in taken if bytes(token) not in longer]
    if whole:
        return whole, False
    asked = (taken[0][1], WHOLE_ROWS)
    block: list[Size] = link.execute(_SIZES_OF_BLOCK, asked).fetchall()
    return [place for place, *_ in block[: _fitting(block, WHOLE_BYTES)]], False


def _fitting(sizes: Sequence[Size], most_bytes: int) -> int:
    """Returns how many of some rows stay below so many bytes; at least one."""
    size_bytes = 0
    for at, (_, _, payload_bytes) in enumerate(sizes):
        size_bytes += payload_bytes + OVERHEAD_BYTES
        if size_bytes > most_bytes:
            return max(1, at)
    return len(sizes)


def _id_of(rows: Sequence[Any]) -> MessageId | None:
    found = rows[0][0] if rows else None
    return None if found is None else MessageId(bytes(found))
