"""The file of a journal, and the history that it holds: frames in, frames out."""

from pathlib import Path
from typing import Any

from coordinator.disk import AppendFile, Disk
from coordinator.embedded.history import History
from coordinator.embedded.records import Record, decode_records, encode_records
from coordinator.errors import NotWritten, Unavailable
from coordinator.frames import HEADER, frame, read_frames

NAME = "journal"
NEW_NAME = NAME + ".new"


class JournalFile:
    """Ends with the last frame that is known to be on disk, or gets cut off there.

    It is written anew when it has grown. One thread at a time may call, but for
    `status`.
    """

    def __init__(self, disk: Disk, *, compact_bytes: int) -> None:
        self.path: Path = disk.path(NAME)
        self.name = str(self.path)
        self.history = History()
        self.broken = False
        self._disk = disk
        self._compact_bytes = compact_bytes
        self._write_problem: str | None = None
        self._growth_problem: str | None = None
        self._file, self._size, self._frames = self._recover()
        self._compact_at = max(compact_bytes, 2 * len(self._shortest()))

    def take(self, _: list[Record]) -> None:
        """Nothing is kept elsewhere."""

    def write(self, records: list[Record], _: list[Any], taken: None) -> None:
        """Returns when the records are on disk; `fold` them then. It has no rows.

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
        """Adds what was written to the history, and shortens a file that has grown."""
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
        """`"OK"`, or a sentence about what is wrong."""
        return self._write_problem or self._growth_problem or "OK"

    def close(self) -> None:
        """Gives the file back."""
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
            # Whoever put the file there may have been killed before it synced the name.
            self._disk.sync_names()
            for payload in frames.payloads:
                for record in decode_records(payload):
                    self.history.apply(record)
        except BaseException:
            file.close()
            raise
        return file, frames.end, len(frames.payloads)

    def _compact(self) -> None:
        """Writes the history to a new file; the old one serves on where that fails."""
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
        """A new file in the place of the old one; its name is not synced yet."""
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
