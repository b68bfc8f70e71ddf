"""Cuts a topic into id ranges of about equal size, without reading all of it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby

import attrs

from txaware.interfaces import OrderedTable, Row
from txaware.keys import MESSAGE, PAYLOAD, POINTER_BYTES, payload_prefix
from txaware.messages import ID_BYTES, ROW_KEY_BYTES, MessageId
from txaware.service.read.splits import (
    MOST_MARKS,
    Marks,
    SizeOf,
    Wanted,
    divided,
    first_where,
    folded,
)
from txaware.store.columns import (
    ATTEMPT,
    RECEIPTS,
    decode,
    decode_receipts,
    is_reference,
)
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


# A reference is published after its payloads, and looked for so far behind them.
SEARCH_BYTES, SEARCHES_BYTES = 8 << 20, 64 << 20


@attrs.frozen
class Reference:
    """A row that stands for what its transaction stored, or some attempts of it."""

    row_key: bytes
    pointer: int
    attempts: frozenset[bytes] | None


class Search:
    """Looks for references among many rows, so many bytes of them at most."""

    def __init__(self, table: OrderedTable, rows: Stretch) -> None:
        self._table = table
        self._rows = rows
        self._left_bytes = SEARCHES_BYTES

    def row_key(self, pointer: int, last_key: bytes) -> bytes | None:
        """The reference of a pointer, behind the last row that was stored for it."""
        start = max(self._rows.start, last_key[:8] + bytes(2))
        limit_bytes = min(SEARCH_BYTES, self._left_bytes)
        weighing = Weighing(self._table, limit_bytes)
        try:
            for key, value in weighing.rows(attrs.evolve(self._rows, start=start)):
                if is_reference(value) and reference(key, value).pointer == pointer:
                    return key
        except TooMuch:
            return None
        finally:
            self._left_bytes -= limit_bytes - max(0, weighing.left_bytes)
        return None


def reference(key: bytes, value: bytes) -> Reference:
    columns = decode(value)
    receipts = columns.more.get(RECEIPTS)
    return Reference(
        key,
        abs(columns.pointer or 0),
        None if receipts is None else frozenset(decode_receipts(receipts)),
    )


# What is smaller is counted row by row; the store tells sizes of compressed rows, so
# that more may turn out to be there.
COUNTED_BYTES = 8 << 20
# So many references are weighed one by one.
MOST_REFERENCES = 10_000
_FIRST, _END = bytes(ROW_KEY_BYTES), b"\xff" * ROW_KEY_BYTES


class Splits:
    """The cuts of one topic for one call.

    What is small is counted. Of what is large the store tells the sizes of ranges, and
    halves of halves lead to where the bytes are. What transactions still hold in memory
    is left out.
    """

    def __init__(self, table: OrderedTable, prefix: bytes, wanted: Wanted) -> None:
        self._table = table
        self._prefix = prefix
        self._wanted = wanted
        self._marks = Marks(wanted)
        self._weighing = Weighing(table)
        # Above all keys that may hold an id before the end.
        stop = wanted.stop
        last = stop.row_key if not any(stop.payload_key) else _after(stop.row_key)
        self._rows = Stretch(MESSAGE + prefix, wanted.start.row_key, last)

    def ids(self) -> list[MessageId]:
        """Where parts begin, but for the first."""
        if self._wanted.is_empty:
            return []
        references = self._count_messages()
        if references is None:
            self._marks = Marks(self._wanted)
            self._estimate([self._rows])
            self._estimate_all_payloads()
        elif len(references) > MOST_REFERENCES:
            self._estimate_all_payloads({r.pointer: r.row_key for r in references})
        else:
            self._weigh_payloads([self._stretch(one) for one in references])
        return self._marks.cuts()

    def _count_messages(self) -> list[Reference] | None:
        """Counts message rows and answers references; None where they are too many."""
        if self._weighing.size_bytes(self._rows) > COUNTED_BYTES:
            return None
        references, counting = [], Weighing(self._table, COUNTED_BYTES)
        try:
            for key, value in counting.rows(self._rows):
                if is_reference(value):
                    references.append(reference(key, value))
                else:
                    self._marks.add(self._rows.id_of(key), len(key) + len(value))
        except TooMuch:
            return None
        return references

    def _stretch(self, reference: Reference) -> Stretch:
        """Its payload rows, as far as they are between both ends."""
        key, start, stop = reference.row_key, self._wanted.start, self._wanted.stop
        return Stretch(
            payload_prefix(self._prefix, reference.pointer),
            start.payload_key if key == start.row_key else _FIRST,
            stop.payload_key if key == stop.row_key else _END,
            key,
            reference.attempts,
        )

    def _weigh_payloads(self, stretches: Sequence[Stretch]) -> None:
        if not self._count(stretches):
            self._estimate(stretches)

    def _count(self, stretches: Sequence[Stretch]) -> bool:
        """Counts all rows; False, and none counted, where they are too many."""
        if sum(map(self._weighing.size_bytes, stretches)) > COUNTED_BYTES:
            return False
        counting = Weighing(self._table, COUNTED_BYTES)
        try:
            counted = [list(counting.counted(one)) for one in stretches]
        except TooMuch:
            return False
        for stretch, weights in zip(stretches, counted, strict=True):
            self._add(stretch, weights)
        return True

    def _estimate(self, stretches: Sequence[Stretch]) -> None:
        sizes = [self._weighing.size_bytes(stretch) for stretch in stretches]
        whole_bytes = sum(sizes) or 1
        grain_bytes, step = self._grain_bytes(whole_bytes), len(stretches) // SAMPLES
        for at, (stretch, size_bytes) in enumerate(zip(stretches, sizes, strict=True)):
            least = 1 if at % (step + 1) == 0 else 0
            samples = max(least, SAMPLES * size_bytes // whole_bytes)
            weights = self._weighing.estimated(
                stretch, grain_bytes=grain_bytes, samples=samples
            )
            self._add(stretch, weights)

    def _grain_bytes(self, whole_bytes: int) -> float:
        return max(
            self._wanted.grain_bytes, whole_bytes / MOST_MARKS, LEAST_GRAIN_BYTES
        )

    def _add(self, stretch: Stretch, weights: Iterable[Weight]) -> None:
        for key, size_bytes in weights:
            self._marks.add(stretch.id_of(key), size_bytes)

    def _estimate_all_payloads(self, known: dict[int, bytes] | None = None) -> None:
        """All that the topic's transactions stored, or those of `known` references.

        Only the large ones are cut inside; of others, and where the reference is not
        found, the bytes count at the time of their write.
        """
        everything = Stretch(
            PAYLOAD + self._prefix, bytes(POINTER_BYTES) + _FIRST, b"\xff" * 18
        )
        whole_bytes = self._weighing.size_bytes(everything)
        weights = self._weighing.estimated(
            everything, grain_bytes=self._grain_bytes(whole_bytes), samples=SAMPLES
        )
        search = Search(self._table, self._rows)
        for pointer, group in groupby(self._real(weights), lambda one: one[0][:8]):
            found = [(key[POINTER_BYTES:], size_bytes) for key, size_bytes in group]
            number, row_key = int.from_bytes(pointer, "big"), None
            if known is not None:
                if number not in known:
                    continue
                row_key = known[number]
            elif _sum(found) >= self._wanted.part_bytes / 2:
                row_key = search.row_key(number, self._last_key(number))
            for key, size_bytes in found:
                at = key[:8] + bytes(12) if row_key is None else row_key + key
                self._marks.add(at, size_bytes)

    def _real(self, weights: Iterable[Weight]) -> Iterator[Weight]:
        """The same, with the keys of rows in the place of numbers between them."""
        prefix = PAYLOAD + self._prefix
        for key, size_bytes in weights:
            rows = size_bytes and self._table.scan(prefix, start=key, limit=1)
            if rows:
                yield rows[0][0], size_bytes

    def _last_key(self, pointer: int) -> bytes:
        prefix = payload_prefix(self._prefix, pointer)
        rows = self._table.scan(prefix, limit=1, reverse=True)
        return rows[0][0] if rows else _FIRST


def _sum(weights: Iterable[Weight]) -> float:
    return sum([size_bytes for _, size_bytes in weights])


def _after(key: bytes) -> bytes:
    number = int.from_bytes(key, "big") + 1
    return min(number, (1 << 80) - 1).to_bytes(ROW_KEY_BYTES, "big")
