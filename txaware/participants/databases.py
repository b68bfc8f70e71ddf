"""The databases and files of participants, by the addresses that people type."""

from pathlib import Path

from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.participants.file_places import PLACE
from txaware.participants.files import Files
from txaware.participants.inbox_cleaner import NotedItems
from txaware.participants.outbox_row import OutboxRows
from txaware.participants.postgres_inbox import PostgresNotedItems
from txaware.participants.postgres_link import PostgresLink
from txaware.participants.postgres_outbox import PostgresOutbox
from txaware.participants.prepared_transactions import PreparedTransactions
from txaware.participants.sqlite_inbox import SqliteNotedItems
from txaware.participants.sqlite_outbox import SqliteOutbox


def open_outbox(database: str) -> OutboxRows:
    """Opens the outbox of a database that is there already."""
    if is_postgres(database):
        return PostgresOutbox(PostgresLink(database))
    if not Path(database).is_file():
        raise BadRequest(f"there is no file of SQLite at {database}")
    return SqliteOutbox(database)


def open_noted_items(database: str) -> NotedItems:
    """Opens the notes of popped items in a database whose outbox was opened."""
    if is_postgres(database):
        return PostgresNotedItems(PostgresLink(database))
    return SqliteNotedItems(database)


def recover(messaging: Messaging, place: str) -> list[int]:
    """Ends what crashes left in a database or in files; returns what is still open."""
    if not is_postgres(place):
        with _open_files(messaging, place) as files:
            return files.recover()
    prepared = PreparedTransactions(messaging, PostgresLink(place))
    try:
        return prepared.recover()
    finally:
        prepared.close()


def skip(messaging: Messaging, place: str) -> list[str]:
    """Gives up what cannot be done in files; returns where that is put by."""
    if is_postgres(place):
        raise BadRequest(
            "a PostgreSQL skips nothing: end what is prepared there by COMMIT PREPARED "
            "or ROLLBACK PREPARED"
        )
    with _open_files(messaging, place) as files:
        return files.skip()


def _open_files(messaging: Messaging, place: str) -> Files:
    """Opens a directory of files, whose program has registered it as a keeper."""
    directory = Path(place).absolute()
    if not (directory / PLACE).is_dir():
        raise BadRequest(
            f"{place} is neither the address of a PostgreSQL (postgresql://HOST/"
            f"DATABASE) nor a directory that participants.files has opened"
        )
    return Files(messaging.coordinator, directory)


def is_postgres(database: str) -> bool:
    """Tells whether that is the address of a PostgreSQL."""
    return database.startswith(("postgresql://", "postgres://"))
