"""A journal in one file, which many threads share one fsync to write."""

import threading
from pathlib import Path
from typing import Self

from coordinator.batch import Batch
from coordinator.directory_lock import DirectoryLock
from coordinator.disk import AppendFile, Disk
from coordinator.errors import NotWritten, Unavailable
from coordinator.frames import HEADER, frame, read_frames
from coordinator.history import History
from coordinator.records import (
    Aborted,
    Committed,
    Record,
    Started,
    decode_records,
    encode_records,
)

NAME = "journal"
COMPACT_BYTES = 4 << 20


class FileJournal:
    """Appends checked frames to a file, and writes it anew when it has grown.

    The first thread that adds to a batch leads it: it waits for the batch before, and
    then writes all that has come together meanwhile.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        compact_bytes: int = COMPACT_BYTES,
        lock: DirectoryLock | None = None,
    ) -> None:
        self._disk = disk
        self._directory_lock = lock
        self._compact_bytes = compact_bytes
        self._queue = threading.Lock()  # guards the forming batch and the notes
        self._forming = Batch()
        self._notes: dict[int, list[Record]] = {}
        self._carried: dict[int, list[Record]] = {}
        self._writing = threading.Lock()  # guards the file and the history
        self.history = History()
        self._unfolded: list[Record] = []
        self._write_problem: str | None = None
        self._growth_problem: str | None = None
        self._broken = False
        self._file, self._size, self._frames = self._recover()
        self._compact_at = max(compact_bytes, 2 * self._size)

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

    def append(self, *records: Record) -> None:
        """Returns when the records, and every note made before, are on disk."""
        with self._queue:
            batch = self._forming
            batch.records.extend(records)
            leads, batch.led = not batch.led, True
            turn = None if leads else batch.expect()
        if turn is None:
            self._lead(batch)
        else:
            batch.wait(turn)
        batch.check()

    def note(self, transaction_id: int, record: Record) -> None:
        """Keeps a record for the next batch."""
        with self._queue:
            notes = self._notes.setdefault(transaction_id, [])
            if isinstance(record, Aborted) and notes and isinstance(notes[0], Started):
                del self._notes[transaction_id]
            else:
                notes.append(record)

    def sync(self, transaction_id: int) -> None:
        """Returns when every note of that transaction is on disk."""
        with self._queue:
            waiting = transaction_id in self._notes or transaction_id in self._carried
        if waiting:
            self.append()

    def holds_commit(self, transaction_id: int) -> bool:
        """Whether that commit is on disk, once all that was waiting is there."""
        self.append()
        with self._writing:
            history = self.history
            return not (
                transaction_id in history.open or transaction_id in history.invalid
            )

    def status(self) -> str:
        """`"OK"`, or a sentence about what is wrong."""
        return self._write_problem or self._growth_problem or "OK"

    def close(self) -> None:
        """Gives back the file and the directory."""
        with self._writing:
            self._file.close()
            if self._directory_lock is not None:
                self._directory_lock.release()

    @property
    def _path(self) -> Path:
        return self._disk.path(NAME)

    def _recover(self) -> tuple[AppendFile, int, int]:
        self._disk.remove(NAME + ".new")
        if not self._disk.exists(NAME):
            file, size = self._written_anew()
            self._disk.replace(NAME, NAME + ".new")
            self._disk.sync_names()
            return file, size, 1
        file = self._disk.open(NAME)
        try:
            frames = read_frames(file.read(), str(self._path))
            file.truncate(frames.end)
            for payload in frames.payloads:
                for record in decode_records(payload):
                    self.history.apply(record)
        except BaseException:
            file.close()
            raise
        return file, frames.end, len(frames.payloads)

    def _lead(self, batch: Batch) -> None:
        """Writes the batch; whatever happens, its other threads are released."""
        try:
            with self._writing:
                with self._queue:
                    self._forming = Batch()
                    self._carried, self._notes = self._notes, {}
                try:
                    self._write(batch)
                    self._fold()
                finally:
                    self._discharge(on_disk=batch.on_disk)
        except Unavailable as error:
            batch.error = error
        except BaseException as error:
            if not batch.on_disk:
                batch.error = NotWritten(f"{self._path} was not written: {error!r}")
            raise
        finally:
            with self._queue:
                if self._forming is batch:
                    self._forming = Batch()
            batch.wake_next()

    def _discharge(self, *, on_disk: bool) -> None:
        """Forgets the notes that the last batch carried, or takes them back."""
        with self._queue:
            carried, self._carried = self._carried, {}
            if not on_disk:
                for transaction_id, notes in self._notes.items():
                    carried.setdefault(transaction_id, []).extend(notes)
                self._notes = carried

    def _write(self, batch: Batch) -> None:
        try:
            self._repair()
        except OSError as error:
            raise NotWritten(f"{self._path} is not to be written: {error}") from error
        # Of a transaction that commits here, nothing that came before matters.
        over = {r.transaction_id for r in batch.records if isinstance(r, Committed)}
        records = [
            note
            for transaction_id, notes in self._carried.items()
            if transaction_id not in over
            for note in notes
        ]
        records += batch.records
        if records:
            self._put(batch, records)
        batch.on_disk = True

    def _fold(self) -> None:
        """Brings the history up to date, and the file back to a natural size."""
        for record in self._unfolded:
            self.history.apply(record)
        self._unfolded = []
        if self._size > self._compact_at:
            self._compact()

    def _put(self, batch: Batch, records: list[Record]) -> None:
        """Writes one frame; what is not wholly on disk afterwards is cut off again."""
        data = frame(self._frames, encode_records(records))
        size, frames = self._size + len(data), self._frames + 1
        unfolded = [*self._unfolded, *records]
        try:
            self._broken = True
            self._file.append(data)
        except BaseException as error:
            self._write_problem = f"{self._path} could not be written: {error!r}"
            try:
                self._repair()
            except OSError as later:
                raise Unavailable(
                    f"{self._path} could not be written ({error}), nor what was "
                    f"written be cut off ({later})"
                ) from error
            if isinstance(error, OSError):
                raise NotWritten(
                    f"{self._path} could not be written: {error}"
                ) from error
            raise
        # One statement without a call, which no interrupt can divide.
        self._size, self._frames, self._broken, self._unfolded, batch.on_disk = (
            size,
            frames,
            False,
            unfolded,
            True,
        )
        self._write_problem = None

    def _repair(self) -> None:
        """Makes the file end with the last frame that is known to be on disk."""
        if self._broken:
            self._file.truncate(self._size)
            self._disk.sync_names()
            self._broken = False

    def _compact(self) -> None:
        """Writes the history to a new file; the old one serves on where that fails."""
        try:
            file, size = self._written_anew()
            self._disk.replace(NAME, NAME + ".new")
        except OSError as error:
            self._growth_problem = (
                f"{self._path} grows, as it cannot be written anew: {error}"
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
            self._broken = True
            self._growth_problem = f"{self._path} is new, but not synced: {error}"

    def _written_anew(self) -> tuple[AppendFile, int]:
        self._disk.remove(NAME + ".new")
        data = HEADER + frame(0, encode_records(self.history.records()))
        file = self._disk.open(NAME + ".new")
        try:
            file.append(data)
        except BaseException:
            file.close()
            raise
        return file, len(data)
