"""Makes Tephra flush the first edit of each log file, which it answers unflushed."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from coordinator.errors import Unavailable

_LOG_PREFIX = "txlog."
_TRIES = 100
# A folder's time of change is trusted when it lay so far back as the folder was read:
# what changed it again since has another time.
_SURELY_ANOTHER_TIME_NS = 1_000_000_000


class FirstEdits:
    """Looks for a log file that is new since the last look, and adds an edit to it.

    Tephra's log counts its edits from 0 and takes 0 for synced from the start, so the
    first edit stays in a buffer until the second one. A log begins when Tephra starts
    and with each of its snapshots. Made before Tephra starts, so that old logs count
    as seen.
    """

    def __init__(self, directory: Path, harmless_edit: Callable[[], object]) -> None:
        self._directory = directory
        self._harmless_edit = harmless_edit
        self._lock = threading.Lock()
        self._quiet_since_ns = 0
        self._flushed = self._logs()

    def flush(self) -> None:
        """Returns when all that was acknowledged before the call is flushed.

        Others that come while an edit is on its way wait for it.
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
