"""Remembers where rows are whose pointer the coordinator never gave out."""

import threading
from collections.abc import Callable


class Strangers:
    """Such rows keep committed readers waiting, and no transaction of ours ends that.

    Those written since the store was opened are remembered, and those that a reader has
    stopped at, by the topic's prefix. `gave_out` is None where every pointer counts.
    """

    def __init__(self, gave_out: Callable[[int], bool] | None) -> None:
        self._gave_out = gave_out
        self._lock = threading.Lock()
        self._first: dict[bytes, bytes] = {}

    def has(self, pointer: int | None) -> bool:
        """Whether nobody here was ever given that pointer."""
        if self._gave_out is None or pointer is None or pointer < 0:
            return False
        return not self._gave_out(pointer)

    def note(self, pointer: int, prefix: bytes, key: bytes) -> None:
        """A row at that key, or behind it, has that pointer."""
        if self.has(pointer):
            with self._lock:
                self._first[prefix] = min(key, self._first.get(prefix, key))

    def take(self) -> dict[bytes, bytes]:
        """The first key of each topic that was noted since the last call."""
        with self._lock:
            taken, self._first = self._first, {}
        return taken
