"""MariaDB and MySQL that decide their block: outbox and inbox, and the participant."""

import time
from collections.abc import Sequence
from typing import Any

from txaware.errors import TransactionOutcomeUnknown, Unavailable
from txaware.participants.database_steps import Steps
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.mysql_block import mark_begin, require_idle, require_marked
from txaware.participants.mysql_link import (
    MYSQL,
    MysqlLink,
    is_away,
    name_of,
    warn_unless_synced,
)
from txaware.participants.outbox_progress import Mark
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import COLUMNS, Pause
from txaware.participants.outbox_tables import ConcurrentOutbox
from txaware.participants.sql_dialect import Execute, any_of

# A relay that waits looks so often for rows: nobody tells it of a commit.
LOOK_S = 0.01
# So many values are looked up one by one; more would be compared with all rows.
MOST_VALUES = 500
_LONGER = "SELECT DISTINCT token FROM txaware_outbox WHERE id > ? AND token "
_READ = f"SELECT id, {COLUMNS} FROM txaware_outbox FORCE INDEX (PRIMARY) WHERE id "
# It locks these rows alone, and waits for no transaction that is open beside them.
_DELETE = """DELETE carried FROM txaware_outbox AS carried FORCE INDEX (PRIMARY)
    WHERE id {} AND (id, token) IN ({})"""
_OF_BLOCK = """SELECT 1 FROM txaware_outbox WHERE token = ?
    UNION ALL SELECT 1 FROM txaware_set_aside WHERE token = ? LIMIT 1"""


class MysqlOutbox(ConcurrentOutbox):
    """The tables of one database of MariaDB or MySQL."""

    _link: MysqlLink

    def __init__(self, link: MysqlLink) -> None:
        super().__init__(link)
        warn_unless_synced(link)

    def wait(self, timeout_s: float, *, pause: Pause = time.sleep) -> bool:
        """Waits until there are rows."""
        until_s = time.monotonic() + timeout_s
        while not self.has_rows():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            pause(min(left_s, LOOK_S))
        return True

    def has_committed(self, token: bytes) -> bool:
        """Tells whether rows of a block are there, which says that it has committed.

        That none is there says nothing: they may have been carried over.
        """
        both = (token, token)
        found = self._link.ask(lambda execute: execute(_OF_BLOCK, both).fetchone())
        return found is not None

    def _remove_marks(self, execute: Execute, marks: Sequence[Mark]) -> None:
        for at in range(0, len(marks), MOST_VALUES):
            part = marks[at : at + MOST_VALUES]
            pairs = ", ".join(["(?, ?)"] * len(part))
            places = [place for place, _ in part]
            values = [value for mark in part for value in mark]
            execute(_DELETE.format(any_of(part), pairs), [*places, *values])

    def _at(self, execute: Execute, places: Sequence[int]) -> Sequence[Any]:
        found: list[Any] = []
        for at in range(0, len(places), MOST_VALUES):
            part = places[at : at + MOST_VALUES]
            found += execute(f"{_READ}{any_of(part)} ORDER BY id", part).fetchall()
        return found

    def _going_on(
        self, execute: Execute, last: int, tokens: Sequence[bytes]
    ) -> Sequence[bytes]:
        found = execute(_LONGER + any_of(tokens), (last, *tokens)).fetchall()
        return [token for (token,) in found]


class DecidingMysql(DecidingDatabase):
    """A connection to MariaDB or MySQL whose own commit decides the block."""

    kind = "mysql"
    dialect = MYSQL
    _relay: OutboxRelay[MysqlOutbox]

    def _name(self) -> Steps[str]:
        yield from ()
        return name_of(self.connection)

    def _new_rows(self) -> MysqlOutbox:
        return MysqlOutbox(self._new_link())

    def _new_link(self) -> MysqlLink:
        return MysqlLink.beside(self.connection)

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        """True once the connection was closed or lost."""
        return not self.connection.open

    def is_away(self, error: BaseException) -> bool:
        """Tells whether an error says that MySQL is away, or has a conflict."""
        return is_away(error)

    def _require_idle(self) -> None:
        require_idle(self.connection, self.transaction_aware_name)

    def _begin(self) -> Steps[None]:
        yield from mark_begin(self.connection)

    def _commit(self) -> Steps[None]:
        yield from require_marked(self.connection, self.transaction_aware_name)
        try:
            yield self.connection.commit()
        except Exception as error:
            if not is_away(error):
                raise
            self._require_rows(error)

    def _require_rows(self, error: Exception) -> None:
        """Raises unless the rows of the block tell that it has committed."""
        try:
            if self._relay.rows.has_committed(self._token):
                return
        except Unavailable:
            pass
        raise TransactionOutcomeUnknown(
            f"the answer to a commit of {self.transaction_aware_name} was lost, and "
            f"none of its messages waits there: see whether the rows of the block are "
            f"there, before you do it again"
        ) from error

    def _is_synced(self) -> Steps[bool]:
        yield from ()
        return True  # or nothing is: it is a setting of the whole server

    def _rollback(self) -> Steps[None]:
        try:
            yield self.connection.rollback()
        except Exception as error:
            if not is_away(error):
                raise
            return  # a server rolls back what it has lost the connection to
