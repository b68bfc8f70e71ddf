"""The few things a journal asks of a file system, so that tests can make them fail."""

import os
from pathlib import Path


class AppendFile:
    """A file that grows at its end; `sync` puts on disk what was written."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def read(self) -> bytes:
        """All of it."""
        size = os.fstat(self._fd).st_size
        return os.pread(self._fd, size, 0)

    def write(self, data: bytes) -> None:
        """Appends all of `data`; an error may leave a part of it there."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def sync(self) -> None:
        """Returns when everything written is on disk."""
        _fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        """Cuts the file off, on disk too."""
        os.ftruncate(self._fd, size)
        os.fsync(self._fd)

    def close(self) -> None:
        """Gives the file back."""
        os.close(self._fd)


class Disk:
    """One directory of a real file system."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

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
        fd = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# Not every system has the cheaper call, which leaves out the file's times.
_fdatasync = getattr(os, "fdatasync", os.fsync)
