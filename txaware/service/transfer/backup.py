"""Backups of a data directory in use, and the directory that one is restored to."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from coordinator.directory_lock import DirectoryLock
from coordinator.embedded.history import History
from coordinator.embedded.records import Invalidated, Lost, Record, Reserved
from coordinator.embedded.recovery import parted
from coordinator.private_directory import make_private, sync_directory
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import BadRequest, ShardAway, StoreCorrupted, Unavailable
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import OrderedTable, Row
from txaware.model.reports import Progress
from txaware.model.settings import Settings
from txaware.model.shards import DIRECTORY
from txaware.service.transfer.backup_format import BackupReading, BackupWriting, Chunks
from txaware.store.columns import negated
from txaware.store.damage import said
from txaware.store.interfaces import HasView, View
from txaware.store.keys import STORE_SHARDS
from txaware.store.kinds import KINDS
from txaware.store.leveldb import ROWS, LevelDbTable
from txaware.store.leveldb_binding import is_of_leveldb
from txaware.store.leveldb_store import leveldb_at
from txaware.store.shard_rows import StoreShards

PIECE_BYTES = 1 << 20
# A new file system of its own is as good as empty.
_NOT_OURS = {"lost+found"}


@attrs.frozen
class Backup:
    """The size of a backup, and the moment that it shows."""

    rows: int
    size_bytes: int
    created_ms: int


def backup_chunks(
    table: OrderedTable, seen_by: Transaction | None = None
) -> Iterator[bytes]:
    """Returns all that is on disk at this moment, as the bytes of a backup.

    Nobody has to stop. Rows and journal are of one moment, so all that the embedded
    coordinator had committed is there as a whole, and the rest is as after a crash.
    With a coordinator elsewhere that takes a snapshot from before: rows that it does
    not see are rolled back in the backup, since they may be there in part.
    """
    if not isinstance(table, HasView):
        raise BadRequest("this data has no backup: its table shows no view of itself")
    return _chunks(table.view(), seen_by, table.clock.now_ms())


def _chunks(view: View, seen_by: Transaction | None, now_ms: int) -> Iterator[bytes]:
    writing = BackupWriting()
    try:
        yield writing.begin({"created_ms": now_ms, "about_bytes": view.size_bytes})
        for rows in view.pieces(PIECE_BYTES):
            part = view.part(rows[-1][0])
            if seen_by is not None:
                rows = [_judged(row, seen_by) for row in rows]
            yield writing.rows(rows, part=part)
        yield writing.end()
    except StoreCorrupted as error:  # whoever reads the stream is told, far away too
        yield writing.failed(f"there is no backup, since the data is damaged: {error}")
    except ShardAway as error:
        yield writing.away(f"the backup is not whole: {error}")
    finally:
        view.close()


def _judged(row: Row, seen_by: Transaction) -> Row:
    """Returns the row, or its rollback where the snapshot does not see it."""
    key, value = row
    kind = KINDS.of(key)
    if kind is None or not kind.is_rolled_back:
        return row
    pointer = kind.pointer(key, value)
    if pointer is None or pointer < 0 or seen_by.is_visible(pointer):
        return row
    return key, negated(value)


def save(
    chunks: Iterator[bytes], file: BinaryIO, *, progress: Progress | None = None
) -> Backup:
    """Writes a backup to a file, and makes sure that it is whole."""
    reading = BackupReading(Chunks(_passed(chunks, file)))
    for _ in reading.bodies():
        if progress is not None:
            progress(reading.rows, reading.part)
    return _summary(reading)


def _passed(chunks: Iterator[bytes], file: BinaryIO) -> Iterator[bytes]:
    for chunk in chunks:
        file.write(chunk)
        yield chunk


def restore(
    file: BinaryIO,
    directory: Path,
    settings: Settings,
    *,
    progress: Progress | None = None,
    clock_ms: ClockMs = system_clock_ms,
) -> Backup:
    """Makes a data directory of a backup; all of it is on disk, or nothing is there.

    The directory does not exist yet, or is empty. Transactions that were open when the
    backup was made are invalid in it, and so are those that began since: a program that
    still holds one is told so.
    """
    _check_free(directory)
    reading = BackupReading(file)
    with _place_in(directory) as place:
        with _failing(directory):
            stores = _Stores(place, settings)
        with closing(stores):
            for rows in reading.pieces():
                with _failing(directory):
                    stores.write(rows)
                if progress is not None:
                    progress(reading.rows, reading.part)
        _end_transactions(place, settings, clock_ms)
        with _failing(directory):
            for store in stores.places:
                _sync_all(store / ROWS)
            if len(stores.places) > 1:
                for store in stores.places[1:]:
                    sync_directory(store)
                sync_directory(place / DIRECTORY)
                os.rename(place / DIRECTORY, directory / DIRECTORY)
            os.rename(place / ROWS, directory / ROWS)
            DirectoryLock(directory).release()
            sync_directory(directory)
    return _summary(reading)


def _write(db: Any, rows: list[Row]) -> None:
    batch = db.write_batch()
    for key, value in rows:
        batch.put(key, value)
    batch.write()


class _Stores:
    """The stores that a backup is written to: a new one where the keys do not rise."""

    def __init__(self, place: Path, settings: Settings) -> None:
        self.places = [place]
        self._settings = settings
        self._further: tuple[int, ...] = ()
        self._last = b""
        self._db = leveldb_at(place / ROWS, settings)()

    def write(self, rows: list[Row]) -> None:
        """Writes a piece, which is of one store."""
        if rows[0][0] <= self._last:
            self._begin_next()
        self._last = rows[-1][0]
        _write(self._db, rows)

    def _begin_next(self) -> None:
        if len(self.places) == 1:
            found = self._db.get(STORE_SHARDS)
            if found is not None:
                self._further = StoreShards.from_bytes(found).further
        if len(self.places) > len(self._further):
            raise StoreCorrupted("the backup has rows of a shard that it does not name")
        number = self._further[len(self.places) - 1]
        self.close()
        place = self.places[0] / DIRECTORY / str(number)
        for made in (place.parent, place):
            make_private(made)
        self.places.append(place)
        self._db = leveldb_at(place / ROWS, self._settings)()

    def close(self) -> None:
        """Gives the store back that is open."""
        self._db.close()


def _summary(reading: BackupReading) -> Backup:
    created_ms = reading.about.get("created_ms", 0)
    return Backup(reading.rows, reading.size_bytes, created_ms)


def _check_free(directory: Path) -> None:
    try:
        found = {path.name for path in directory.iterdir()} - _NOT_OURS
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadRequest(f"{directory}: {error.strerror}") from error
    if found:
        raise BadRequest(
            f"{directory} is not empty: it has {min(found)}; a backup is restored to a "
            f"directory that is empty, or does not exist"
        )


@contextmanager
def _place_in(directory: Path) -> Iterator[Path]:
    """Makes a temporary place on the same file system; removes it at the end.

    After an error it also removes the directories that were made for it.
    """
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    with _failing(directory):
        make_private(directory)
        place = Path(tempfile.mkdtemp(prefix=".restore-", dir=directory))
    try:
        yield place
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            for path in made:
                path.rmdir()
        raise
    shutil.rmtree(place, ignore_errors=True)
    for path in made:
        sync_directory(path.parent)


def _end_transactions(place: Path, settings: Settings, clock_ms: ClockMs) -> None:
    """Opens the data once, as its owner will, and ends its open transactions."""
    table = LevelDbTable.open(place, settings, clock_ms=clock_ms)
    try:
        now_pointer = table.clock.now_ms() * POINTERS_PER_MS
        records = list(_endings(table.journal.history, now_pointer))
        if records:
            table.journal.append(*records)
    finally:
        table.close()


def _endings(history: History, now_pointer: int) -> Iterator[Record]:
    """Yields records that end all open transactions, and all begun since the backup.

    The restored data never saw the latter. A coordinator takes an id from before its
    time that is not invalid as committed.
    """
    if not history.first:
        return  # no embedded coordinator ever kept its journal here
    yield from parted(history, history.open)
    if history.open:
        checkpoints = history.checkpoints.values()
        pointers = [*history.open, *(p for found in checkpoints for p in found)]
        yield Invalidated(now_pointer // POINTERS_PER_MS, pointers)
    last = max(now_pointer, history.reserved)
    if history.highest < last:
        yield Reserved(last)
        yield Lost(history.highest + 1, last)


@contextmanager
def _failing(directory: Path) -> Iterator[None]:
    """Maps errors of the file system and of LevelDB to `Unavailable`."""
    try:
        yield
    except Exception as error:
        if not (isinstance(error, OSError) or is_of_leveldb(error)):
            raise
        why = getattr(error, "strerror", None) or said(error)
        raise Unavailable(f"{directory} cannot be written: {why}") from error


def _sync_all(directory: Path) -> None:
    """Waits until a directory, and all files in it, are on disk."""
    for path in directory.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_directory(directory)
