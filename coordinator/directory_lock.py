"""Keeps a second process off a directory, by a lock that ends with its holder."""

import fcntl
import os
from pathlib import Path

from coordinator.errors import Unavailable
from coordinator.private_directory import make_private

NAME = "LOCK"


class DirectoryInUse(Unavailable):
    """Another process owns the directory, or this one does already."""

    def __init__(self, message: str, holder: str = "") -> None:
        super().__init__(message)
        self.holder = holder


class DirectoryLock:
    """The lock of a directory; making the object takes it, or raises `DirectoryInUse`.

    A second holder is refused within one process too. The directory is made where there
    is none, and only its user may enter it.

    The operating system releases the lock when the process ends, however that happens.
    So the file may stay, and needs no care.
    """

    def __init__(self, directory: Path) -> None:
        make_private(directory)
        self._fd: int | None = os.open(directory / NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            self.release()
            raise DirectoryInUse(
                f"{directory} is in use by process {holder or 'unknown'}; a directory "
                f"has one owner at a time",
                holder,
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def fileno(self) -> int:
        """Returns the descriptor, for a child process that also writes here.

        The child then holds the lock with us. Nobody else gets it until the child has
        ended as well.
        """
        if self._fd is None:
            raise Unavailable("the directory was given back")
        return self._fd

    def release(self) -> None:
        """Gives the directory back; a second call does nothing."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
