"""Cuts a topic into id ranges of about equal size, without reading all of it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby

import attrs

from txaware.model.interfaces import OrderedTable, Row
from txaware.model.messages import ID_BYTES, ROW_KEY_BYTES, MessageId
from txaware.model.requests import Wanted
from txaware.service.read.splits import (
    GRAINS_PER_PART,
    MOST_MARKS,
    Marks,
    SizeOf,
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
from txaware.store.interfaces import pieces
from txaware.store.keys import MESSAGE, PAYLOAD, POINTER_BYTES, payload_prefix
from txaware.store.packed_rows import first_key

# One call reads so much of the rows at most: those in no table file yet, and more.
READ_BYTES = 32 << 20
# The sizes that a store tells mean nothing for less than a few of its blocks.
LEAST_GRAIN_BYTES = 16 << 10
# So many samples are read, to correct the sizes that a store tells.
SAMPLES, SAMPLE_BYTES = 32, 64 << 10

Weight = tuple[bytes, float]


class TooMuch(Exception):
    """Raised when there is more than may be read; it never leaves this package."""


@attrs.frozen
class Stretch:
    """Rows with one prefix, from `start` to before `stop`: keys of one length.

    `row_key` is the key of the reference that they belong to. `attempts` are the ones
    that it names; None stands for all.
    """

    prefix: bytes
    start: bytes
    stop: bytes
    row_key: bytes = b""
    attempts: frozenset[bytes] | None = None

    def id_of(self, key: bytes) -> bytes:
        """Returns the id of the message in a row."""
        return (self.row_key + key).ljust(ID_BYTES, b"\0")


class Weighing:
    """Weighs the rows of one table for one call; reads at most `read_bytes`."""

    def __init__(self, table: OrderedTable, read_bytes: int = READ_BYTES) -> None:
        self._table = table
        self._left_bytes = read_bytes
        self._sampled_bytes = 0
        self._said_bytes = 0

    @property
    def left_bytes(self) -> int:
        """The bytes that may still be read; below 0 after too many were read."""
        return self._left_bytes

    def size_bytes(self, stretch: Stretch) -> int:
        """Returns about how many bytes rows have; the store tells without reading."""
        prefix = stretch.prefix
        return self._table.size_bytes(prefix + stretch.start, prefix + stretch.stop)

    def rows(self, stretch: Stretch) -> Iterator[tuple[bytes, bytes]]:
        """Yields all rows; raises `TooMuch` when this call may not read so many."""
        for rows, _ in self._pages(stretch):
            yield from rows

    def _pages(self, stretch: Stretch) -> Iterator[tuple[list[Row], list[int]]]:
        """Yields the same rows, some at a time, with the size of each."""
        for rows in pieces(
            self._table, stretch.prefix, start=stretch.start, stop=stretch.stop
        ):
            sizes = [len(key) + len(value) for key, value in rows]
            self._left_bytes -= sum(sizes)
            if self._left_bytes < 0:
                raise TooMuch
            yield rows, sizes

    def counted(self, stretch: Stretch) -> Iterator[Weight]:
        """Yields the key and size of every row; raises `TooMuch` as `rows` does."""
        for key, value in self.rows(stretch):
            yield key, weight_bytes(key, value, stretch.attempts)

    def estimated(
        self, stretch: Stretch, *, grain_bytes: float, samples: int
    ) -> Iterator[Weight]:
        """Yields keys and about how many bytes begin there, by samples, in grains."""
        bounds = self._narrow(stretch, *_numbers(stretch))
        if bounds is None:
            return
        first, stop = bounds[0], bounds[1] + 1
        size_of = self._sizes(stretch)
        # The rows written last are in no table file, and the store tells no size of
        # them: late rows, and rows that a transaction held until its commit.
        begin = first_where(first, stop, lambda key: size_of(first, key) > 0)
        end = first_where(begin, stop, lambda key: size_of(key, stop) == 0)
        yield from self._counted_some(_part(stretch, first, begin), grain_bytes)
        if begin < end:
            known = _part(stretch, begin, end)
            yield from self._known(known, grain_bytes=grain_bytes, samples=samples)
        yield from self._counted_some(_part(stretch, end, stop), grain_bytes)

    def _counted_some(self, stretch: Stretch, grain_bytes: float) -> Iterator[Weight]:
        """Yields counted weights of all attempts, as far as this call may read."""
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
        """Yields the weights that the store tells, corrected by samples.

        The store tells sizes of compressed rows, of deleted ones too, and of all
        attempts. The ratio to real sizes may differ from place to place.
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
        """Returns how many real bytes a stored byte stands for, here or so far."""
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
        """Returns the keys of the first and last row; None where there is none."""
        part, scan = _part(stretch, start, stop), self._table.scan
        first = scan(part.prefix, start=part.start, stop=part.stop, limit=1)
        last = first and scan(
            part.prefix, start=part.start, stop=part.stop, limit=1, reverse=True
        )
        if not first or not last:
            return None
        return _number(first[0][0]), _number(last[0][0])


def weight_bytes(key: bytes, value: bytes, attempts: frozenset[bytes] | None) -> int:
    """Returns the weight of a row; 0 where its attempt is not named."""
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


# A reference comes after its payloads: so much is read behind them, once and in all.
SEARCH_BYTES, SEARCHES_BYTES = 8 << 20, 64 << 20


@attrs.frozen
class Reference:
    """A row that stands for the payloads of its transaction, or of some attempts."""

    row_key: bytes
    pointer: int
    attempts: frozenset[bytes] | None


class ReferenceSearch:
    """Looks for references among many rows; reads at most `SEARCHES_BYTES`."""

    def __init__(self, table: OrderedTable, rows: Stretch) -> None:
        self._table = table
        self._rows = rows
        self._left_bytes = SEARCHES_BYTES

    def row_key(self, pointer: int, last_key: bytes) -> bytes | None:
        """Returns the key of a pointer's reference, behind its last stored row."""
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


# Anything smaller is counted row by row. The store tells sizes of compressed rows, so
# more than it tells may be there.
COUNTED_BYTES = 8 << 20
# So many references are weighed one by one.
MOST_REFERENCES = 10_000
_FIRST, _END = bytes(ROW_KEY_BYTES), b"\xff" * ROW_KEY_BYTES


class TopicSplits:
    """The cuts of one topic for one call.

    A small topic is counted. For a large one the store tells the sizes of ranges, and
    halving them again and again leads to the bytes. Rows that transactions still hold
    in memory are left out.
    """

    def __init__(self, table: OrderedTable, prefix: bytes, wanted: Wanted) -> None:
        self._table = table
        self._prefix = prefix
        self._wanted = wanted
        self._marks = Marks(wanted)
        self._weighing = Weighing(table)
        # The first key above all rows that may hold an id before the end.
        stop = wanted.stop
        last = stop.row_key if not any(stop.payload_key) else _after(stop.row_key)
        self._rows = Stretch(MESSAGE + prefix, wanted.start.row_key, last)

    def ids(self) -> list[MessageId]:
        """Returns the ids where parts begin, but for the first."""
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
        """Counts message rows, returns references; None where rows are too many."""
        if self._weighing.size_bytes(self._rows) > COUNTED_BYTES:
            return None
        references, counting = [], Weighing(self._table, COUNTED_BYTES)
        try:
            for key, value in counting.rows(self._rows):
                if is_reference(value):
                    references.append(reference(key, value))
                else:
                    first = max(self._rows.start, first_key(key, value))
                    self._marks.add(self._rows.id_of(first), len(key) + len(value))
        except TooMuch:
            return None
        return references

    def _stretch(self, reference: Reference) -> Stretch:
        """Returns the payload rows of a reference that lie between both ends."""
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
        """Counts all rows; returns False, and counts none, where they are too many."""
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
            self._wanted.part_bytes / GRAINS_PER_PART,
            whole_bytes / MOST_MARKS,
            LEAST_GRAIN_BYTES,
        )

    def _add(self, stretch: Stretch, weights: Iterable[Weight]) -> None:
        for key, size_bytes in weights:
            self._marks.add(stretch.id_of(key), size_bytes)

    def _estimate_all_payloads(self, known: dict[int, bytes] | None = None) -> None:
        """Estimates the payloads of all transactions, or of `known` references only.

        Only large transactions are cut inside. For others, and where no reference is
        found, the bytes count at the time of their write.
        """
        everything = Stretch(
            PAYLOAD + self._prefix, bytes(POINTER_BYTES) + _FIRST, b"\xff" * 18
        )
        whole_bytes = self._weighing.size_bytes(everything)
        weights = self._weighing.estimated(
            everything, grain_bytes=self._grain_bytes(whole_bytes), samples=SAMPLES
        )
        search = ReferenceSearch(self._table, self._rows)
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
        """Yields the same weights at the keys of real rows, not at numbers between."""
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
