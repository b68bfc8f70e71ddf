"""Decides where to cut a topic into parts of about equal size; reads nothing."""

import math
from collections.abc import Callable, Iterable, Iterator

import attrs

from txaware.errors import BadRequest
from txaware.messages import ID_BYTES, MessageId

# Beyond so many cuts the parts are larger than asked for.
MOST_CUTS = 10_000
# Sizes are known a good deal finer than the parts that are made of them.
GRAINS_PER_PART = 8
MOST_MARKS = GRAINS_PER_PART * (MOST_CUTS + 1)
MOST_PART_BYTES = 2**63 - 1

SizeOf = Callable[[int, int], int]
Narrow = Callable[[int, int], tuple[int, int] | None]


@attrs.frozen
class Wanted:
    """What to cut, from `start` to before `stop`, and about how large parts are."""

    start: MessageId
    stop: MessageId
    part_bytes: int

    @property
    def grain_bytes(self) -> float:
        """How much may be between two places where a cut is possible."""
        return self.part_bytes / GRAINS_PER_PART

    @property
    def is_empty(self) -> bool:
        """Whether no id is strictly between both ends."""
        return self.start >= self.stop


def checked_wanted(start: object, stop: object, part_bytes: object) -> Wanted:
    """Two ids, and a whole number of bytes above 0."""
    if (
        isinstance(part_bytes, bool)
        or not isinstance(part_bytes, int)
        or not 1 <= part_bytes <= MOST_PART_BYTES
    ):
        raise BadRequest(
            f"part_bytes is a whole number from 1 to {MOST_PART_BYTES}, not "
            f"{part_bytes!r:.100}"
        )
    return Wanted(_checked_end(start, "start"), _checked_end(stop, "stop"), part_bytes)


def _checked_end(end: object, name: str) -> MessageId:
    if not isinstance(end, MessageId) or len(end) != ID_BYTES:
        raise BadRequest(
            f"{name} is a MessageId, not {end!r:.100}; MessageId.of makes one of a "
            f"time, and MessageId.parse reads text"
        )
    return end


class Marks:
    """How many bytes begin at which ids: the places where a cut is possible.

    Neighbours are joined while they are smaller than a grain, and the grain grows when
    there are too many of them.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._grain_bytes = wanted.grain_bytes
        self._ids: list[bytes] = []
        self._sizes: list[float] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, message_id: bytes, size_bytes: float) -> None:
        """So many bytes begin here, up to the next mark; ids outside are left out."""
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
        """Where parts begin, but for the first: rising, and strictly between the ends.

        Each is at the mark that comes nearest to its share of the whole.
        """
        whole_bytes = sum(self._sizes)
        parts = min(math.ceil(whole_bytes / self._wanted.part_bytes), MOST_CUTS + 1)
        if parts <= 1:
            return []
        target_bytes = whole_bytes / parts
        found: list[MessageId] = []
        before_bytes, reached = 0.0, 0
        for message_id, size_bytes in self._sorted():
            # What comes next ends nearer to the share than this mark, or does not.
            share = int((before_bytes + size_bytes / 2) / target_bytes)
            last = found[-1] if found else self._wanted.start
            if share > reached and before_bytes and message_id > last:
                found.append(MessageId(message_id))
            reached, before_bytes = max(share, reached), before_bytes + size_bytes
        return found


def divided(
    start: int, stop: int, *, size_of: SizeOf, narrow: Narrow, grain_bytes: float
) -> Iterator[tuple[int, int]]:
    """Cuts a range of keys in halves until none has more than a grain: (first, bytes).

    Keys are numbers here. Where a half is empty, `narrow` looks for the first and the
    last row, so that a gap of years costs two look-ups; None says that there are none.
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
    """The first number for which it holds, and for all behind it; or `stop`."""
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start
