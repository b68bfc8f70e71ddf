"""Cuts a topic into id ranges of about equal size, without reading all of it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from txaware.interfaces import OrderedTable
from txaware.keys import MESSAGE, PAYLOAD, POINTER_BYTES, payload_prefix
from txaware.messages import ROW_KEY_BYTES, MessageId
from txaware.service.read.splits import MOST_MARKS, Marks, Wanted
from txaware.service.referring import Reference, Search, reference
from txaware.service.weighing import (
    LEAST_GRAIN_BYTES,
    SAMPLES,
    Stretch,
    TooMuch,
    Weighing,
    Weight,
)
from txaware.store.columns import is_reference

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
