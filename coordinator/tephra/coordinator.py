"""Apache Tephra itself as the coordinator, in a JVM of our own."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from coordinator.directory_lock import NAME, DirectoryLock
from coordinator.errors import BadRequest, Unavailable
from coordinator.java.jvm import Jvm
from coordinator.tephra.calls import TephraCalls
from coordinator.tephra.first_edits import FirstEdits
from coordinator.tephra.local import LocalTephra
from coordinator.tephra.py4j_calls import Py4JCalls
from coordinator.tephra.rules import TephraRules
from coordinator.tephra.thrift_calls import ThriftCalls
from coordinator.tephra.thrift_pool import ThriftPool

DataPath = Literal["py4j", "thrift"]

# A JVM ends within a third of a second after its parent was killed, and holds the
# directory until then.
ORPHAN_ENDS_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.02


class TephraCoordinator(TephraRules):
    """The real Tephra 0.16.1 on a directory, whose only owner it is.

    The state survives `kill -9` of this process and of the JVM, but not power loss:
    Tephra flushes its log and does not sync it. When the JVM has died, every call
    raises `Unavailable` until `reconnect`.

    `data_path="thrift"` sends the calls through Tephra's own Thrift service in that
    JVM, which is faster from many threads. It listens on 127.0.0.1 and has no
    authentication: any user of this machine may end transactions. Py4J asks for a
    token, and is the default for that reason.

    `settings` are further settings of Tephra's by their full names, and `classpath`
    what else the JVM shall find, for participants written in Java.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        data_path: DataPath = "py4j",
        timeout_s: int = 30,
        cleanup_interval_s: int = 1,
        answer_timeout_s: float = 30,
        settings: Mapping[str, str] | None = None,
        classpath: Iterable[str | Path] = (),
    ) -> None:
        if data_path not in ("py4j", "thrift"):
            raise BadRequest(f"data_path is py4j or thrift, and not {data_path!r}")
        self._directory = Path(directory)
        self._data_path = data_path
        self._settings = {
            "data.tx.timeout": str(timeout_s),
            "data.tx.cleanup.interval": str(cleanup_interval_s),
            **(settings or {}),
        }
        self._classpath = tuple(Path(path) for path in classpath)
        self._answer_timeout_s = answer_timeout_s
        self._pool: ThriftPool | None = None
        self._lock = _lock_of(self._directory)
        try:
            self._tephra = self._start()
            super().__init__(self._connect(), on_disk=self._flush_first_edits)
        except BaseException:
            self._lock.release()
            raise

    @property
    def jvm(self) -> Jvm:
        """The JVM that Tephra lives in, for Java objects that take part."""
        return self._tephra.jvm

    def serve_thrift(self) -> tuple[str, int]:
        """Starts Tephra's Thrift service, without authentication, and answers where.

        For a `ThriftCoordinator` in another process of this machine. What is decided
        through that is not checked for the first edit of a log file.
        """
        return self._tephra.serve()

    def reconnect(self) -> None:
        """Ends the JVM, and starts another that reads the state back."""
        if self._pool is not None:
            self._pool.close()
        self._tephra.jvm.kill()
        self._tephra.jvm.close()
        self._tephra = self._start()
        self._calls = self._connect()

    def close(self) -> None:
        """Ends the JVM and gives the directory back."""
        if self._pool is not None:
            self._pool.close()
        self._tephra.close()
        self._lock.release()

    def _start(self) -> LocalTephra:
        self._first_edits = FirstEdits(self._directory, self._edit)
        return LocalTephra(
            self._directory,
            self._settings,
            lock=self._lock.fileno(),
            classpath=self._classpath,
            answer_timeout_s=self._answer_timeout_s,
        )

    def _connect(self) -> TephraCalls:
        if self._data_path == "py4j":
            return Py4JCalls(self._tephra)
        self._pool = ThriftPool(
            self._tephra.serve, answer_timeout_s=self._answer_timeout_s
        )
        return ThriftCalls(self._pool)

    def _flush_first_edits(self) -> None:
        self._first_edits.flush()

    def _edit(self) -> None:
        self._calls.truncate_invalid_tx(())


def _lock_of(directory: Path) -> DirectoryLock:
    """Takes the directory; waits where only the JVM of a dead process is in the way."""
    give_up = time.monotonic() + ORPHAN_ENDS_WITHIN_S
    while True:
        try:
            return DirectoryLock(directory)
        except Unavailable:
            if time.monotonic() > give_up or _owner_lives(directory):
                raise
        time.sleep(_LOOK_AGAIN_S)


def _owner_lives(directory: Path) -> bool:
    try:
        os.kill(int((directory / NAME).read_text()), 0)
    except (ValueError, ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True
    return True
