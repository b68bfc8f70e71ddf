"""PostgreSQL: your SQL commits with the messages, by a prepared transaction."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from txaware.errors import BadRequest
from txaware.participants.database_steps import Steps
from txaware.participants.postgres_block import (
    mark_begin,
    require_idle,
    require_marked,
    require_whole,
)
from txaware.participants.postgres_link import PostgresLink, driver, name_of
from txaware.participants.prepared_database import PreparedDatabase
from txaware.participants.prepared_transactions import PreparedTransactions

_MOST = "SHOW max_prepared_transactions"
_ALL = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"


class PreparedInPostgres(PreparedTransactions):
    """Settles what is prepared in one database of PostgreSQL."""

    by_hand = "COMMIT PREPARED or ROLLBACK PREPARED"

    def require_that_it_prepares(self) -> None:
        """Raises `BadRequest` where the server prepares no transactions."""
        most = self._link.run(lambda found: found.execute(_MOST).fetchone())
        if most is not None and int(most[0]) == 0:
            raise BadRequest(
                "this PostgreSQL prepares no transactions: set "
                "max_prepared_transactions in its postgresql.conf to as many as there "
                "are connections, 100 for example, and start it anew; or use "
                "postgres(messaging, connection, outbox=True)"
            )

    def end(self, name: str, *, commit: bool) -> bool:
        """Commits or rolls back what is prepared; what has ended already stays so."""
        errors = driver().errors
        verb = "COMMIT" if commit else "ROLLBACK"

        def work(link: Any) -> bool:
            # Somebody else may have ended it, or do so now.
            with suppress(errors.UndefinedObject, errors.ObjectNotInPrerequisiteState):
                link.execute(f"{verb} PREPARED '{name}'")
            return True

        return self._link.run(work)

    def _names(self) -> Iterable[str]:
        found = self._link.run(lambda link: link.execute(_ALL).fetchall())
        return [name for (name,) in found]


class Postgres(PreparedDatabase):
    """A connection to PostgreSQL, whose transaction is prepared before the commit."""

    @property
    def is_closed(self) -> bool:  # type: ignore[override]
        """True once the connection was closed or lost."""
        return bool(self.connection.closed)

    def _name(self) -> str:
        return name_of(self.connection)

    @property
    def _errors(self) -> type[Exception]:
        return driver().Error  # type: ignore[no-any-return]

    def _new_prepared(self) -> PreparedTransactions:
        return PreparedInPostgres(self.messaging, PostgresLink.beside(self.connection))

    def _require_idle(self) -> None:
        require_idle(self.connection, self.transaction_aware_name)

    def _require_whole(self) -> None:
        require_whole(self.connection, self.transaction_aware_name)

    def _ended(self, *, was_asked: bool, commit: bool) -> Steps[None]:
        yield from self._let_go()
        if was_asked:
            yield from self._end_here(self._own_name, commit=commit)

    def _begin(self, name: str) -> Steps[None]:
        """Begins by any name; psycopg refuses commit() and rollback() until the end."""
        yield self.connection.tpc_begin(name)

    def _prepare(self, name: str) -> Steps[None]:
        """Prepares, by plain SQL: psycopg is stuck where somebody else ends it."""
        yield self.connection.execute(f"PREPARE TRANSACTION '{name}'", prepare=False)

    def _let_go(self) -> Steps[None]:
        """Rolls back what is open; nothing is where it was prepared."""
        yield self.connection.tpc_rollback()

    def _end_here(self, name: str, *, commit: bool) -> Steps[None]:
        """Ends what is prepared over its own connection."""
        verb = "COMMIT" if commit else "ROLLBACK"
        yield self.connection.set_autocommit(True)
        try:
            yield self.connection.execute(f"{verb} PREPARED '{name}'", prepare=False)
        finally:
            yield self.connection.set_autocommit(False)


class MarkedPostgres(Postgres):
    """A participant whose connection may be rolled back inside of the block.

    A session of SQLAlchemy does so when a flush fails, and has to be able to: the error
    would be another one else. So psycopg does not guard the transaction.
    """

    def _begin(self, name: str) -> Steps[None]:
        yield from mark_begin(self.connection)

    def _prepare(self, name: str) -> Steps[None]:
        yield from require_marked(self.connection, self.transaction_aware_name)
        yield from super()._prepare(name)

    def _let_go(self) -> Steps[None]:
        yield self.connection.rollback()
