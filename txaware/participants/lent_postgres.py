"""A connection to PostgreSQL that a library has lent, which rolls it back by itself."""

from txaware.participants.postgres import Postgres
from txaware.participants.postgres_block import mark_begin, require_marked
from txaware.participants.postgres_link import psycopg


class LentPostgres(Postgres):
    """A participant whose connection may be rolled back inside of the block.

    A session of SQLAlchemy does so when a flush fails, and has to be able to: the error
    would be another one else. So psycopg is not told that the transaction is prepared.
    """

    def _begin(self, name: str) -> None:
        mark_begin(self.connection)

    def _prepare(self, name: str) -> None:
        require_marked(self.connection, self.transaction_aware_name)
        self.connection.execute(f"PREPARE TRANSACTION '{name}'")

    def _end_here(self, name: str, *, commit: bool, is_prepared: bool) -> None:
        connection = self.connection
        idle = psycopg().pq.TransactionStatus.IDLE
        if connection.info.transaction_status is not idle:
            connection.rollback()
        if not is_prepared:
            return
        verb = "COMMIT" if commit else "ROLLBACK"
        connection.autocommit = True
        try:
            connection.execute(f"{verb} PREPARED '{name}'")
        finally:
            connection.autocommit = False
