"""The invalid pointers of the embedded coordinator, and when each became invalid."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, Self
from weakref import WeakSet

from coordinator.pointers import NO_RANGES, Pointers, PointersAndRanges, Ranges


class Ended(NamedTuple):
    """A moment, by the clock and by the time that passes."""

    clock_ms: int
    elapsed_ms: int


class WatchesInvalid(Protocol):
    """Counts invalid pointers; called under the coordinator's lock, perhaps twice."""

    def became_invalid(self, pointers: Iterable[int]) -> None:
        """Is told that nobody will ever see the writes made with these."""

    def were_forgotten(self, pointers: Iterable[int]) -> None:
        """Is told that these are no longer remembered as invalid."""


class InvalidPointers:
    """The invalid pointers: nobody ever sees the writes that were made with them.

    Snapshots share `pointers` until it changes. Pointers that were `lost` in a crash
    are among them for ever, though not listed one by one. `watchers` are told of each
    change, as long as somebody else has them.
    """

    def __init__(self, lost: Ranges = NO_RANGES) -> None:
        self.lost = lost
        self.watchers: WeakSet[WatchesInvalid] = WeakSet()
        self._ended: dict[int, Ended] = {}
        self.pointers = self._listed(())

    @classmethod
    def restored(
        cls, ended_ms: Mapping[int, int], now: Ended, lost: Ranges = NO_RANGES
    ) -> Self:
        """Takes over the pointers of an earlier process, with the times they ended."""
        self = cls(lost)
        self._ended = {
            pointer: Ended(at_ms, now.elapsed_ms - max(0, now.clock_ms - at_ms))
            for pointer, at_ms in ended_ms.items()
        }
        self.pointers = self._listed(self._ended)
        return self

    def _listed(self, pointers: Iterable[int]) -> Pointers:
        if self.lost:
            return PointersAndRanges(pointers, self.lost)
        return Pointers(pointers)

    def add(self, pointers: Iterable[int], ended: Ended) -> None:
        """Adds pointers whose transactions ended at that moment."""
        added = dict.fromkeys(pointers, ended)
        self.pointers = self.pointers.added(added)
        self._ended |= added
        for watcher in self.watchers:
            watcher.became_invalid(added)

    def ended_by(self, latest: Ended, pointers: Iterable[int]) -> Pointers:
        """Returns the given pointers that became invalid by `latest`, by both times.

        One time alone is not enough. The clock may jump ahead, and pointers would be
        forgotten too early. The times of ids stand still while the clock is behind
        them, and pointers would be forgotten too late.
        """
        return Pointers(
            pointer
            for pointer in set(pointers)
            if (ended := self._ended.get(pointer)) is not None
            and ended.clock_ms <= latest.clock_ms
            and ended.elapsed_ms <= latest.elapsed_ms
        )

    def forget(self, pointers: Iterable[int]) -> None:
        """Forgets pointers: the writes made with them become visible."""
        self.pointers = self.pointers.without(pointers)
        for pointer in pointers:
            self._ended.pop(pointer, None)
        for watcher in self.watchers:
            watcher.were_forgotten(pointers)
