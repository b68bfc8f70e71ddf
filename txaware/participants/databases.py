"""The databases and files of participants, by the addresses that people type."""

from contextlib import closing
from pathlib import Path

from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.participants.database_link import DatabaseLink
from txaware.participants.file_places import PLACE
from txaware.participants.files import Files
from txaware.participants.inbox_cleaner import NotedItems, NotedRows
from txaware.participants.mysql import PreparedInMysql
from txaware.participants.mysql_link import SCHEMES, MysqlLink
from txaware.participants.mysql_outbox import MysqlOutbox
from txaware.participants.outbox_row import OutboxRows
from txaware.participants.postgres import PreparedInPostgres
from txaware.participants.postgres_link import PostgresLink
from txaware.participants.postgres_outbox import PostgresOutbox
from txaware.participants.prepared_transactions import PreparedTransactions
from txaware.participants.sqlite_link import SqliteLink
from txaware.participants.sqlite_outbox import SqliteOutbox


def open_outbox(database: str) -> OutboxRows:
    """Opens the outbox of a database that is there already."""
    if is_postgres(database):
        return PostgresOutbox(PostgresLink(database))
    if is_mysql(database):
        return MysqlOutbox(MysqlLink.at(database))
    if not Path(database).is_file():
        raise BadRequest(f"there is no file of SQLite at {database}")
    return SqliteOutbox(database)


def open_noted_items(database: str) -> NotedItems:
    """Opens the notes of popped items in a database whose outbox was opened."""
    return NotedRows(_link(database))


def _link(database: str) -> DatabaseLink:
    if is_postgres(database):
        return PostgresLink(database)
    if is_mysql(database):
        return MysqlLink.at(database)
    return SqliteLink(database)


def recover(messaging: Messaging, place: str) -> list[int]:
    """Ends what crashes left in a database or in files; returns what is still open."""
    if is_postgres(place):
        prepared: PreparedTransactions = PreparedInPostgres(messaging, _link(place))
    elif is_mysql(place):
        prepared = PreparedInMysql(messaging, _link(place))
    else:
        with _open_files(messaging, place) as files:
            return files.recover()
    with closing(prepared):
        return prepared.recover()


def skip(messaging: Messaging, place: str) -> list[str]:
    """Gives up what cannot be done in files; returns where that is put by."""
    for is_there, database, kind in (
        (is_postgres, "PostgreSQL", PreparedInPostgres),
        (is_mysql, "MySQL", PreparedInMysql),
    ):
        if is_there(place):
            raise BadRequest(
                f"a {database} skips nothing: end what is prepared there by "
                f"{kind.by_hand}"
            )
    with _open_files(messaging, place) as files:
        return files.skip()


def _open_files(messaging: Messaging, place: str) -> Files:
    """Opens a directory of files, whose program has registered it as a keeper."""
    directory = Path(place).absolute()
    if not (directory / PLACE).is_dir():
        raise BadRequest(
            f"{place} is neither the address of a PostgreSQL (postgresql://HOST/"
            f"DATABASE) or a MySQL (mysql://HOST/DATABASE) nor a directory "
            f"that participants.files has opened"
        )
    return Files(messaging.coordinator, directory)


def is_postgres(database: str) -> bool:
    """Tells whether that is the address of a PostgreSQL."""
    return database.startswith(("postgresql://", "postgres://"))


def is_mysql(database: str) -> bool:
    """Tells whether that is the address of a MariaDB or MySQL."""
    return database.startswith(SCHEMES)
