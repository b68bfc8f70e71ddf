"""Decides by a row's pointer whether a reader gets it, skips it or stops there."""

import threading
from collections.abc import Callable, Iterable

from coordinator.pointers import NO_RANGES, Ranges
from coordinator.transaction import Transaction

DELIVER, SKIP, STOP = 0, 1, 2


class Visibility:
    """Judges rows by one snapshot: deliver, skip, or stop before them.

    Where `known`, which is true for all between two others, is False for a pointer,
    nobody has it yet: stop. The transactions of
    those in `lost` never committed. A snapshot that came over a wire does not say that.
    """

    def __init__(
        self,
        tx: Transaction,
        known: Callable[[int], bool] | None = None,
        *,
        lost: Ranges = NO_RANGES,
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

    def delivers_between(self, first: int, last: int) -> bool:
        """Tells whether rows with any pointers from `first` to `last` are delivered.

        False says nothing. A look at many rows of many transactions is one with it.
        """
        tx, known = self._tx, self._known
        return (
            0 < first <= last <= tx.read_pointer
            and not tx.in_progress.any_between(first, last)
            and not tx.invalids.any_between(first, last)
            and not self._lost.any_between(first, last)
            and (known is None or (known(first) and known(last)))
        )

    def _judge(self, pointer: int) -> int:
        if pointer < 0 or pointer in self._lost:
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

    def delivers_between(self, _: int, __: int) -> bool:
        """Returns True, whatever the pointers."""
        return True


class ForeignPointers:
    """The first row of each topic whose pointer nobody here was given.

    Such rows keep committed readers waiting, and the end of no transaction here changes
    that. It remembers, by the topic's prefix, rows written since the store was opened,
    and rows that a reader stopped at. `gave_out` is None where every pointer counts.
    What `take` returned is left out by the next one; what `first` returns stays until
    it is `passed`.
    """

    def __init__(self, gave_out: Callable[[int], bool] | None) -> None:
        self._gave_out = gave_out
        self._lock = threading.Lock()
        self._new: dict[bytes, bytes] = {}
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
                for keys in (self._new, self._first):
                    keys[prefix] = min(key, keys.get(prefix, key))

    def take(self) -> dict[bytes, bytes]:
        """Returns the first key of each topic that was noted since the last call."""
        with self._lock:
            new, self._new = self._new, {}
        return new

    def first(self, prefix: bytes) -> bytes | None:
        """Returns the key from which on a topic may have such a row, if it may."""
        return self._first.get(prefix)

    def passed(self, prefix: bytes, first: bytes, key: bytes | None) -> None:
        """Notes that no such row is before `key`, or none at all where that is None.

        `first` is what was returned: where a row before it was noted since, that stays.
        """
        with self._lock:
            if self._first.get(prefix) != first:
                return
            if key is None:
                del self._first[prefix]
            else:
                self._first[prefix] = key
