"""A real database server with a directory of its own, to be killed and started."""

import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.concurrency import until
from tests.support.ports import free_port

# Reads from a pipe of the process of tests until that ends, however it does.
GUARD = 'cat; kill -KILL "$1"; rm -rf -- "$2"'
ENDS_S = 60
MADE_S = 600  # a first time, beside others that fill the machine


def missing(reason: str) -> NoReturn:
    """Skips the test at home; in CI, where everything must be there, it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have everything: {reason}", pytrace=False)
    pytest.skip(reason)


class DatabaseServer(ABC):
    """A server on a port of its own; it may be killed and started again."""

    # The user whom it runs as where the tests run as root, which it does not.
    user: str
    ends_by: signal.Signals
    killed_by: signal.Signals

    def __init__(self) -> None:
        self._user = {"user": self.user} if os.getuid() == 0 else {}
        # Nor does it in a directory that only root may enter.
        self._directory = Path(tempfile.mkdtemp(prefix=f"txaware-{self.user}-"))
        if self._user:
            shutil.chown(self._directory, self.user)
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._make()
        self.start()

    @property
    @abstractmethod
    def url(self) -> str:
        """The address of its database."""

    @property
    @abstractmethod
    def session_url(self) -> str:
        """The address of its database for SQLAlchemy."""

    @abstractmethod
    def connect(self, **options: Any) -> Any:
        """Opens a connection, as a user does."""

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        with (self._directory / "log").open("ab") as log:
            self._child = subprocess.Popen(
                self._command(),
                cwd=self._directory,
                stdout=log,
                stderr=log,
                **self._user,  # type: ignore[call-overload]
            )
        # In a session of its own: a Ctrl-C is meant for the tests, not for the guard.
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "guard", str(self._child.pid), str(self._directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        until(self._answers, timeout_s=MADE_S)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        self._stop(self.killed_by)

    def close(self) -> None:
        """Ends it, and removes its data."""
        self._stop(self.ends_by)
        shutil.rmtree(self._directory, ignore_errors=True)

    @abstractmethod
    def _make(self) -> None:
        """Makes its directory of data."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The command that runs it."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tells whether it takes connections."""

    def _stop(self, number: signal.Signals) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._child is not None:
            self._child.send_signal(number)
            self._child.wait(ENDS_S)
            self._child = None

    def _run(self, *command: str) -> None:
        subprocess.run(
            command,
            cwd=self._directory,
            check=True,
            capture_output=True,
            timeout=MADE_S,
            **self._user,  # type: ignore[call-overload]
        )
