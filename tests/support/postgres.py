"""A real PostgreSQL; where there is none tests are skipped, and in CI they fail."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.concurrency import until
from tests.support.ports import free_port

ENDS_S = 60
INSTALLED = Path("/usr/lib/postgresql")
# For tests of what it says, and not of what is left when the power is cut.
QUICK = {"fsync": "off", "max_prepared_transactions": "20"}


def missing(reason: str) -> NoReturn:
    """Skips the test at home; in CI, where everything must be there, it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have everything: {reason}", pytrace=False)
    pytest.skip(reason)


def binary(name: str) -> str:
    """Finds a program of PostgreSQL, which Debian keeps out of the path."""
    found = [str(path) for path in sorted(INSTALLED.glob(f"*/bin/{name}"))]
    last = found[-1] if found else shutil.which(name)
    return last or missing("PostgreSQL is not installed")


class PostgresServer:
    """A server with a directory of its own; it may be killed and started again."""

    def __init__(self, **settings: str) -> None:
        if importlib.util.find_spec("psycopg") is None:
            missing("the postgres extra is not installed")
        # It does not run as root, nor in a directory that only root may enter.
        self._user = {"user": "postgres"} if os.getuid() == 0 else {}
        self._directory = Path(tempfile.mkdtemp(prefix="txaware-postgres-"))
        if self._user:
            shutil.chown(self._directory, "postgres")
        self._settings = {**QUICK, **settings}
        self._child: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._run("initdb", "-D", "data", "-U", "txaware", "-A", "trust", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://txaware@127.0.0.1:{self.port}/postgres"

    def connect(self, **options: Any) -> Any:
        """Opens a connection, as a user does."""
        import psycopg

        return psycopg.connect(self.url, **options)

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        options = {"port": str(self.port), "listen_addresses": "127.0.0.1"}
        options |= {"unix_socket_directories": "", **self._settings}
        pairs = [part for pair in options.items() for part in ("-c", "=".join(pair))]
        with (self._directory / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [binary("postgres"), "-D", "data", *pairs],
                cwd=self._directory,
                stdout=log,
                stderr=log,
                **self._user,  # type: ignore[call-overload]
            )
        until(self._answers, timeout_s=ENDS_S)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        self._stop(signal.SIGQUIT)

    def close(self) -> None:
        """Ends it, and removes its data."""
        self._stop(signal.SIGINT)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _stop(self, number: int) -> None:
        if self._child is not None:
            self._child.send_signal(number)
            self._child.wait(ENDS_S)
            self._child = None

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [binary(name), *arguments],
            cwd=self._directory,
            check=True,
            capture_output=True,
            timeout=ENDS_S,
            **self._user,  # type: ignore[call-overload]
        )


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
        left = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
        for (gid,) in left:
            connection.execute(f"ROLLBACK PREPARED '{gid}'")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
