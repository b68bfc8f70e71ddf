"""Apache Tephra itself as the coordinator, in a JVM that this process starts."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from coordinator.directory_lock import NAME, DirectoryLock
from coordinator.errors import BadRequest, Unavailable
from coordinator.java.jvm import Jvm
from coordinator.tephra.local import LocalTephra
from coordinator.tephra.py4j_calls import Py4JCalls
from coordinator.tephra.rules import TephraRules

_LOG_PREFIX = "txlog."
_TRIES = 100
# A folder's time of change is trusted if it lay so far back when the folder was read:
# any later change then has another time.
_SURELY_ANOTHER_TIME_NS = 1_000_000_000


class FirstEdits:
    """A look-out for new log files of Tephra that adds an edit to each of them.

    Tephra's log counts its edits from 0 and takes 0 for synced from the start, so the
    first edit stays in a buffer until the second one. A log begins when Tephra starts
    and with each of its snapshots. The object is made before Tephra starts, so that old
    logs count as seen.
    """

    def __init__(self, directory: Path, harmless_edit: Callable[[], object]) -> None:
        self._directory = directory
        self._harmless_edit = harmless_edit
        self._lock = threading.Lock()
        self._quiet_since_ns = 0
        self._flushed = self._logs()

    def flush(self) -> None:
        """Returns when all that was acknowledged before the call is flushed.

        Threads that come while an edit is on its way wait for it.
        """
        changed_ns = os.stat(self._directory).st_mtime_ns
        if changed_ns == self._quiet_since_ns:  # a tenth of the time of a look inside
            return
        if self._logs() <= self._flushed:
            if time.time_ns() - changed_ns > _SURELY_ANOTHER_TIME_NS:
                self._quiet_since_ns = changed_ns
            return
        with self._lock:
            logs = self._logs()
            if not logs <= self._flushed:
                self._flush(logs - self._flushed)
                self._flushed = logs

    def _flush(self, logs: frozenset[str]) -> None:
        """Adds edits until none of the logs is empty; mostly it is one edit.

        Our edit can be the first in a file that somebody else is just beginning, or be
        written by another thread that has not flushed it yet; then another one helps.
        A log that is not the newest was closed, and by that flushed.
        """
        for _ in range(_TRIES):
            self._harmless_edit()
            if not any(self._is_empty(log) for log in logs):
                return
        raise Unavailable(
            f"Tephra does not write to {', '.join(sorted(logs))} in {self._directory}; "
            f"what it acknowledged may be lost in a crash"
        )

    def _logs(self) -> frozenset[str]:
        names = os.listdir(self._directory)
        return frozenset(name for name in names if name.startswith(_LOG_PREFIX))

    def _is_empty(self, log: str) -> bool:
        try:
            return (self._directory / log).stat().st_size == 0
        except FileNotFoundError:  # removed after a snapshot that holds it all
            return False


# A JVM ends within a third of a second after its parent was killed, and holds the
# directory until then.
ORPHAN_ENDS_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.02


class TephraCoordinator(TephraRules):
    """The real Tephra 0.16.1 on a directory that it alone owns.

    The state survives `kill -9` of this process and of the JVM, but not power loss:
    Tephra flushes its log and does not sync it. When the JVM has died, every call
    raises `Unavailable` until `reconnect`.

    All calls go over Py4J, which asks for a token. `data_path` may still be said, as
    `"py4j"` or as `"thrift"`, and changes nothing any more.

    `settings` are further settings of Tephra's by their full names, and `classpath`
    what else the JVM shall find, for participants written in Java.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        data_path: str = "py4j",
        timeout_s: int = 30,
        cleanup_interval_s: int = 1,
        answer_timeout_s: float = 30,
        settings: Mapping[str, str] | None = None,
        classpath: Iterable[str | Path] = (),
    ) -> None:
        if data_path not in ("py4j", "thrift"):
            raise BadRequest(f"data_path is py4j or thrift, and not {data_path!r}")
        self._directory = Path(directory)
        self._settings = {
            "data.tx.timeout": str(timeout_s),
            "data.tx.cleanup.interval": str(cleanup_interval_s),
            **(settings or {}),
        }
        self._classpath = tuple(Path(path) for path in classpath)
        self._answer_timeout_s = answer_timeout_s
        self._lock = _lock_of(self._directory)
        try:
            self._tephra = self._start()
            super().__init__(Py4JCalls(self._tephra), on_disk=self._flush_first_edits)
        except BaseException:
            self._lock.release()
            raise

    @property
    def jvm(self) -> Jvm:
        """The JVM that Tephra lives in, for Java objects that take part."""
        return self._tephra.jvm

    def serve_thrift(self) -> tuple[str, int]:
        """Starts Tephra's Thrift service, without authentication; returns its address.

        It is for a `ThriftCoordinator` in another process of this machine. Decisions
        made through it are not checked for the first edit of a log file.
        """
        return self._tephra.serve()

    def reconnect(self) -> None:
        """Ends the JVM, and starts another that reads the state back."""
        self._tephra.jvm.kill()
        self._tephra.jvm.close()
        self._tephra = self._start()
        self._calls = Py4JCalls(self._tephra)

    def close(self) -> None:
        """Ends the JVM and gives the directory back."""
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

    def _flush_first_edits(self) -> None:
        self._first_edits.flush()

    def _edit(self) -> None:
        self._calls.truncate_invalid_tx(())


def _lock_of(directory: Path) -> DirectoryLock:
    """Takes the directory; waits if only the JVM of a dead process is in the way."""
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
