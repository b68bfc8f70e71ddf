"""Decides where to cut a topic into parts of about equal size; reads nothing."""

import math
from collections.abc import Callable, Iterable, Iterator

from txaware.model.messages import MessageId
from txaware.model.requests import MOST_CUTS, Wanted

# A part is made of so many grains, the unit in which sizes are known.
GRAINS_PER_PART = 8
MOST_MARKS = GRAINS_PER_PART * (MOST_CUTS + 1)

SizeOf = Callable[[int, int], int]
Narrow = Callable[[int, int], tuple[int, int] | None]


class Marks:
    """The ids where a cut is possible, and how many bytes begin at each.

    Neighbours are joined while they are smaller than a grain, and the grain grows when
    there are too many of them.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._grain_bytes = wanted.part_bytes / GRAINS_PER_PART
        self._ids: list[bytes] = []
        self._sizes: list[float] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, message_id: bytes, size_bytes: float) -> None:
        """Adds an id and the bytes up to the next; leaves out ids outside the range."""
        if not size_bytes or not self._wanted.start <= message_id < self._wanted.stop:
            return
        self._join(message_id, size_bytes)
        if len(self._ids) > MOST_MARKS:
            self._coarsen()

    def _join(self, message_id: bytes, size_bytes: float) -> None:
        if (
            self._ids
            and self._ids[-1] <= message_id
            and self._sizes[-1] + size_bytes <= self._grain_bytes
        ):
            self._sizes[-1] += size_bytes
        else:
            self._ids.append(message_id)
            self._sizes.append(size_bytes)

    def _coarsen(self) -> None:
        marks = self._sorted()
        self._grain_bytes = 2 * max(self._grain_bytes, sum(self._sizes) / MOST_MARKS)
        self._ids, self._sizes = [], []
        for message_id, size_bytes in marks:
            self._join(message_id, size_bytes)

    def _sorted(self) -> list[tuple[bytes, float]]:
        return sorted(zip(self._ids, self._sizes, strict=True))

    def cuts(self) -> list[MessageId]:
        """Returns the ids where parts begin, but for the first, in rising order.

        They are strictly between the ends. Each is at the mark that comes nearest to
        its share of the whole.
        """
        whole_bytes = sum(self._sizes)
        parts = min(math.ceil(whole_bytes / self._wanted.part_bytes), MOST_CUTS + 1)
        if parts <= 1:
            return []
        target_bytes = whole_bytes / parts
        found: list[MessageId] = []
        before_bytes, reached = 0.0, 0
        for message_id, size_bytes in self._sorted():
            # A cut goes to the mark that is nearer to the share: this one, or the next.
            share = int((before_bytes + size_bytes / 2) / target_bytes)
            last = found[-1] if found else self._wanted.start
            if share > reached and before_bytes and message_id > last:
                found.append(MessageId(message_id))
            reached, before_bytes = max(share, reached), before_bytes + size_bytes
        return found


def divided(
    start: int, stop: int, *, size_of: SizeOf, narrow: Narrow, grain_bytes: float
) -> Iterator[tuple[int, int]]:
    """Halves a range of keys until no piece is above a grain; yields (first, bytes).

    Keys are numbers here. Where a half is empty, `narrow` finds the first and the last
    row, or None where there are no rows. So a gap of years costs two look-ups.
    """
    waiting = [(start, stop, size_of(start, stop))]
    while waiting:
        start, stop, size_bytes = waiting.pop()
        if size_bytes <= grain_bytes or stop - start < 2:
            yield start, size_bytes
            continue
        middle = (start + stop) // 2
        left, right = size_of(start, middle), size_of(middle, stop)
        if not left or not right:
            rows = narrow(start, stop)
            if rows is None:
                continue
            start, last = rows
            if start == last:
                yield start, size_bytes
                continue
            stop, middle = last + 1, (start + last + 1) // 2
            left, right = size_of(start, middle), size_of(middle, stop)
        waiting += [(middle, stop, right), (start, middle, left)]


def folded(
    weights: Iterable[tuple[bytes, float]], grain_bytes: float
) -> Iterator[tuple[bytes, float]]:
    """Joins keys that follow one another until a grain is full."""
    first, joined_bytes = b"", 0.0
    for key, size_bytes in weights:
        if joined_bytes and joined_bytes + size_bytes > grain_bytes:
            yield first, joined_bytes
            joined_bytes = 0.0
        if not joined_bytes:
            first = key
        joined_bytes += size_bytes
    if joined_bytes:
        yield first, joined_bytes


def first_where(start: int, stop: int, holds: Callable[[int], bool]) -> int:
    """Returns the first number from which on `holds` is True, or `stop`."""
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start
