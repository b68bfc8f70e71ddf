"""A connection to PostgreSQL that a library has lent, which rolls it back by itself."""

from txaware.participants.postgres import Postgres
from txaware.participants.postgres_block import mark_begin, require_marked


class LentPostgres(Postgres):
    """A participant whose connection may be rolled back inside of the block.

    A session of SQLAlchemy does so when a flush fails, and has to be able to: the error
    would be another one else. So psycopg does not guard the transaction.
    """

    def _begin(self, name: str) -> None:
        mark_begin(self.connection)

    def _prepare(self, name: str) -> None:
        require_marked(self.connection, self.transaction_aware_name)
        super()._prepare(name)

    def _let_go(self) -> None:
        self.connection.rollback()
