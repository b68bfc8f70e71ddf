"""Keeps a second process off a directory, by a lock that ends with its holder."""

import ctypes
import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from coordinator.errors import Unavailable
from coordinator.private_directory import make_private

NAME = "LOCK"
# Of `statx`: the file of a descriptor, its number, and its time of birth if it has one.
_AT_EMPTY_PATH, _INO, _BTIME = 0x1000, 0x100, 0x800
_STATX_BYTES = 256
_FIELDS = struct.Struct("<I28xQ40xqI")
_PLACE = struct.Struct(">QQ")


class DirectoryInUse(Unavailable):
    """Another process owns the directory, or this one does already."""

    def __init__(
        self, message: str, holder: str = "", *, is_here: bool = False
    ) -> None:
        super().__init__(message)
        self.holder, self.is_here = holder, is_here


class DirectoryLock:
    """The lock of a directory; making the object takes it, or raises `DirectoryInUse`.

    A second holder is refused within one process too. The directory is made where there
    is none, and only its user may enter it.

    The operating system releases the lock when the process ends, however that happens.
    So the file may stay, and needs no care.

    `place` tells the directory from a copy of it, which has a `LOCK` of another birth.
    It has 16 bytes, all of them 0 where the file system knows of no births.
    """

    def __init__(self, directory: Path) -> None:
        make_private(directory)
        self._fd: int | None = os.open(directory / NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            self.release()
            # Two containers may each have a process of that number.
            is_here = holder == str(os.getpid()) and _is_open_here(directory / NAME)
            by = f"process {holder or 'unknown'}{', this one' if is_here else ''}"
            raise DirectoryInUse(
                f"{directory} is in use by {by}; a directory has one owner at a time",
                holder,
                is_here=is_here,
            ) from error
        self.place = birth_of(self._fd)
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


def _is_open_here(path: Path) -> bool:
    """Tells whether this process has a file open, as far as the system lists that."""
    with suppress(OSError):
        found = path.stat()
        for fd in os.listdir("/dev/fd"):
            with suppress(OSError):  # that of the listing is closed by now
                if os.path.samestat(found, os.fstat(int(fd))):
                    return True
    return False


def birth_of(fd: int) -> bytes:
    """Returns number and time of birth of a file, which nobody can give to another one.

    A change of its mode or owner changes neither, nor does a rename of its directory.
    Python does not tell the time of birth on Linux.
    """
    nothing = bytes(_PLACE.size)
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return nothing
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(fd, b"", _AT_EMPTY_PATH, _INO | _BTIME, found):
        return nothing
    mask, number, born_s, born_ns = _FIELDS.unpack_from(found)
    if not mask & _BTIME:
        return nothing
    return _PLACE.pack(number, max(0, born_s * 1_000_000_000 + born_ns))
