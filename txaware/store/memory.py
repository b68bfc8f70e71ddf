"""The table in memory, which ends with the process."""

import threading
from collections.abc import Sequence
from itertools import islice
from typing import NoReturn

from sortedcontainers import SortedDict

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import OnWritten
from txaware.errors import BadRequest, closed
from txaware.model.clock import ClockMs, StoreClock, system_clock_ms
from txaware.model.interfaces import Emptiness, Row, Write
from txaware.store.keys import after

FOR_EVER_MS = 1 << 62
# Up to the first number, rows of a range are weighed one by one; of more rows about the
# second number are weighed, in even steps.
WEIGHED_ROWS, SAMPLE_ROWS = 1000, 100


class MemoryTable:
    """A sorted map under a lock. There is no disk, so nothing waits.

    An interrupt (Ctrl-C) may come between any two lines of a write. The next call finds
    the writes in `_redo`, and makes all of them again.
    """

    reads_wait = False
    has_batches = False

    def __init__(self, *, clock_ms: ClockMs = system_clock_ms) -> None:
        self.clock = StoreClock(clock_ms, 0)
        self.clock.saved(FOR_EVER_MS)
        self._lock = threading.RLock()
        self._values: SortedDict[bytes, bytes] = SortedDict()
        self._redo: Sequence[Write] | None = None
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""
        with self._lock:
            self._require_open()
            value: bytes | None = self._values.get(key)
            return value

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
        """Returns rows whose key begins with `prefix`, in order and without it."""
        last = after(prefix) if stop is None else prefix + stop
        rows: list[Row] = []
        size, cut = 0, len(prefix)
        with self._lock:
            self._require_open()
            keys = self._values.irange(
                prefix + start, last, inclusive=(True, False), reverse=reverse
            )
            for key in islice(keys, limit):
                value = self._values[key]
                rows.append((key[cut:], value))
                size += len(value)
                if size >= max_bytes:
                    break
        return rows

    def submit(
        self, writes: Sequence[Write], on_written: OnWritten | None = None
    ) -> Wait:
        """Writes at once."""
        with self._lock:
            self._require_open()
            self._write(writes)
        if on_written is not None:
            on_written(None)
        return _nothing

    def hand_over(self, writes: Sequence[Write], on_written: OnWritten) -> None:
        """Writes at once."""
        self.submit(writes, on_written)

    def hold(self, _: int, writes: Sequence[Write]) -> bool:
        """Writes at once; readers judge rows by their pointer anyway."""
        self.submit(writes)
        return True

    def replace_held(self, key: bytes, value: bytes) -> bool:
        """Changes a row in the map."""
        self.submit([(key, value)])
        return True

    def reserve_time(self) -> None:
        """Does nothing: all time is reserved."""

    def newest_format(self) -> Sequence[Write]:
        """Returns nothing: no other version opens these rows."""
        return ()

    def partitioned_format(self) -> Sequence[Write]:
        """Returns nothing: no other version opens these rows."""
        return ()

    def sharded_format(self) -> Sequence[Write]:
        """Returns nothing: no other version opens these rows."""
        return ()

    def packed_format(self) -> Sequence[Write]:
        """Returns nothing: no other version opens these rows."""
        self.has_batches = True
        return ()

    def compare_and_set(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        """Sets a value if it is still `old`."""
        with self._lock:
            self._require_open()
            if self._values.get(key) != old:
                return False
            self._write([(key, new)])
            return True

    def compact(self, start: bytes, stop: bytes) -> None:
        """Does nothing: memory is given back as rows are deleted."""

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns the size of a range, exact for few rows and estimated for many."""
        with self._lock:
            self._require_open()
            first = self._values.bisect_left(start)
            count = max(0, self._values.bisect_left(stop) - first)
            step = 1 if count <= WEIGHED_ROWS else count // SAMPLE_ROWS
            keys = self._values.keys()[first : first + count : step]
            size = sum([len(key) + len(self._values[key]) for key in keys])
        return size * count // len(keys) if keys else 0

    def outline(self, tag: bytes) -> Emptiness | None:
        """Returns None: a look into each topic costs hardly more."""
        return None

    def view(self) -> NoReturn:
        """Raises `BadRequest`: there is nothing to make a backup of."""
        raise BadRequest("data in memory ends with its process, and has no backup")

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return "closed" if self._closed else "OK"

    def close(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._closed = True
            self._values.clear()

    def _write(self, writes: Sequence[Write]) -> None:
        self._redo = writes
        for key, value in writes:
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        self._redo = None

    def _require_open(self) -> None:
        if self._closed:
            raise closed()
        if self._redo is not None:
            self._values = SortedDict(dict.items(self._values))
            self._write(self._redo)


def _nothing() -> None:
    """Waits for nothing."""
