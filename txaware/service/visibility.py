"""Decides by a row's pointer whether a reader gets it, skips it or stops there."""

import threading
from collections.abc import Callable, Iterable

from coordinator.transaction import Transaction

DELIVER, SKIP, STOP = 0, 1, 2


class Visibility:
    """Judges rows by one snapshot: deliver, skip, or stop before them.

    Where `known` is False for a pointer, nobody has it yet: stop. Where `lost` is True,
    its transaction never committed. A snapshot that came over a wire does not say that.
    """

    def __init__(
        self,
        tx: Transaction,
        known: Callable[[int], bool] | None = None,
        *,
        lost: Callable[[int], bool] | None = None,
    ) -> None:
        self._tx = tx
        self._known = known
        self._lost = lost
        self._verdicts: dict[int | None, int] = {None: DELIVER}

    def verdict(self, pointer: int | None) -> int:
        """Returns the verdict on a pointer; decides it once and remembers it."""
        verdict = self._verdicts.get(pointer)
        if verdict is None:
            verdict = self._verdicts[pointer] = self._judge(pointer or 0)
        return verdict

    def delivers_all(self, pointers: Iterable[int | None]) -> bool:
        """Tells whether rows with these pointers are all delivered."""
        return not any(self.verdict(pointer) for pointer in set(pointers))

    def _judge(self, pointer: int) -> int:
        if pointer < 0 or (self._lost is not None and self._lost(pointer)):
            return SKIP
        if self._known is not None and not self._known(pointer):
            return STOP
        if self._tx.is_current_write(pointer) or self._tx.is_visible(pointer):
            return DELIVER
        return SKIP if pointer in self._tx.invalids else STOP


class NoJudge(Visibility):
    """Delivers everything, rolled back or not."""

    def __init__(self) -> None:
        """Makes a judge without a snapshot."""

    def verdict(self, _: int | None) -> int:
        """Returns `DELIVER`, whatever the pointer."""
        return DELIVER

    def delivers_all(self, _: Iterable[int | None]) -> bool:
        """Returns True, whatever the pointers."""
        return True


class ForeignPointers:
    """The first row of each topic whose pointer nobody here was given.

    Such rows keep committed readers waiting, and the end of no transaction here changes
    that. It remembers, by the topic's prefix, rows written since the store was opened,
    and rows that a reader stopped at. `gave_out` is None where every pointer counts.
    """

    def __init__(self, gave_out: Callable[[int], bool] | None) -> None:
        self._gave_out = gave_out
        self._lock = threading.Lock()
        self._first: dict[bytes, bytes] = {}

    def has(self, pointer: int | None) -> bool:
        """Tells whether nobody here was ever given a pointer."""
        if self._gave_out is None or pointer is None or pointer < 0:
            return False
        return not self._gave_out(pointer)

    def note(self, pointer: int, prefix: bytes, key: bytes) -> None:
        """Notes that a row at a key, or behind it, has such a pointer."""
        if self.has(pointer):
            with self._lock:
                self._first[prefix] = min(key, self._first.get(prefix, key))

    def take(self) -> dict[bytes, bytes]:
        """Returns the first key of each topic that was noted since the last call."""
        with self._lock:
            taken, self._first = self._first, {}
        return taken
