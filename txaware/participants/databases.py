"""The databases that participants work with, by the addresses that people type."""

from pathlib import Path

from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.participants.outbox_row import OutboxRows
from txaware.participants.postgres_link import PostgresLink
from txaware.participants.postgres_outbox import PostgresOutbox
from txaware.participants.prepared_transactions import PreparedTransactions
from txaware.participants.sqlite_outbox import SqliteOutbox


def open_outbox(database: str) -> OutboxRows:
    """Opens the outbox of a database that is there already."""
    if is_postgres(database):
        return PostgresOutbox(PostgresLink(database))
    if not Path(database).is_file():
        raise BadRequest(f"there is no file of SQLite at {database}")
    return SqliteOutbox(database)


def recover(messaging: Messaging, database: str) -> list[int]:
    """Ends what crashes left prepared in a PostgreSQL; returns what is still open."""
    if not is_postgres(database):
        raise BadRequest(
            f"{database} is no address of a PostgreSQL (postgresql://HOST/DATABASE), "
            f"and nothing else is left prepared"
        )
    prepared = PreparedTransactions(messaging, PostgresLink(database))
    try:
        return prepared.recover()
    finally:
        prepared.close()


def is_postgres(database: str) -> bool:
    """Tells whether that is the address of a PostgreSQL."""
    return database.startswith(("postgresql://", "postgres://"))
