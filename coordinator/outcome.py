"""What became of a transaction, and the aborted pointers that are remembered for it."""

import enum
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from coordinator.errors import BadRequest
from coordinator.transaction import checked_pointer

# Eight bytes each. Above it the oldest are forgotten, with every outcome up to them.
MOST_ABORTS = 1_000_000


class Outcome(enum.Enum):
    """What became of what was written with a pointer."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_PROGRESS = "in progress"
    FORGOTTEN = "forgotten"


class Aborts:
    """Aborted pointers above `forgotten`, up to which nobody can tell any more.

    An aborted pointer is neither open nor invalid, as a committed one; so those few are
    kept, and all others that were given out have committed.
    """

    def __init__(
        self,
        pointers: Iterable[int] = (),
        *,
        forgotten: int = 0,
        most: int = MOST_ABORTS,
    ) -> None:
        self.forgotten = forgotten
        self._most = most
        self._sorted = array("q", sorted(pointers))

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Aborts):
            return NotImplemented
        return self.forgotten == other.forgotten and self._sorted == other._sorted

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Aborts: {len(self._sorted)} above {self.forgotten}>"

    def __contains__(self, pointer: int) -> bool:
        place = bisect_left(self._sorted, pointer)
        return place < len(self._sorted) and self._sorted[place] == pointer

    def add(self, pointers: Iterable[int]) -> None:
        """Remembers pointers, mostly greater than all others."""
        for pointer in pointers:
            if pointer > self.forgotten and pointer not in self:
                self._sorted.insert(bisect_right(self._sorted, pointer), pointer)
        if len(self._sorted) > self._most:
            # An eighth at once, so that this is rare.
            self.forget(self._sorted[len(self._sorted) - self._most * 7 // 8 - 1])

    def forget(self, last: int) -> None:
        """Forgets every outcome up to that pointer."""
        if last > self.forgotten:
            self.forgotten = last
            del self._sorted[: bisect_right(self._sorted, last)]

    def copy(self) -> "Aborts":
        """The same, to be changed by somebody else."""
        return Aborts(self._sorted, forgotten=self.forgotten, most=self._most)


def checked_written(tx: object) -> int:
    """A pointer that something may have been written with."""
    pointer = checked_pointer(tx)
    if not 0 <= pointer < 2**63:
        raise BadRequest(f"{pointer} is no pointer: those are from 0 to 2^63-1")
    return pointer
