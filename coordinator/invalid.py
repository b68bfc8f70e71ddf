"""The invalid pointers, and since when they are."""

from collections.abc import Iterable, Mapping

from coordinator.pointers import NO_RANGES, Pointers, PointersAndRanges, Ranges
from coordinator.transaction import NO_POINTER


class InvalidPointers:
    """What was written with these pointers is never seen by anybody.

    `pointers` is shared by all snapshots taken until it changes. Those that were `lost`
    in a crash are among them for ever, though not listed one by one.
    """

    def __init__(
        self,
        ended_ms: Mapping[int, int] | None = None,
        lost: Ranges = NO_RANGES,
    ) -> None:
        self.lost = lost
        self._ended_ms = dict(ended_ms or {})
        self.pointers: Pointers = (
            PointersAndRanges(self._ended_ms, self.lost)
            if self.lost
            else Pointers(self._ended_ms)
        )

    def add(self, pointers: Iterable[int], ended_ms: int) -> None:
        """Adds pointers whose transactions ended at that time."""
        ended = dict.fromkeys(pointers, ended_ms)
        self.pointers = self.pointers.added(ended)
        self._ended_ms |= ended

    def ended_by(self, time_ms: int, pointers: Iterable[int]) -> Pointers:
        """Those of the pointers that are invalid since that time or longer."""
        ended_ms = self._ended_ms
        return Pointers(
            pointer
            for pointer in set(pointers)
            if ended_ms.get(pointer, NO_POINTER) <= time_ms
        )

    def forget(self, pointers: Iterable[int]) -> None:
        """What was written with these becomes visible."""
        self.pointers = self.pointers.without(pointers)
        for pointer in pointers:
            self._ended_ms.pop(pointer, None)
