"""Uncommitted rows, which go to disk together with the commit of their transaction."""

import threading
from collections.abc import Iterable, Iterator, Sequence

from txaware.model.interfaces import Row, Write
from txaware.store.keys import row_prefix

Taken = dict[int, list[Row]]

# The ended transactions that are remembered; late rows of theirs are released at once.
REMEMBERED = 1000


class UncommittedRows:
    """Rows in memory that can be read at once, and stay until a batch has carried them.

    The rows of a committed transaction go into the batch with its commit, as they are
    then. Those of a transaction that ended otherwise are released, and go with any
    later batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the beginning of their keys: a poll then finds those of its topic at once.
        self._groups: dict[bytes, dict[bytes, bytes]] = {}
        self._keys: dict[int, list[bytes]] = {}
        self._bytes: dict[int, int] = {}
        self._released: set[int] = set()
        # The transactions that ended last: a write under way may still bring rows.
        self._ended: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._groups or self._keys)

    def hold(self, pointer: int, writes: Sequence[Write], limit_bytes: int) -> bool:
        """Takes rows; False, and none taken, if they are too many for one transaction.

        The rows that are released and not yet carried count as one transaction too.
        """
        size = sum([len(key) + len(value or b"") for key, value in writes])
        with self._lock:
            held_bytes = self._bytes.get(pointer, 0) + size
            if held_bytes > limit_bytes or (
                self._released and self._released_bytes() > limit_bytes
            ):
                # Held values of these rows would otherwise hide those written now.
                for key, _ in writes:
                    self._forget(key)
                return False
            self._bytes[pointer] = held_bytes
            self._keys.setdefault(pointer, []).extend([key for key, _ in writes])
            if pointer in self._ended:
                self._released.add(pointer)
            groups = self._groups
            for key, value in writes:
                groups.setdefault(row_prefix(key), {})[key] = value or b""
            return True

    def _released_bytes(self) -> int:
        return sum(self._bytes.get(pointer, 0) for pointer in self._released)

    def replace(self, key: bytes, value: bytes) -> bool:
        """Changes a row; False if it is not held."""
        with self._lock:
            group = self._groups.get(row_prefix(key), {})
            if key not in group:
                return False
            group[key] = value
            return True

    def release(self, pointers: Iterable[int]) -> None:
        """Releases the rows of transactions that have ended without a commit."""
        with self._lock:
            for pointer in pointers:
                self._ended[pointer] = None
                if pointer in self._keys:
                    self._released.add(pointer)
            while len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def take(self, committed: Iterable[int]) -> Taken:
        """Returns the next batch's rows: those of these commits, and the released."""
        with self._lock:
            if not self._keys:
                return {}
            return {
                pointer: self._rows(self._keys[pointer])
                for pointer in (*committed, *self._released)
                if pointer in self._keys
            }

    def _rows(self, keys: Iterable[bytes]) -> list[Row]:
        rows = []
        for key in keys:
            value = self._groups.get(row_prefix(key), {}).get(key)
            if value is not None:
                rows.append((key, value))
        return rows

    def carried(self, taken: Taken) -> None:
        """Forgets the rows of a batch on disk, but for those changed since."""
        with self._lock:
            for pointer, rows in taken.items():
                keys = self._keys.get(pointer)
                if keys is None:
                    continue
                forgotten = sum([self._forget(key, value) for key, value in rows])
                # Nearly always all rows are forgotten, and there is no other to find.
                left = forgotten < len(keys) and [key for key, _ in self._rows(keys)]
                if left:
                    self._keys[pointer] = left
                    self._released.add(pointer)
                else:
                    del self._keys[pointer], self._bytes[pointer]
                    self._released.discard(pointer)

    def _forget(self, key: bytes, value: bytes | None = None) -> bool:
        """Forgets a row unless its value has changed; answers whether it did."""
        prefix = row_prefix(key)
        group = self._groups.get(prefix)
        if group is None or (value is not None and group.get(key) is not value):
            return False
        group.pop(key, None)
        if not group:
            del self._groups[prefix]
        return True

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forgets rows that are deleted before a batch has carried them."""
        with self._lock:
            for key in keys:
                self._forget(key)

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a held row; None if it is not held."""
        group = self._groups.get(row_prefix(key))
        return group.get(key) if group is not None else None

    def scan(self, prefix: bytes, start: bytes, stop: bytes) -> list[Row]:
        """Returns the held rows of a range, in any order and without the prefix."""
        cut = len(prefix)
        with self._lock:
            return [
                (key[cut:], value)
                for group in self._groups_below(prefix)
                for key, value in group.items()
                if start <= key < stop
            ]

    def _groups_below(self, prefix: bytes) -> Iterator[dict[bytes, bytes]]:
        group = self._groups.get(prefix)
        if group is not None:
            yield group
            return
        for name, group in self._groups.items():
            if name.startswith(prefix) or prefix.startswith(name):
                yield group
