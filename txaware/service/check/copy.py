"""A copy of a data directory, to be read while nothing in the copy changes."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from coordinator.directory_lock import NAME as LOCK
from coordinator.directory_lock import DirectoryInUse
from txaware.errors import StoreCorrupted, Unavailable
from txaware.model.interfaces import Row
from txaware.model.settings import Settings
from txaware.store.damage import (
    DamagedRange,
    damage_text,
    damaged_file,
    is_damage,
    said,
    untorn,
    way_out,
)
from txaware.store.leveldb import ROWS
from txaware.store.leveldb_binding import is_of_leveldb, leveldb
from txaware.store.leveldb_store import check_end

# LevelDB never changes these files once they are written; it changes all others.
IMMUTABLE = (".ldb", ".sst")
_BAD_DISK = os.strerror(errno.EIO)
_FULL = os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)


class CopiedRows:
    """The rows of a copy, read with their checksums and past all caches.

    What is damaged is told with the names that it has in `directory`.
    """

    def __init__(self, db: Any, directory: Path) -> None:
        self._db = db
        self._directory = directory
        self._damaged: dict[Path, bool] = {}

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""
        with self._mapped_errors(DamagedRange(key, key)):
            value: bytes | None = self._db.get(key, verify_checksums=True)
            return value

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
    ) -> list[Row]:
        """Returns rows whose key begins with `prefix`, which is left off, in order."""
        rows: list[Row] = []
        size = 0
        last = prefix + (b"\xff" if stop is None else stop)
        with self._mapped_errors(DamagedRange(prefix + start, last)):
            for key, value in self._db.prefixed_db(prefix).iterator(
                start=start, stop=stop, verify_checksums=True, fill_cache=False
            ):
                rows.append((key, value))
                size += len(value)
                if len(rows) >= limit or size >= max_bytes:
                    return rows
            end = prefix + (rows[-1][0] if rows else start)
            check_end(self._db, end, is_row=bool(rows), fill_cache=False)
        return rows

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about how much of the disk a range takes."""
        size: int = self._db.approximate_size(start, stop)
        return size

    @contextmanager
    def _mapped_errors(self, damaged_range: DamagedRange) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if is_damage(error):
                place = damaged_file(
                    self._db, self._directory / ROWS, damaged_range, known=self._damaged
                )
                name = str(self._directory)
                raise StoreCorrupted(damage_text(name, error, place)) from error
            if _BAD_DISK in said(error):
                raise StoreCorrupted(said(error)) from error
            if is_of_leveldb(error):
                raise Unavailable(said(error)) from error
            raise


@contextmanager
def copied(directory: Path, settings: Settings) -> Iterator[CopiedRows]:
    """Links or copies a directory that nobody has open, and opens that.

    Raises `DirectoryInUse` where somebody has it open, and `StoreCorrupted` where
    LevelDB cannot read it at all.
    """
    if not (directory / ROWS).is_dir():
        raise Unavailable(f"{directory} is no data directory: it has no {ROWS}/")
    with ExitStack() as opened:
        try:
            db = opened.enter_context(
                _opened_copy(directory, directory.resolve().parent, settings)
            )
        except _NoRoom:  # on this disk; another one may have some
            db = opened.enter_context(
                _opened_copy(directory, Path(tempfile.gettempdir()), settings)
            )
        yield CopiedRows(db, directory)


def _is_full(error: Exception) -> bool:
    text = str(error) if isinstance(error, OSError) else said(error)
    return any(full in text for full in _FULL)


class _NoRoom(Unavailable):
    """The disk is full where a copy was to be made."""


@contextmanager
def _opened_copy(directory: Path, parent: Path, settings: Settings) -> Iterator[Any]:
    """Links or copies a directory, and opens that; `parent` is for links the same."""
    with _place_in(parent, directory.resolve().name) as place:
        try:
            with _held_still(directory):
                _copy_files(directory / ROWS, place)
            db = _opened(place, directory, settings)
        except Exception as error:
            if not _is_full(error):
                raise
            raise _NoRoom(
                f"{directory} was not checked: there is no room for a copy of its "
                f"newest rows in {place.parent}. Free some, or name another place by "
                f"TMPDIR"
            ) from error
        try:
            yield db
        finally:
            db.close()


@contextmanager
def _held_still(directory: Path) -> Iterator[None]:
    """Locks a directory as its owner would, but writes no name into it."""
    try:
        fd = os.open(directory / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        yield  # nobody ever had it open, so it is a copy itself
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            raise DirectoryInUse(
                f"{directory} is in use by process {holder or 'unknown'}; check it "
                f"once that process has closed it"
            ) from error
        yield
    finally:
        os.close(fd)


@contextmanager
def _place_in(parent: Path, of: str) -> Iterator[Path]:
    """Makes a directory beside the one to check, for links, or else elsewhere."""
    name = f".{of}-check-"
    try:
        place = tempfile.mkdtemp(prefix=name, dir=parent)
    except OSError:
        place = tempfile.mkdtemp(prefix=name)
    try:
        yield Path(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _copy_files(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        if path.name == "LOCK" or not path.is_file():
            continue
        copy: Callable[[Path, Path], object] = shutil.copyfile
        if path.suffix in IMMUTABLE:
            copy = _link
        copy(path, target / path.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _is_unborn(place: Path) -> bool:
    """Tells whether LevelDB was killed while it made the database, still empty."""
    return not any(
        path.name == "CURRENT" or path.suffix in (*IMMUTABLE, ".log")
        for path in place.iterdir()
    )


def _opened(place: Path, directory: Path, settings: Settings) -> Any:
    def attempt() -> Any:
        return leveldb().DB(
            str(place),
            create_if_missing=_is_unborn(place),
            paranoid_checks=True,
            block_size=settings.block_bytes,
            write_buffer_size=settings.write_buffer_bytes,
            bloom_filter_bits=settings.bloom_filter_bits,
            compression=None if settings.compression == "none" else "snappy",
        )

    try:
        return untorn(place, attempt)  # as whoever opens the directory does
    except Exception as error:
        text = said(error).replace(str(place), str(directory / ROWS))
        problem = f"LevelDB cannot open {directory}: {text}"
        if is_damage(error):
            problem = f"{problem}. {way_out(str(directory))}"
        raise StoreCorrupted(problem) from error
