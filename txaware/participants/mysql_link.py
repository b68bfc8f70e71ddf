"""A connection of ours to the user's MariaDB or MySQL, and how these are spoken to."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from ssl import SSLSocket
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from coordinator.errors import install_with
from txaware.errors import BadRequest, MissingExtra, Unavailable
from txaware.participants.database_link import DatabaseLink
from txaware.participants.database_steps import Steps
from txaware.participants.outbox_row import INSERT
from txaware.participants.sql_dialect import SqlDialect

log = logging.getLogger(__name__)

CONNECT_S = 10
SCHEMES = ("mysql://", "mariadb://")
PORT = 3306
# Whoever makes the tables waits so long for another one who does.
WAIT_S = 60
# What says that the server is away, is full, or has a conflict: it passes.
AWAY = frozenset(
    [
        *(1040, 1053, 1077, 1079, 1203, 1226, 1927, 3032, 4031),
        *(2002, 2003, 2006, 2013, 2014, 2055),
        *(1205, 1213),
    ]
)
# The bit of a server's status that says so.
IN_TRANSACTION = 1
_SYNCED = """SELECT @@innodb_flush_log_at_trx_commit = 1
    AND (NOT @@log_bin OR @@sync_binlog = 1)"""
_TYPES = {
    "place": "bigint AUTO_INCREMENT",
    # Our names are ASCII; three of them are as long as a key may be.
    "name": "varchar(1000) CHARACTER SET ascii COLLATE ascii_bin",
    "text": "mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "bytes": "longblob",
    "seconds": "double",
    "integer": "bigint",
    "table": "ENGINE = InnoDB",
}


def driver() -> Any:
    """Returns the module pymysql; raises `MissingExtra` where it is not installed."""
    try:
        import pymysql as found
    except ImportError as error:
        raise MissingExtra(
            f"MariaDB and MySQL are spoken to with PyMySQL: {install_with('mysql')}"
        ) from error
    return found


def checked_mysql(connection: Any) -> Any:
    """Returns a connection of PyMySQL; raises `BadRequest` for anything else."""
    if not isinstance(connection, driver().connections.Connection):
        raise BadRequest(
            f"{connection!r:.200} is no connection of PyMySQL: open one by "
            f"pymysql.connect"
        )
    return connection


class MysqlDialect(SqlDialect):
    """Speaks to MariaDB and MySQL, by PyMySQL."""

    types = _TYPES
    columns = """SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = database() AND table_name LIKE 'txaware%'"""
    insert = insert_alone = INSERT
    # IGNORE would lock the row as readers do, and two that go on to write were stuck.
    enter = """INSERT INTO txaware_inbox VALUES (?, ?, NULL)
        ON DUPLICATE KEY UPDATE topic = topic"""
    note = "INSERT IGNORE INTO txaware_inbox_items VALUES (?, ?, ?)"
    state = "INSERT IGNORE INTO txaware_state VALUES (1, ?, 0)"
    lock = " FOR UPDATE"
    makes_tables_within = False

    def own(self, sql: str) -> str:
        """Returns a statement with the places and the quotes of MySQL."""
        return _own(sql)

    def cursor(self, connection: Any) -> Steps[Any]:
        """Makes a cursor whose rows are tuples."""
        yield from ()
        return connection.cursor(driver().cursors.Cursor)

    def is_outside(self, connection: Any) -> bool:
        """Tells whether it is in autocommit, and nobody has begun a transaction."""
        return bool(connection.get_autocommit()) and not is_in_transaction(connection)


@cache
def _own(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s").replace('"', "`")


MYSQL = MysqlDialect()


class MysqlLink(DatabaseLink):
    """A connection with the parameters of the user's, or to an address."""

    dialect = MYSQL

    def __init__(self, **parameters: Any) -> None:
        super().__init__()
        self._parameters = parameters

    @classmethod
    def beside(cls, connection: Any) -> Self:
        """Makes one to where another connection leads."""
        parameters = {
            name: getattr(connection, name)
            for name in ("host", "port", "unix_socket", "user", "password")
        }
        parameters["database"] = connection.db
        # PyMySQL keeps them as it sends them.
        texts = {
            name: value.decode("latin1" if name == "password" else "utf-8")
            for name, value in parameters.items()
            if isinstance(value, bytes)
        }
        is_tls = isinstance(connection._sock, SSLSocket)
        return cls(**parameters | texts, ssl=connection.ctx if is_tls else None)

    @classmethod
    def at(cls, address: str) -> Self:
        """Makes one to an address, `mysql://USER:PASSWORD@HOST:PORT/DATABASE`."""
        try:
            found = urlsplit(address)
            port = found.port or PORT
        except ValueError as error:
            raise BadRequest(f"{address} is no address of a MySQL: {error}") from error
        database = unquote(found.path.removeprefix("/"))
        if not database:
            raise BadRequest(
                f"{address} names no database: mysql://USER@HOST:PORT/DATABASE"
            )
        user, password = unquote(found.username or ""), unquote(found.password or "")
        host = found.hostname or "localhost"
        return cls(
            host=host, port=port, user=user, password=password, database=database
        )

    def another(self) -> Self:
        """Makes another one to the same place."""
        return type(self)(**self._parameters)

    @property
    def name(self) -> str:
        """The database and its place, in words."""
        return self.run(name_of)

    @contextmanager
    def making_tables(self, connection: Any) -> Iterator[None]:
        """Surrounds the making of the tables, which others wait for.

        It would commit the transaction that is open, so there is none.
        """
        execute = MYSQL.executing(connection)
        [got] = execute("SELECT GET_LOCK('txaware tables', ?)", (WAIT_S,)).fetchone()
        if not got:
            raise Unavailable(f"others make tables in {name_of(connection)} for long")
        try:
            yield
        finally:
            execute("SELECT RELEASE_LOCK('txaware tables')", ())

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        errors = driver().err
        try:
            yield
        except (errors.OperationalError, errors.InterfaceError) as error:
            if is_away(error):
                self._drop()
                raise Unavailable(f"MySQL does not answer: {text_of(error)}") from error
            raise BadRequest(f"MySQL refuses: {text_of(error)}") from error
        except errors.Error as error:
            raise BadRequest(f"MySQL refuses: {text_of(error)}") from error

    def _opened(self) -> Any:
        if self._is_closed:
            raise Unavailable("the connection to MySQL is closed")
        if self._connection is None or not self._connection.open:
            self._connection = driver().connect(
                **self._parameters,
                autocommit=True,
                charset="utf8mb4",
                binary_prefix=True,
                connect_timeout=CONNECT_S,
            )
            # Rows between others must not be locked: their owners would wait.
            self._connection.query(
                "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
            )
            self._connection.query("SET SESSION sql_mode = 'STRICT_ALL_TABLES'")
        return self._connection

    def _drop(self) -> None:
        found, self._connection = self._connection, None
        if found is not None and found.open:
            found.close()

    @contextmanager
    def _transaction(self, connection: Any) -> Iterator[None]:
        connection.begin()
        try:
            yield
            connection.commit()
        except BaseException:
            if connection.open:
                connection.rollback()
            raise


def warn_unless_synced(link: MysqlLink) -> None:
    """Tells the log where the server has no commit on disk when it answers."""
    [synced] = link.ask(lambda execute: execute(_SYNCED, ()).fetchone())
    if not synced:
        log.warning(
            "%s does not sync its commits, so a power cut may take rows of blocks that "
            "have committed; set innodb_flush_log_at_trx_commit = 1, and with a binary "
            "log sync_binlog = 1",
            link.name,
        )


def name_of(connection: Any) -> str:
    """Returns the database of a connection and its place, in words."""
    database = connection.db or b""
    named = database.decode() if isinstance(database, bytes) else database
    return f"mysql {named} at {connection.host}:{connection.port}"


def is_in_transaction(connection: Any) -> bool:
    """Tells whether a transaction is open that has written; of others not all."""
    return bool(connection.server_status & IN_TRANSACTION)


def is_away(error: BaseException) -> bool:
    """Tells whether an error says that the server is away, or has a conflict."""
    errors = driver().err
    if isinstance(error, errors.InterfaceError):
        return True
    return isinstance(error, errors.Error) and code_of(error) in AWAY


def code_of(error: BaseException) -> int:
    """Returns the number of an error of MySQL; 0 without one."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def text_of(error: BaseException) -> str:
    """Returns what an error of MySQL says, without its number."""
    return str(error.args[-1]).strip() or "the connection is lost"
