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
        self._path = ""
        self._size = 0

    def begin(self) -> None:
        """Looks which log it is; its name, and all others, are on disk after that."""
        with os.scandir(self._directory) as found:
            logs = [one.path for one in found if one.name.endswith(".log")]
        self._path = max(logs, key=_number, default="")
        self._size = os.stat(self._path).st_size if self._path else 0
        sync_directory(self._directory)

    def follow(self) -> None:
        """Follows a write: where the log has not grown, LevelDB has begun another."""
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            if not self._directory.exists():
                return  # removed under its owner, who may still close it
            size = 0
        if size > self._size:
            self._size = size
        else:
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
        """Writes; it is on disk then."""
        self._write()
        self._log.follow()
