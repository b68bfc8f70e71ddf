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
        # Kept open: to ask a path for its size costs a tenth of a small transaction.
        self.opened: int | None = None
        self.size = 0

    def begin(self) -> None:
        """Looks which log it is; its name, and all others, are on disk after that."""
        self.close()
        found = os.listdir(self._directory)  # which an interrupt leaves nothing of
        logs = [f"{self._directory}/{name}" for name in found if name.endswith(".log")]
        self.size = 0
        if logs:
            self.opened = os.open(max(logs, key=_number), os.O_RDONLY)
            self.size = os.lseek(self.opened, 0, os.SEEK_END)
        sync_directory(self._directory)

    def follow(self) -> None:
        """Goes on to the next log, if the directory is there."""
        if self._directory.exists():  # else it was removed under its owner
            self.begin()

    def close(self) -> None:
        """Gives the file back."""
        opened, self.opened = self.opened, None
        if opened is not None:
            os.close(opened)


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
        opened, size = log.opened, 0  # here, as each batch pays for it
        if opened is not None:
            size = os.lseek(opened, 0, os.SEEK_END)
        if size > log.size:
            log.size = size
        else:
            log.follow()
