"""A journal in one file of a directory."""

from pathlib import Path
from typing import Self

from coordinator.directory_lock import DirectoryLock
from coordinator.disk import Disk
from coordinator.embedded.group_commit import GroupCommit
from coordinator.journal_file import JournalFile

COMPACT_BYTES = 4 << 20


class FileJournal(GroupCommit):
    """Appends checked frames to a file, and writes it anew when it has grown."""

    def __init__(
        self,
        disk: Disk,
        *,
        compact_bytes: int = COMPACT_BYTES,
        lock: DirectoryLock | None = None,
    ) -> None:
        self._directory_lock = lock
        super().__init__(JournalFile(disk, compact_bytes=compact_bytes))

    @classmethod
    def open(cls, directory: Path, *, compact_bytes: int = COMPACT_BYTES) -> Self:
        """Opens the journal of a directory, which nobody else may use meanwhile."""
        disk = Disk(directory)
        lock = DirectoryLock(directory)
        try:
            return cls(disk, compact_bytes=compact_bytes, lock=lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Gives back the file and the directory."""
        super().close()
        if self._directory_lock is not None:
            self._directory_lock.release()
