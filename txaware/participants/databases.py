"""The databases that participants work with, by the addresses that people type."""

from pathlib import Path

from txaware.errors import BadRequest
from txaware.participants.outbox_row import OutboxRows
from txaware.participants.sqlite_outbox import SqliteOutbox


def open_outbox(database: str) -> OutboxRows:
    """Opens the outbox of a database that is there already."""
    if not Path(database).is_file():
        raise BadRequest(f"there is no file of SQLite at {database}")
    return SqliteOutbox(database)
