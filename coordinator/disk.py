"""The few things a journal asks of a file system, so that tests can make them fail."""

import os
from pathlib import Path

from coordinator.private_directory import make_private

# A write that returns when it is on disk: one call instead of two, and so one turn less
# to wait for the interpreter when many threads commit (a tenth more commits a second).
_SYNCED: int = getattr(os, "O_DSYNC", 0)
_READ_BYTES = 64 << 20


class AppendFile:
    """A file that grows at its end."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _SYNCED
        self._fd = os.open(path, flags, 0o600)

    def read(self) -> bytes:
        """All of it."""
        parts: list[bytes] = []
        at = 0
        while part := os.pread(self._fd, _READ_BYTES, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def append(self, data: bytes) -> None:
        """Returns when all of `data` is on disk; an error may leave a part there."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        if not _SYNCED:
            os.fsync(self._fd)

    def truncate(self, size: int) -> None:
        """Cuts the file off, on disk too."""
        os.ftruncate(self._fd, size)
        os.fsync(self._fd)

    def close(self) -> None:
        """Gives the file back; whatever is asked of it later fails."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Disk:
    """One directory of a real file system."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        if not directory.exists():
            make_private(directory)
            _sync_directory(directory.parent)

    def path(self, name: str) -> Path:
        """Where the file of that name is."""
        return self._directory / name

    def open(self, name: str) -> AppendFile:
        """Opens a file for appending, and makes it where there is none."""
        return AppendFile(self.path(name))

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.path(name).exists()

    def remove(self, name: str) -> None:
        """Removes a file, where there is one."""
        self.path(name).unlink(missing_ok=True)

    def replace(self, name: str, new: str) -> None:
        """Puts the file `new` in the place of `name`."""
        os.replace(self.path(new), self.path(name))

    def sync_names(self) -> None:
        """Returns when what was made, replaced and removed is so on disk."""
        _sync_directory(self._directory)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
