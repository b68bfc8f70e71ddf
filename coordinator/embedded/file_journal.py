"""A journal in one file of a directory: the files, the frames and the recovery."""

import os
import struct
import zlib
from pathlib import Path
from typing import Any, Self

import attrs

from coordinator.directory_lock import DirectoryLock
from coordinator.embedded.group_commit import GroupCommit
from coordinator.embedded.history import History
from coordinator.embedded.lives import NO_PLACE
from coordinator.embedded.records import Record, decode_records, encode_records
from coordinator.errors import JournalCorrupted, NotWritten, Unavailable
from coordinator.private_directory import make_private, sync_directory

# With this flag a write returns when it is on disk. That is one call, not two, and
# one wait less for the interpreter when many threads commit (a tenth more commits).
_SYNCED: int = getattr(os, "O_DSYNC", 0)
_READ_BYTES = 64 << 20


class AppendFile:
    """A file that grows at its end."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | _SYNCED
        self._fd = os.open(path, flags, 0o600)

    def read(self) -> bytes:
        """Returns all bytes of the file."""
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
        """Closes the file; every later call fails."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Disk:
    """A directory of a real file system."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        if not directory.exists():
            make_private(directory)

    def path(self, name: str) -> Path:
        """Returns the path of the file of that name."""
        return self._directory / name

    def open(self, name: str) -> AppendFile:
        """Opens a file for appending, and makes it where there is none."""
        return AppendFile(self.path(name))

    def exists(self, name: str) -> bool:
        """Tells whether there is a file of that name."""
        return self.path(name).exists()

    def remove(self, name: str) -> None:
        """Removes a file, where there is one."""
        self.path(name).unlink(missing_ok=True)

    def replace(self, name: str, new: str) -> None:
        """Puts the file `new` in the place of `name`."""
        os.replace(self.path(new), self.path(name))

    def sync_names(self) -> None:
        """Returns when all files made, replaced and removed are so on disk."""
        sync_directory(self._directory)


HEADER = b"txaware journal 1\n"
_MARK = b"\xf5txB"
# The mark, a number that counts the frames of the file, the size and a checksum over
# all but the mark.
_FRAME = struct.Struct(">4sQII")
_CHECKED = struct.Struct(">QI")


def frame(number: int, payload: bytes) -> bytes:
    """Returns the payload with the head that tells a whole frame from a torn one."""
    check = _checksum(number, payload)
    return _FRAME.pack(_MARK, number, len(payload), check) + payload


@attrs.frozen
class Frames:
    """The whole frames of a file, and the position where the last of them ends."""

    payloads: tuple[bytes, ...]
    end: int


def read_frames(data: bytes, name: str) -> Frames:
    """Reads up to the end or to a torn last frame, which no sync ever acknowledged.

    Raises `JournalCorrupted` when a whole frame follows a broken one: then something
    that was acknowledged is lost.
    """
    if not data.startswith(HEADER):
        raise JournalCorrupted(f"{name} is not a journal: it begins {data[:18]!r}")
    payloads: list[bytes] = []
    at = len(HEADER)
    while at < len(data):
        payload = _whole(data, at, len(payloads))
        if payload is None:
            _check_torn(data, at, len(payloads), name)
            break
        payloads.append(payload)
        at += _FRAME.size + len(payload)
    return Frames(tuple(payloads), at)


def _whole(data: bytes, at: int, number: int | None) -> bytes | None:
    """Returns the payload of the frame at `at` if it is whole and has this number."""
    if len(data) - at < _FRAME.size:
        return None
    mark, found, size, check = _FRAME.unpack_from(data, at)
    payload = data[at + _FRAME.size : at + _FRAME.size + size]
    if mark != _MARK or len(payload) < size or number not in (None, found):
        return None
    return payload if check == _checksum(found, payload) else None


def _check_torn(data: bytes, at: int, number: int, name: str) -> None:
    later = data.find(_MARK, at + 1)
    while later >= 0:
        if _whole(data, later, None) is not None:
            raise JournalCorrupted(
                f"{name} is damaged at byte {at}, in batch {number}, and whole again "
                f"at byte {later}; restore it from a backup"
            )
        later = data.find(_MARK, later + 1)


def _checksum(number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(number, len(payload))))


NAME = "journal"
NEW_NAME = NAME + ".new"


class JournalFile:
    """The journal's file, cut off after the last frame that is known to be on disk.

    It is written anew when it has grown. Only one thread at a time may call, except for
    `status`.
    """

    def __init__(self, disk: Disk, *, compact_bytes: int) -> None:
        self.path: Path = disk.path(NAME)
        self.name = str(self.path)
        self.history = History()
        self.broken = False
        self.kept = False  # what a failed write left is cut off
        self._disk = disk
        self._compact_bytes = compact_bytes
        self._write_problem: str | None = None
        self._growth_problem: str | None = None
        self._file, self._size, self._frames = self._recover()
        self._compact_at = max(compact_bytes, 2 * len(self._shortest()))

    def take(self, _: list[Record]) -> None:
        """Takes nothing, since nothing is kept elsewhere."""

    def write(self, records: list[Record], _: list[Any], held_rows: None) -> None:
        """Returns when the records are on disk; `fold` them then. There are no rows.

        Raises `NotWritten` when they are not and never will be, and `Unavailable` when
        that has to be left open until `repair`.
        """
        data = frame(self._frames, encode_records(records))
        self.broken = True
        try:
            self._file.append(data)
        except OSError as error:
            self._write_problem = f"{self.path} could not be written: {error}"
            try:
                self.repair()
            except OSError as later:
                raise Unavailable(
                    f"{self.path} could not be written ({error}), nor what was "
                    f"written be cut off ({later})"
                ) from error
            raise NotWritten(self._write_problem) from error
        self._size += len(data)
        self._frames += 1
        self.broken, self._write_problem = False, None

    def fold(self, records: list[Record]) -> None:
        """Adds written records to the history, and shortens a file that has grown."""
        for record in records:
            self.history.apply(record)
        if self._size > self._compact_at:
            self._compact()

    def repair(self) -> None:
        """Cuts off what a failure left behind the last frame that is on disk."""
        if self.broken:
            self._file.truncate(self._size)
            self._disk.sync_names()
            self.broken = False

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return self._write_problem or self._growth_problem or "OK"

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _recover(self) -> tuple[AppendFile, int, int]:
        self._disk.remove(NEW_NAME)
        if not self._disk.exists(NAME):
            file, size = self._written_anew()
            self._disk.sync_names()
            return file, size, 1
        file = self._disk.open(NAME)
        try:
            frames = read_frames(file.read(), str(self.path))
            file.truncate(frames.end)
            # The process that made the file may have died before it synced the name.
            self._disk.sync_names()
            for payload in frames.payloads:
                for record in decode_records(payload):
                    self.history.apply(record)
        except BaseException:
            file.close()
            raise
        return file, frames.end, len(frames.payloads)

    def _compact(self) -> None:
        """Writes the history to a new file; if that fails, the old one stays in use."""
        try:
            file, size = self._written_anew()
        except OSError as error:
            self._growth_problem = (
                f"{self.path} grows, as it cannot be written anew: {error}"
            )
            self._compact_at = 2 * self._size
            return
        self._file.close()
        self._file, self._size, self._frames = file, size, 1
        self._growth_problem = None
        self._compact_at = max(self._compact_bytes, 2 * size)
        try:
            self._disk.sync_names()
        except OSError as error:
            self.broken = True
            self._growth_problem = f"{self.path} is new, but not synced: {error}"

    def _written_anew(self) -> tuple[AppendFile, int]:
        """Puts a new file in the place of the old one; its name is not synced yet."""
        self._disk.remove(NEW_NAME)
        data = HEADER + frame(0, self._shortest())
        file = self._disk.open(NEW_NAME)
        try:
            file.append(data)
            self._disk.replace(NAME, NEW_NAME)
        except BaseException:
            file.close()
            self._disk.remove(NEW_NAME)
            raise
        return file, len(data)

    def _shortest(self) -> bytes:
        return encode_records(self.history.records())


COMPACT_BYTES = 4 << 20


class FileJournal(GroupCommit):
    """A journal that appends checked frames to a file, and shortens a grown file."""

    def __init__(
        self,
        disk: Disk,
        *,
        compact_bytes: int = COMPACT_BYTES,
        lock: DirectoryLock | None = None,
    ) -> None:
        self._directory_lock = lock
        super().__init__(
            JournalFile(disk, compact_bytes=compact_bytes),
            place=NO_PLACE if lock is None else lock.place,
        )

    @classmethod
    def open(cls, directory: Path, *, compact_bytes: int = COMPACT_BYTES) -> Self:
        """Opens the journal of a directory, which nobody else may use until `close`."""
        disk = Disk(directory)
        lock = DirectoryLock(directory)
        try:
            return cls(disk, compact_bytes=compact_bytes, lock=lock)
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Closes the file and releases the directory."""
        super().close()
        if self._directory_lock is not None:
            self._directory_lock.release()
