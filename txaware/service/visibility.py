"""What a reader does with a row, by the pointer that it was written with."""

import threading
from collections.abc import Callable, Iterable

from coordinator.transaction import Transaction

DELIVER, SKIP, STOP = 0, 1, 2


class Judge:
    """Judges rows by one snapshot: deliver, skip, or stop before them.

    A pointer that `known` does not answer True for is nobody's yet: stop. One that
    `lost` answers True for never committed, also where the snapshot does not say so
    because it came over a wire.
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
        """The same answer for the same pointer, found out once."""
        verdict = self._verdicts.get(pointer)
        if verdict is None:
            verdict = self._verdicts[pointer] = self._judge(pointer or 0)
        return verdict

    def delivers_all(self, pointers: Iterable[int | None]) -> bool:
        """Whether rows with these pointers are all delivered."""
        return not any(self.verdict(pointer) for pointer in set(pointers))

    def _judge(self, pointer: int) -> int:
        if pointer < 0 or (self._lost is not None and self._lost(pointer)):
            return SKIP
        if self._known is not None and not self._known(pointer):
            return STOP
        if self._tx.is_current_write(pointer) or self._tx.is_visible(pointer):
            return DELIVER
        return SKIP if pointer in self._tx.invalids else STOP


class NoJudge(Judge):
    """Delivers everything, rolled back or not."""

    def __init__(self) -> None:
        """There is no snapshot."""

    def verdict(self, _: int | None) -> int:
        """Everything is delivered."""
        return DELIVER

    def delivers_all(self, _: Iterable[int | None]) -> bool:
        """Everything is delivered."""
        return True


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
