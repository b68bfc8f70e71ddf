"""A real MariaDB or MySQL; without one tests are skipped, and in CI they fail."""

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.concurrency import until
from tests.support.database_server import DatabaseServer, missing

DATABASE = "shop"
# A commit outlives a kill, and perhaps no power cut.
QUICK = {"innodb_flush_log_at_trx_commit": "2"}
SMALL = {"innodb_buffer_pool_size": "32M", "innodb_log_file_size": "8M"}


def binary(*names: str) -> str:
    """Finds a program of MariaDB, which Debian keeps out of the path of users."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    found = [place for name in names if (place := shutil.which(name, path=path))]
    return found[0] if found else missing("MariaDB is not installed")


def connected(url: str, **options: Any) -> Any:
    """Opens a connection that executes statements by itself, as others do."""
    import pymysql

    class Executing(pymysql.connections.Connection):  # type: ignore[misc]
        def execute(self, sql: str, values: Any = None) -> Any:
            cursor = self.cursor()
            cursor.execute(sql, values)
            return cursor

        def close(self) -> None:
            if self.open:  # others take a second time
                super().close()

    found = urlsplit(url)
    place: dict[str, Any] = {"host": found.hostname, "port": found.port}
    place |= {"user": found.username, "database": found.path[1:]}
    return Executing(**place | options)


class MysqlServer(DatabaseServer):
    """A MariaDB."""

    user = "mysql"
    ends_by, killed_by = signal.SIGTERM, signal.SIGKILL

    def __init__(self, **settings: str) -> None:
        if importlib.util.find_spec("pymysql") is None:
            missing("the mysql extra is not installed")
        self._settings = {**QUICK, **SMALL, **settings}
        super().__init__()
        with self.connect(database=None) as connection:
            connection.query(f"CREATE DATABASE {DATABASE}")

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"mysql://root@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def session_url(self) -> str:
        """The address of its database for SQLAlchemy."""
        return self.url.replace("mysql:", "mysql+pymysql:")

    def connect(self, **options: Any) -> Any:
        """Opens a connection, as a user does."""
        return connected(self.url, **options)

    def _make(self) -> None:
        self._run(
            binary("mariadb-install-db", "mysql_install_db"),
            *("--no-defaults", f"--datadir={self._directory / 'data'}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
            f"--tmpdir={self._directory}",  # one that begins empties what all share
        )

    def _command(self) -> Sequence[str]:
        options = {"datadir": self._directory / "data", "port": self.port}
        options |= {"bind-address": "127.0.0.1", "socket": self._directory / "socket"}
        options |= {"pid-file": self._directory / "pid", "tmpdir": self._directory}
        options |= self._settings
        pairs = [f"--{name}={value}" for name, value in options.items()]
        return [binary("mariadbd", "mysqld"), "--no-defaults", *pairs]

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connect(database=None).close()
        except pymysql.OperationalError:
            return False
        return True


@pytest.fixture(scope="session")
def mysql_of_all() -> Iterator[MysqlServer]:
    """One server for all tests that leave nothing in it."""
    server = MysqlServer()
    yield server
    server.close()


@pytest.fixture
def mysql_server(mysql_of_all: MysqlServer) -> Iterator[MysqlServer]:
    """A server with an empty database."""
    yield mysql_of_all
    with mysql_of_all.connect(autocommit=True) as connection:
        # Whoever is still in a transaction would keep the database.
        for number, *_ in connection.execute("SHOW PROCESSLIST").fetchall():
            if number != connection.thread_id():
                with suppress(Exception):  # it has ended meanwhile
                    connection.kill(number)
        for name in left_prepared(connection):
            assert until(partial(ended, connection, name))
        connection.execute(f"DROP DATABASE {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE}")


def left_prepared(connection: Any) -> list[str]:
    """The names of what is prepared, as XA takes them."""
    found = connection.execute("XA RECOVER").fetchall()
    return [
        f"'{name[:first].decode()}', '{name[first:].decode()}'"
        for _, first, _, name in found
    ]


def ended(connection: Any, name: str) -> bool:
    """Rolls back what is prepared; False while its connection ends."""
    try:
        connection.execute(f"XA ROLLBACK {name}")
    except Exception:
        return name not in left_prepared(connection)
    return True
