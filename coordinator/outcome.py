"""The outcome of a transaction, and the aborted pointers that are kept to tell it."""

import enum
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import attrs

from coordinator.errors import BadRequest
from coordinator.transaction import checked_pointer

# Each takes eight bytes. Above this count the oldest aborts are forgotten, and with
# them every outcome up to their pointers.
MOST_ABORTS = 1_000_000


class Outcome(enum.Enum):
    """The outcome of the writes that were made with a pointer."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_PROGRESS = "in progress"
    FORGOTTEN = "forgotten"


@attrs.frozen
class KnownOutcome:
    """The outcome of a pointer, and the id of the life that gave it out.

    The id is empty for lives of earlier versions, and where the coordinator has none.
    """

    outcome: Outcome
    life: str

    def fields(self) -> dict[str, Any]:
        """Returns it as JSON has it."""
        return {"outcome": self.outcome.value, "life": self.life}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Reads its JSON form; an older server tells no life."""
        return cls(Outcome(fields["outcome"]), str(fields.get("life", "")))


class Aborts:
    """The aborted pointers above `forgotten`; outcomes up to there are unknown.

    An aborted pointer is neither open nor invalid, just as a committed one. Aborts are
    few, so they are kept. All other pointers that were given out have committed.
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
        """Remembers pointers; it is fast when they are greater than all others."""
        for pointer in pointers:
            if pointer > self.forgotten and pointer not in self:
                self._sorted.insert(bisect_right(self._sorted, pointer), pointer)
        if len(self._sorted) > self._most:
            # An eighth is forgotten at once, so that this happens rarely.
            self.forget(self._sorted[len(self._sorted) - self._most * 7 // 8 - 1])

    def forget(self, last: int) -> None:
        """Forgets every outcome up to that pointer."""
        if last > self.forgotten:
            self.forgotten = last
            del self._sorted[: bisect_right(self._sorted, last)]

    def copy(self) -> "Aborts":
        """Returns a copy that may be changed on its own."""
        return Aborts(self._sorted, forgotten=self.forgotten, most=self._most)


def checked_written(tx: object) -> int:
    """Returns the pointer of `tx`; raises `BadRequest` if nothing can have that one."""
    pointer = checked_pointer(tx)
    if not 0 <= pointer < 2**63:
        raise BadRequest(f"{pointer} is no pointer: those are from 0 to 2^63-1")
    return pointer
