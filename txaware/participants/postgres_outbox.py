"""PostgreSQL that decides its block: its outbox and inbox, and the participant."""

import asyncio
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from txaware.errors import TransactionOutcomeUnknown, Unavailable
from txaware.participants.database_steps import Steps
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.outbox_progress import Mark
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import COLUMNS, Pause
from txaware.participants.outbox_tables import ConcurrentOutbox
from txaware.participants.postgres_block import (
    mark_begin,
    require_idle,
    require_marked,
)
from txaware.participants.postgres_link import (
    CHANNEL,
    POSTGRES,
    PostgresLink,
    driver,
    name_of,
)
from txaware.participants.sql_dialect import Execute

if TYPE_CHECKING:
    from psycopg import Connection

# A commit that is not synced could be lost when its items have ended.
SYNCED = """SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') = 'off'"""
XID = "SELECT pg_current_xact_id_if_assigned()::text"
_LONGER = """SELECT DISTINCT token FROM txaware_outbox
    WHERE id > ? AND token = ANY(?)"""
_READ = f"SELECT id, {COLUMNS} FROM txaware_outbox WHERE id = ANY(?) ORDER BY id"
_DELETE = """DELETE FROM txaware_outbox AS row
    USING unnest(?::bigint[], ?::bytea[]) AS carried (id, token)
    WHERE row.id = carried.id AND row.token = carried.token"""


class PostgresOutbox(ConcurrentOutbox):
    """The tables of one PostgreSQL, whose relays are woken by each commit."""

    def __init__(self, link: PostgresLink) -> None:
        super().__init__(link)
        self._listening = link.another()
        self._listens_by: object = None

    def wait(self, timeout_s: float, *, pause: Pause = time.sleep) -> bool:
        """Waits until a transaction has committed that wrote rows: it notifies."""
        return self._listening.run(partial(self._notified, timeout_s))

    def _notified(self, timeout_s: float, link: "Connection[Any]") -> bool:
        if self._listens_by is not link:  # a new one, and nobody told it before
            link.execute(f"LISTEN {CHANNEL}")
            self._listens_by = link
            return True
        return any(True for _ in link.notifies(timeout=timeout_s, stop_after=1))

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

    def _remove_marks(self, execute: Execute, marks: Sequence[Mark]) -> None:
        if marks:
            execute(_DELETE, [[mark[at] for mark in marks] for at in (0, 1)])

    def _at(self, execute: Execute, places: Sequence[int]) -> Sequence[Any]:
        return execute(_READ, ([*places],)).fetchall()  # type: ignore[no-any-return]

    def _going_on(
        self, execute: Execute, last: int, tokens: Sequence[bytes]
    ) -> Sequence[bytes]:
        found = execute(_LONGER, (last, [*tokens])).fetchall()
        return [token for (token,) in found]


class DecidingPostgres(DecidingDatabase):
    """A connection to PostgreSQL whose own commit decides the block."""

    kind = "postgres"
    dialect = POSTGRES
    _relay: OutboxRelay[PostgresOutbox]

    def _name(self) -> Steps[str]:
        yield from ()
        return name_of(self.connection)

    def _new_rows(self) -> PostgresOutbox:
        return PostgresOutbox(self._new_link())

    def _new_link(self) -> PostgresLink:
        return PostgresLink.beside(self.connection)

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
            yield from POSTGRES.rows(connection, SYNCED)
        [[xid]] = yield from POSTGRES.rows(connection, XID)
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

    def _note(self, store: str, queue: str, items: Collection[str]) -> Steps[set[str]]:
        note = self.dialect.rows(
            self.connection, POSTGRES.note, store, queue, list(items)
        )
        return {*items} - {item for (item,) in (yield from note)}
