"""A LevelDB in memory that fails when told to, and tells what a crash may leave.

Writes go to a log. A synced one puts its own log on disk up to there, and says nothing
of the log before it, as was seen in LevelDB. Opening reads all logs and puts what it
found on disk.
"""

import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import attrs
from sortedcontainers import SortedDict

from txaware.store.keys import after
from txaware.store.leveldb_binding import leveldb

Change = tuple[bytes, bytes | None]

# What `before` is called with, in the order of a synced write; then those of an open.
WRITE, SYNC, DONE = "write", "sync", "done"
OPEN, OPENED = "open", "opened"


class Crash(Exception):
    """The machine stops here."""


def io_error(text: str = "fake: No space left on device") -> Exception:
    """What plyvel raises."""
    error: Exception = leveldb().IOError(text)
    return error


@attrs.define(eq=False)
class Log:
    """Records in order, of which so many are surely on disk.

    What was written behind a torn one is not found again.
    """

    records: list[list[Change]] = attrs.field(factory=list)
    synced: int = 0
    readable: int = 1 << 62


class FakeDirectory:
    """What `open` opens again and again.

    `before(number, step)` comes at every step, and what it raises is raised there: at
    `write` nothing was done, at `sync` the log is written, at `done` all is. `short`
    leaves a torn record behind an error at `write`. With `switch_every`, so many writes
    share a log.
    """

    def __init__(
        self, base: dict[bytes, bytes] | None = None, *, switch_every: int = 0
    ) -> None:
        self.before: Callable[[int, str], None] = lambda number, step: None
        self.short = False
        self.crashed = False
        self.steps = 0
        self.base = dict(base or {})
        self.logs = [Log()]
        self.lock = threading.RLock()
        self.switch_every = switch_every
        self.owner: FakeLevelDb | None = None

    def open(self) -> "FakeLevelDb":
        """As `plyvel.DB`: one at a time."""
        with self.lock:
            if self.owner is not None:
                raise io_error("fake: lock: already held by process")
            self.step(OPEN)
            self.base = recovered(self.base, self.logs)
            self.logs = [Log()]
            self.step(OPENED)
            self.owner = FakeLevelDb(self)
            return self.owner

    def step(self, name: str) -> None:
        """One moment at which things can go wrong."""
        if self.crashed:
            raise Crash
        number, self.steps = self.steps, self.steps + 1
        try:
            self.before(number, name)
        except Crash:
            self.crashed = True
            raise

    def append(self, changes: list[Change], *, sync: bool) -> None:
        """Writes a record; what is written unsynced may be lost, alone."""
        try:
            self.step(WRITE)
        except Exception:
            if self.short:
                log = self.logs[-1]
                log.readable = min(log.readable, len(log.records))
            raise
        if self.switch_every and len(self.logs[-1].records) >= self.switch_every:
            self.logs.append(Log())
        log = self.logs[-1]
        log.records.append(changes)
        self.step(SYNC)
        if sync:
            log.synced = len(log.records)
        self.step(DONE)

    def after_a_crash(self) -> Iterator["FakeDirectory"]:
        """Every directory that may be found: of each log some of what was unsynced."""
        choices = []
        for log in self.logs:
            counts = range(log.synced, len(log.records) + 1)
            choices.append(counts if len(counts) < 4 else (counts[0], counts[-1]))
        for kept in product(*choices):
            logs = [
                Log(log.records[:count], readable=log.readable)
                for log, count in zip(self.logs, kept, strict=True)
            ]
            base = recovered(self.base, logs)
            yield FakeDirectory(base, switch_every=self.switch_every)


def recovered(base: dict[bytes, bytes], logs: list[Log]) -> dict[bytes, bytes]:
    """What opening finds."""
    found = dict(base)
    for log in logs:
        for changes in log.records[: log.readable]:
            for key, value in changes:
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
    return found


class FakeLevelDb:
    """The calls of `plyvel.DB` that a table uses."""

    def __init__(self, directory: FakeDirectory) -> None:
        self._directory = directory
        self._values: SortedDict[bytes, bytes] = SortedDict(directory.base)
        self._broken = False

    def get(self, key: bytes, *, verify_checksums: bool) -> bytes | None:
        assert verify_checksums
        with self._directory.lock:
            self._require_open()
            value: bytes | None = self._values.get(key)
            return value

    def prefixed_db(self, prefix: bytes) -> "_Prefixed":
        return _Prefixed(self, prefix)

    def rows(
        self, start: bytes, stop: bytes, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """The range as it is now, whatever comes later."""
        with self._directory.lock:
            self._require_open()
            keys = self._values.irange(
                start, stop, inclusive=(True, False), reverse=reverse
            )
            return iter([(key, self._values[key]) for key in keys])

    def raw_iterator(self, *, verify_checksums: bool) -> "_Nowhere":
        assert verify_checksums
        return _Nowhere()

    def write_batch(self, *, sync: bool = False) -> "_WriteBatch":
        return _WriteBatch(self, sync=sync)

    def put(self, key: bytes, value: bytes, *, sync: bool = False) -> None:
        self.write([(key, value)], sync=sync)

    def write(self, changes: list[Change], *, sync: bool) -> None:
        """As LevelDB: a failed sync fails all later writes until it is opened anew."""
        with self._directory.lock:
            self._require_open()
            if self._broken:
                raise io_error("fake: an earlier sync failed")
            written = len(self._directory.logs[-1].records)
            try:
                self._directory.append(changes, sync=sync)
            except Exception:
                self._broken = len(self._directory.logs[-1].records) != written
                raise
            for key, value in changes:
                if value is None:
                    self._values.pop(key, None)
                else:
                    self._values[key] = value

    def compact_range(self, *, start: bytes, stop: bytes) -> None:
        pass

    def approximate_size(self, start: bytes, stop: bytes) -> int:
        return 0

    def close(self) -> None:
        with self._directory.lock:
            if self._directory.owner is self:
                self._directory.owner = None

    def _require_open(self) -> None:
        if self._directory.owner is not self:
            raise RuntimeError("Database is closed")
        if self._directory.crashed:
            raise Crash


class _Prefixed:
    def __init__(self, db: FakeLevelDb, prefix: bytes) -> None:
        self._db, self._prefix = db, prefix

    def iterator(
        self,
        *,
        start: bytes | None,
        stop: bytes | None,
        reverse: bool,
        verify_checksums: bool,
    ) -> Iterator[tuple[bytes, bytes]]:
        assert verify_checksums
        first = self._prefix + (start or b"")
        last = after(self._prefix) if stop is None else self._prefix + stop
        cut = len(self._prefix)
        for key, value in self._db.rows(first, last, reverse=reverse):
            yield key[cut:], value


class _Nowhere:
    """A raw iterator, which is asked for nothing but damage, and there is none."""

    def seek(self, _: bytes) -> None:
        pass

    def seek_to_last(self) -> None:
        pass

    def valid(self) -> bool:
        return False

    def close(self) -> None:
        pass


class _WriteBatch:
    def __init__(self, db: FakeLevelDb, *, sync: bool) -> None:
        self._db, self._sync = db, sync
        self._changes: list[Change] = []

    def put(self, key: bytes, value: bytes) -> None:
        self._changes.append((_bytes(key), _bytes(value)))

    def delete(self, key: bytes) -> None:
        self._changes.append((_bytes(key), None))

    def write(self) -> None:
        self._db.write(self._changes, sync=self._sync)


def _bytes(data: Any) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError(f"a bytes-like object is required, not {type(data)}")
    return data
