"""A real PostgreSQL; where there is none tests are skipped, and in CI they fail."""

import importlib.util
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.database_server import DatabaseServer, missing

INSTALLED = Path("/usr/lib/postgresql")
# For tests of what it says, and not of what is left when the power is cut.
QUICK = {"fsync": "off", "max_prepared_transactions": "20"}


def binary(name: str) -> str:
    """Finds a program of PostgreSQL, which Debian keeps out of the path."""
    found = [str(path) for path in sorted(INSTALLED.glob(f"*/bin/{name}"))]
    last = found[-1] if found else shutil.which(name)
    return last or missing("PostgreSQL is not installed")


class PostgresServer(DatabaseServer):
    """A PostgreSQL."""

    user = "postgres"
    ends_by, killed_by = signal.SIGINT, signal.SIGQUIT

    def __init__(self, **settings: str) -> None:
        if importlib.util.find_spec("psycopg") is None:
            missing("the postgres extra is not installed")
        self._settings = {**QUICK, **settings}
        super().__init__()

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://txaware@127.0.0.1:{self.port}/postgres"

    @property
    def session_url(self) -> str:
        """The address of its database for SQLAlchemy."""
        return self.url.replace("postgresql:", "postgresql+psycopg:")

    def connect(self, **options: Any) -> Any:
        """Opens a connection, as a user does."""
        import psycopg

        return psycopg.connect(self.url, **options)

    def _make(self) -> None:
        options = ("-U", "txaware", "-A", "trust", "--no-sync")
        self._run(binary("initdb"), "-D", "data", *options)

    def _command(self) -> Sequence[str]:
        options = {"port": str(self.port), "listen_addresses": "127.0.0.1"}
        options |= {"unix_socket_directories": "", **self._settings}
        pairs = [part for pair in options.items() for part in ("-c", "=".join(pair))]
        return [binary("postgres"), "-D", "data", *pairs]

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture(scope="session")
def postgres_of_all() -> Iterator[PostgresServer]:
    """One server for all tests that leave nothing in it."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres_server(postgres_of_all: PostgresServer) -> Iterator[PostgresServer]:
    """A server with an empty database."""
    yield postgres_of_all
    with postgres_of_all.connect(autocommit=True) as connection:
        for name in left_prepared(connection):
            connection.execute(f"ROLLBACK PREPARED '{name}'")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def left_prepared(connection: Any) -> list[str]:
    """The names of what is prepared."""
    found = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
    return [name for (name,) in found]
