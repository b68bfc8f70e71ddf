"""A LevelDB database that can be closed and opened again under its readers."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, TypeVar

from coordinator.private_directory import (
    make_all_private,
    sync_directory,
    tighten_files,
)
from txaware.errors import Unavailable, closed
from txaware.model.interfaces import Row, Write
from txaware.model.settings import Settings
from txaware.store.damage import (
    DamagedRange,
    corrupted,
    damage_text,
    damaged_file,
    is_damage,
    repair,
    said,
    untorn,
)
from txaware.store.interfaces import RowBatch, up_to
from txaware.store.keys import ABOVE_ALL, JOURNAL, after
from txaware.store.leveldb_binding import is_of_leveldb, leveldb

FIRST_ROWS, MOST_ROWS = 2, 512
# Scans of that many rows take turns: with each row an iterator lets the interpreter go,
# and two at once do little but take it from each other (1.5 us a row and not 1.0; four
# at once 2.4). Smaller scans do not wait for them.
MANY_ROWS = 500
LOOK_AGAIN_S = 0.002
# LevelDB maps each table file that it has open, and takes 64 of them at least.
TABLE_FILE_BYTES, OTHER_FILES = 1 << 20, 10
Open = Callable[[], Any]
T = TypeVar("T")


class LogFile:
    """Follows LevelDB from log to log; there is one writer, which tells each write.

    LevelDB begins a new log when its memory is full, and syncs what it writes there,
    but not the directory. A file system may then lose the log, and all that was
    acknowledged: so its name is on disk before anybody relies on it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Kept open: to ask a path for its size costs a tenth of a small transaction.
        self.opened: int | None = None
        self.size = 0

    def begin(self) -> None:
        """Looks which log it is; its name, and all others, are on disk after that."""
        self.close()
        found = os.listdir(self._directory)  # which an interrupt leaves nothing of
        logs = [f"{self._directory}/{name}" for name in found if name.endswith(".log")]
        self.size = 0
        if logs:
            self.opened = os.open(max(logs, key=_number), os.O_RDONLY)
            self.size = os.lseek(self.opened, 0, os.SEEK_END)
        sync_directory(self._directory)

    def follow(self) -> None:
        """Goes on to the next log, if the directory is there."""
        if self._directory.exists():  # else it was removed under its owner
            self.begin()

    def close(self) -> None:
        """Gives the file back."""
        opened, self.opened = self.opened, None
        if opened is not None:
            os.close(opened)


def _number(path: str) -> int:
    return int(Path(path).stem)


class NamedBatch:
    """A batch of LevelDB that is on disk together with the name of its log."""

    __slots__ = ("_log", "_write", "delete", "put")

    def __init__(self, batch: RowBatch, log: LogFile) -> None:
        self._log = log
        self.put = batch.put
        self.delete = batch.delete
        self._write = batch.write

    def write(self) -> None:
        """Writes; it is on disk then.

        Where the log has not grown, LevelDB has begun another.
        """
        self._write()
        log = self._log
        opened, size = log.opened, 0  # here, as each batch pays for it
        if opened is not None:
            size = os.lseek(opened, 0, os.SEEK_END)
        if size > log.size:
            log.size = size
        else:
            log.follow()


def leveldb_at(directory: Path, settings: Settings) -> Open:
    """Returns a function that opens the database of a directory.

    If damage is accepted, the first opening reads everything, and has LevelDB set aside
    what it cannot read.
    """
    accepts = [settings.accept_damage]
    options: dict[str, Any] = {
        "block_size": settings.block_bytes,
        "lru_cache_size": settings.block_cache_bytes,
        "write_buffer_size": settings.write_buffer_bytes,
        "max_file_size": TABLE_FILE_BYTES,
        "max_open_files": settings.mapped_bytes // TABLE_FILE_BYTES + OTHER_FILES,
        "bloom_filter_bits": settings.bloom_filter_bits,
        "compression": None if settings.compression == "none" else "snappy",
    }

    def opened() -> Any:
        def attempt() -> Any:
            return leveldb().DB(
                str(directory),
                create_if_missing=True,
                paranoid_checks=not settings.accept_damage,
                **options,
            )

        make_all_private(directory)
        db = untorn(directory, attempt)
        tighten_files(directory)
        return db

    def open_database() -> Any:
        if not (accepts and accepts.pop()):
            return opened()
        try:
            db = opened()
            try:
                verify(db)
            except BaseException:
                db.close()
                raise
        except Exception as error:
            if not is_damage(error):
                raise
            repair(directory, **options)
            return opened()
        return db

    return open_database


class Database:
    """The `RowStore` in LevelDB, with its errors mapped to ours.

    LevelDB must not be closed during a read, so a close waits for readers, and keeps
    new ones out.
    """

    def __init__(
        self,
        name: str,
        open_database: Open,
        directory: Path | None = None,
        *,
        log: LogFile | None = None,
    ) -> None:
        self.name = name
        self._open = open_database
        self._directory = directory
        self._log = log
        self._damaged: dict[Path, bool] = {}
        self._readers: set[object] = set()
        self._db: Any = None
        self._left: Any = None
        self._why_closed = ""
        self._turn = threading.Lock()
        self.reopen()

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""

        def read(db: Any) -> bytes | None:
            value: bytes | None = db.get(key, verify_checksums=True)
            return value

        return self._read(read, DamagedRange(key, key))

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        reverse: bool = False,
    ) -> list[Row]:
        """Returns rows of one consistent view; see `OrderedTable.scan`."""

        last = after(prefix) if stop is None else prefix + stop

        def read(db: Any) -> list[Row]:
            # Backwards, plyvel leaves `start` out if it is the last key of the range.
            begin = None if reverse else start or None
            rows = db.prefixed_db(prefix).iterator(
                start=begin, stop=stop, reverse=reverse, verify_checksums=True
            )
            if reverse and start:
                rows = takewhile(lambda row: row[0] >= start, rows)
            if limit < MANY_ROWS:
                taken, is_all = _bounded(rows, limit, max_bytes)
            else:
                with self._turn:
                    taken, is_all = _bounded(rows, limit, max_bytes)
            if is_all:
                ended = taken[-1][0] if taken else None
                if ended is not None:
                    end = prefix + ended
                else:
                    end = last if reverse else prefix + start
                check_end(db, end, is_row=ended is not None, reverse=reverse)
            return taken

        return self._read(read, DamagedRange(prefix + start, last, reverse))

    def last_value(self, prefix: bytes, stop: bytes) -> bytes | None:
        """Returns the value of the last row with that prefix and below `stop`.

        None says nothing: what is damaged may hide rows, and `scan` tells that. One
        look of LevelDB's is a third of what a scan of one row costs.
        """

        def read(db: Any) -> bytes | None:
            rows = db.raw_iterator(verify_checksums=True)
            try:
                rows.seek(stop)
                if rows.valid():
                    rows.prev()
                else:
                    rows.seek_to_last()
                found = rows.valid() and rows.key().startswith(prefix)
                return rows.value() if found else None
            finally:
                rows.close()

        return self._read(read, DamagedRange(prefix, stop, True))

    @property
    def last_batch(self) -> int:
        """The number of the last batch that had an entry of the journal."""
        last = self.scan(JOURNAL, limit=1, reverse=True)
        return int.from_bytes(last[0][0], "big") if last else 0

    def batch(self, number: int) -> Any:
        """Begins a batch to fill; it is on disk when its `write()` returns."""
        if self._db is None:
            raise self._closed()
        batch = self._db.write_batch(sync=True)
        return batch if self._log is None else NamedBatch(batch, self._log)

    def has_batch(self, number: int, writes: Sequence[Write]) -> bool:
        """Tells whether all writes of a batch are there; LevelDB writes all or none.

        There is no key for this in every batch. With one, every file of LevelDB would
        reach from there to the rows of the batch, and all would be sorted together.
        """
        return all(self.get(key) == value for key, value in dict(writes).items())

    def damage(self, error: Exception) -> str | None:
        """Returns the damage that LevelDB met as it sorted files, and what helps.

        LevelDB writes no more after that. None for an error of another kind.
        """
        if not is_damage(error):
            return None
        return damage_text(self.name, error, self._read(self._place))

    def compact(self, start: bytes, stop: bytes) -> None:
        """Rewrites a range without what was deleted there."""
        self._read(lambda db: db.compact_range(start=start, stop=stop))

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about the size on disk of a range, as far as it is in table files."""
        size: int = self._read(lambda db: db.approximate_size(start, stop))
        return size

    def status(self) -> str:
        """Returns `"OK"`: LevelDB reports problems only to a write."""
        return "OK"

    def view(self) -> "LevelDbView":
        """Returns a view of all rows as they are now."""
        return LevelDbView(self.name, self._read)

    def reopen(self) -> None:
        """Closes the database and opens it again; raises what LevelDB raises."""
        self.close()
        try:
            self._db = self._open()
        except Exception as error:
            self._why_closed = f", as it cannot be opened again: {said(error)}"
            raise
        if self._log is not None:
            self._log.follow()

    def close(self) -> None:
        """Gives the database back, once the last reader has left."""
        self._why_closed = ""
        if self._db is not None:  # one step; what an interrupt leaves is closed next
            self._left, self._db = self._db, None
        while self._readers:
            time.sleep(LOOK_AGAIN_S)
        if self._left is not None:
            self._left.close()
            self._left = None
        if self._log is not None:
            self._log.close()

    def _closed(self) -> Unavailable:
        if not self._why_closed:
            return closed()
        return Unavailable(f"{self.name} is closed{self._why_closed}")

    def _read(
        self, read: Callable[[Any], T], damaged_range: DamagedRange | None = None
    ) -> T:
        """Reads with the database held open; `damaged_range` is where damage would be.

        It uses no lock, no count and no generator. An interrupt (Ctrl-C) could leave
        one behind, and `close` would wait for it.
        """
        reader = object()
        try:
            self._readers.add(reader)
            db = self._db
            if db is None:
                raise self._closed()
            return read(db)
        except Exception as error:
            if is_damage(error):
                raise corrupted(
                    self.name, error, self._place(db, damaged_range)
                ) from error
            if is_of_leveldb(error):
                text = f"{self.name} cannot be read: {said(error)}"
                raise Unavailable(text) from error
            raise
        finally:
            self._readers.discard(reader)

    def _place(self, db: Any, damaged_range: DamagedRange | None = None) -> str | None:
        """Returns the path of the damaged file, if that can be found."""
        if self._directory is None:
            return None
        damaged_range = damaged_range or DamagedRange(b"", ABOVE_ALL)
        return damaged_file(db, self._directory, damaged_range, known=self._damaged)


class LevelDbView:
    """A view of all rows as they were at one moment, whatever is written meanwhile.

    It ends with `close`, and when the database has to be opened again.
    """

    def __init__(self, name: str, read: Callable[..., Any]) -> None:
        self._name = name
        self._read = read
        self._of, self._snapshot = read(lambda db: (db, db.snapshot()))

    def pieces(self, piece_bytes: int) -> Iterator[list[Row]]:
        """Reads all rows in order, about `piece_bytes` of them at a time.

        The checksums are verified, and all caches are passed by.
        """
        last = None
        while rows := self._read(
            partial(self._piece, last, piece_bytes),
            DamagedRange(last or b"", ABOVE_ALL),
        ):
            yield rows
            last = rows[-1][0]

    def part(self, key: bytes) -> float:
        """Returns about which part of all rows precedes a key, by place on disk."""

        def read(db: Any) -> float:
            whole = db.approximate_size(b"", ABOVE_ALL)
            return float(db.approximate_size(b"", key) / whole) if whole else 0.0

        part: float = self._read(read)
        return min(1.0, part)

    @property
    def size_bytes(self) -> int:
        """The size on disk, about, of the rows that are in table files."""
        size: int = self._read(lambda db: db.approximate_size(b"", ABOVE_ALL))
        return size

    def close(self) -> None:
        """Ends the view, so that old rows can go; a second close does nothing."""
        with suppress(Unavailable):  # where it is closed, LevelDB has let them go
            self._read(lambda _: self._snapshot.close())

    def _piece(self, last: bytes | None, piece_bytes: int, db: Any) -> list[Row]:
        if db is not self._of:
            raise Unavailable(
                f"{self._name} was opened again after a failed write, which ended this "
                f"view of it; begin again"
            )
        rows: list[Row] = []
        size = 0
        for row in self._snapshot.iterator(
            start=last, include_start=False, verify_checksums=True, fill_cache=False
        ):
            rows.append(row)
            size += len(row[0]) + len(row[1])
            if size >= piece_bytes:
                return rows
        end = rows[-1][0] if rows else last or b""
        check_end(self._snapshot, end, is_row=bool(end), fill_cache=False)
        return rows


def _bounded(rows: Any, limit: int, max_bytes: int) -> tuple[list[Row], bool]:
    """Takes rows in growing pieces, so that large ones come a few at a time.

    Answers the rows, and whether they ended before both limits.
    """
    taken: list[Row] = []
    size, piece = 0, FIRST_ROWS
    while len(taken) < limit:
        more = list(islice(rows, min(piece, limit - len(taken))))
        more_bytes = sum([len(value) for _, value in more])
        if size + more_bytes >= max_bytes:
            return taken + up_to(more, max_bytes - size), False
        taken += more
        if len(more) < piece:
            return taken, len(taken) < limit
        size += more_bytes
        piece = min(4 * piece, MOST_ROWS)
    return taken, False


def check_end(
    source: Any, key: bytes, *, is_row: bool, reverse: bool = False, **options: Any
) -> None:
    """Raises the damage that ended an iterator, at the last row or the start.

    If every block that is left is damaged, the iterators of plyvel end as if there were
    no more rows; only its raw iterators tell.
    """
    raw = source.raw_iterator(verify_checksums=True, **options)
    try:
        raw.seek(key)
        if reverse:
            if not raw.valid():
                raw.seek_to_last()
            if raw.valid():
                raw.prev()
        elif is_row and raw.valid():
            raw.next()
    finally:
        raw.close()


def verify(db: Any) -> None:
    """Reads everything with its checksums; raises what LevelDB raises."""
    last = b""
    for key in db.iterator(
        include_value=False, verify_checksums=True, fill_cache=False
    ):
        last = key
    check_end(db, last, is_row=bool(last), fill_cache=False)
