"""Tells how many bytes lie where in a table, by counting or from about what it says."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import attrs

from txaware.interfaces import OrderedTable, Row
from txaware.messages import ID_BYTES
from txaware.service.read.splits import SizeOf, divided, first_where, folded
from txaware.store.columns import ATTEMPT, decode
from txaware.store.ranges import pieces

# What is read of rows in one call, at most: what is in no table file yet, and more.
READ_BYTES = 32 << 20
# What a store says of less than a few of its blocks means nothing.
LEAST_GRAIN_BYTES = 16 << 10
# So many samples tell what the sizes that a store says are worth.
SAMPLES, SAMPLE_BYTES = 32, 64 << 10

Weight = tuple[bytes, float]


class TooMuch(Exception):
    """There is more to read than may be read; it never leaves this package."""


@attrs.frozen
class Stretch:
    """Rows with one prefix, from `start` to before `stop`: keys of one length.

    `row_key` is that of the reference which they belong to, and `attempts` those that
    it names; None is all of them.
    """

    prefix: bytes
    start: bytes
    stop: bytes
    row_key: bytes = b""
    attempts: frozenset[bytes] | None = None

    def id_of(self, key: bytes) -> bytes:
        """The id of what a row holds."""
        return (self.row_key + key).ljust(ID_BYTES, b"\0")


class Weighing:
    """Weighs the rows of one table for one call, which reads so many bytes at most."""

    def __init__(self, table: OrderedTable, read_bytes: int = READ_BYTES) -> None:
        self._table = table
        self._left_bytes = read_bytes
        self._sampled_bytes = 0
        self._said_bytes = 0

    @property
    def left_bytes(self) -> int:
        """How much may still be read; below 0 where it was too much."""
        return self._left_bytes

    def size_bytes(self, stretch: Stretch) -> int:
        """About how many bytes, as far as the store knows without reading."""
        prefix = stretch.prefix
        return self._table.size_bytes(prefix + stretch.start, prefix + stretch.stop)

    def rows(self, stretch: Stretch) -> Iterator[tuple[bytes, bytes]]:
        """All rows; `TooMuch` when they are more than this call may read."""
        for rows, _ in self._pages(stretch):
            yield from rows

    def _pages(self, stretch: Stretch) -> Iterator[tuple[list[Row], list[int]]]:
        """The same, some rows at a time, with the size of each."""
        for rows in pieces(
            self._table, stretch.prefix, start=stretch.start, stop=stretch.stop
        ):
            sizes = [len(key) + len(value) for key, value in rows]
            self._left_bytes -= sum(sizes)
            if self._left_bytes < 0:
                raise TooMuch
            yield rows, sizes

    def counted(self, stretch: Stretch) -> Iterator[Weight]:
        """Every row with its size; `TooMuch` as in `rows`."""
        for key, value in self.rows(stretch):
            yield key, weight_bytes(key, value, stretch.attempts)

    def estimated(
        self, stretch: Stretch, *, grain_bytes: float, samples: int
    ) -> Iterator[Weight]:
        """Keys, and about how many bytes begin there, in grains; reads the samples."""
        bounds = self._narrow(stretch, *_numbers(stretch))
        if bounds is None:
            return
        first, stop = bounds[0], bounds[1] + 1
        size_of = self._sizes(stretch)
        # What was written last is in no table file: late rows, and those that their
        # transaction held until its commit.
        begin = first_where(first, stop, lambda key: size_of(first, key) > 0)
        end = first_where(begin, stop, lambda key: size_of(key, stop) == 0)
        yield from self._counted_some(_part(stretch, first, begin), grain_bytes)
        if begin < end:
            known = _part(stretch, begin, end)
            yield from self._known(known, grain_bytes=grain_bytes, samples=samples)
        yield from self._counted_some(_part(stretch, end, stop), grain_bytes)

    def _counted_some(self, stretch: Stretch, grain_bytes: float) -> Iterator[Weight]:
        """As far as this call may read; of all attempts, as what the store says."""
        with suppress(TooMuch):
            yield from folded(self._weighed(stretch, grain_bytes), grain_bytes)

    def _weighed(self, stretch: Stretch, grain_bytes: float) -> Iterator[Weight]:
        for rows, sizes in self._pages(stretch):
            if sum(sizes) <= grain_bytes:
                yield rows[0][0], sum(sizes)
            else:
                yield from zip([key for key, _ in rows], sizes, strict=True)

    def _known(
        self, stretch: Stretch, *, grain_bytes: float, samples: int
    ) -> Iterator[Weight]:
        """What the store knows the size of, set right by the samples.

        Its sizes are those of compressed rows, deleted ones included, and of all
        attempts; what that comes to may differ from place to place.
        """
        divide = partial(
            divided, size_of=self._sizes(stretch), narrow=partial(self._narrow, stretch)
        )
        start, stop = _numbers(stretch)
        coarse_bytes = self.size_bytes(stretch) / samples if samples else float("inf")
        least_bytes = max(coarse_bytes, LEAST_GRAIN_BYTES)
        begins = [first for first, _ in divide(start, stop, grain_bytes=least_bytes)]
        for first, end in zip(begins, [*begins[1:], stop], strict=True):
            ratio = self._sampled(_part(stretch, first, end), has_sample=samples > 0)
            if not ratio:
                continue
            grain = max(grain_bytes / ratio, LEAST_GRAIN_BYTES)
            for key, size_bytes in divide(first, end, grain_bytes=grain):
                yield _key(stretch, key), size_bytes * ratio

    def _sampled(self, stretch: Stretch, *, has_sample: bool) -> float:
        """How many bytes a byte of the store's stands for, here or elsewhere."""
        if has_sample:
            prefix, start, stop = stretch.prefix, stretch.start, stretch.stop
            rows = self._table.scan(
                prefix, start=start, stop=stop, max_bytes=SAMPLE_BYTES
            )
            found = rows and attrs.evolve(
                stretch, start=rows[0][0], stop=rows[-1][0] + b"\0"
            )
            said_bytes = self.size_bytes(found) if found else 0
            if said_bytes:
                attempts = stretch.attempts
                weights = [weight_bytes(key, value, attempts) for key, value in rows]
                self._sampled_bytes += sum(weights)
                self._said_bytes += said_bytes
                return sum(weights) / said_bytes
        return self._sampled_bytes / self._said_bytes if self._said_bytes else 1.0

    def _sizes(self, stretch: Stretch) -> SizeOf:
        width, prefix = len(stretch.start), stretch.prefix
        size_bytes = self._table.size_bytes

        def size_of(start: int, stop: int) -> int:
            return size_bytes(
                prefix + start.to_bytes(width, "big"),
                prefix + stop.to_bytes(width, "big"),
            )

        return size_of

    def _narrow(
        self, stretch: Stretch, start: int, stop: int
    ) -> tuple[int, int] | None:
        """The keys of the first and the last row."""
        part, scan = _part(stretch, start, stop), self._table.scan
        first = scan(part.prefix, start=part.start, stop=part.stop, limit=1)
        last = first and scan(
            part.prefix, start=part.start, stop=part.stop, limit=1, reverse=True
        )
        if not first or not last:
            return None
        return _number(first[0][0]), _number(last[0][0])


def weight_bytes(key: bytes, value: bytes, attempts: frozenset[bytes] | None) -> int:
    """What a row counts; nothing where its attempt is not named."""
    if attempts is not None and decode(value).more.get(ATTEMPT, b"") not in attempts:
        return 0
    return len(key) + len(value)


def _number(key: bytes) -> int:
    return int.from_bytes(key, "big")


def _key(stretch: Stretch, number: int) -> bytes:
    return number.to_bytes(len(stretch.start), "big")


def _numbers(stretch: Stretch) -> tuple[int, int]:
    return _number(stretch.start), _number(stretch.stop)


def _part(stretch: Stretch, start: int, stop: int) -> Stretch:
    return attrs.evolve(stretch, start=_key(stretch, start), stop=_key(stretch, stop))
