"""The log that LevelDB writes to, whose name is on disk before anybody relies on it.

LevelDB begins a new log when its memory is full, and syncs what it writes there, but
not the directory. A file system may then lose the log, and all that was acknowledged.
"""

import os
from pathlib import Path

from coordinator.durable_names import sync_directory
from txaware.store.interfaces import RowBatch


class LogFile:
    """Follows LevelDB from log to log; there is one writer, which tells each write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = ""
        self.size = 0

    def begin(self) -> None:
        """Looks which log it is; its name, and all others, are on disk after that."""
        found = os.listdir(self._directory)  # which an interrupt leaves nothing of
        logs = [f"{self._directory}/{name}" for name in found if name.endswith(".log")]
        self.path = max(logs, key=_number, default="")
        self.size = os.stat(self.path).st_size if self.path else 0
        sync_directory(self._directory)

    def follow(self) -> None:
        """Goes on to the next log, if the directory is there."""
        if self._directory.exists():  # else it was removed under its owner
            self.begin()


def _number(path: str) -> int:
    return int(Path(path).stem)


class NamedBatch:
    """A batch of LevelDB that is on disk together with the name of its log."""

    __slots__ = ("_log", "_write", "delete", "put")

    def __init__(self, batch: RowBatch, log: LogFile) -> None:
        self._log = log
        self.put = batch.put
        self.delete = batch.delete
        self._write = batch.write

    def write(self) -> None:
        """Writes; it is on disk then.

        Where the log has not grown, LevelDB has begun another.
        """
        self._write()
        log = self._log
        try:
            size = os.stat(log.path).st_size  # here, as each batch pays for it
        except FileNotFoundError:
            size = 0
        if size > log.size:
            log.size = size
        else:
            log.follow()
