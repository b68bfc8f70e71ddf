"""What a reader does with a row, by the pointer that it was written with."""

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
