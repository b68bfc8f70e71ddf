"""Sorted write pointers and ranges of them, shared by snapshots, found by bisection."""

import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Self, cast, overload

POINTER_BYTES = 8
_SWAP = sys.byteorder == "little"
FEW = 16


class Pointers(Sequence[int]):
    """Ascending write pointers that never change, in eight bytes each.

    An update returns a new object. So all snapshots share one object as long as nothing
    changes, and its encoded form is made once.
    """

    __slots__ = ("_encoded", "_sorted")

    def __init__(self, pointers: Iterable[int] = ()) -> None:
        self._sorted = array("q", sorted(pointers))
        self._encoded: bytes | None = None

    @classmethod
    def _adopt(cls, ascending: "array[int]") -> Self:
        pointers = cls.__new__(cls)
        pointers._sorted = ascending
        pointers._encoded = None
        return pointers

    @classmethod
    def from_bytes(cls, encoded: bytes | memoryview) -> Self:
        """Reads big-endian pointers, taken to be ascending as Tephra takes them."""
        ascending = array("q")
        ascending.frombytes(encoded)
        if _SWAP:
            ascending.byteswap()
        return cls._adopt(ascending)

    def to_bytes(self) -> bytes:
        """Returns the pointers in big-endian order, eight bytes each."""
        if self._encoded is None:
            swapped = self._sorted[:]
            if _SWAP:
                swapped.byteswap()
            self._encoded = swapped.tobytes()
        return self._encoded

    def _with(self, ascending: "array[int]") -> Self:
        """Returns an object of the same kind that lists `ascending` instead."""
        pointers = self.__class__.__new__(self.__class__)
        pointers._sorted = ascending
        pointers._encoded = None
        return pointers

    def appended(self, pointer: int) -> Self:
        """Returns these and one more, which must be greater than all of them."""
        ascending = self._sorted[:]
        ascending.append(pointer)
        return self._with(ascending)

    def added(self, pointers: Iterable[int]) -> Self:
        """Returns these and the given ones, each once."""
        new = sorted({pointer for pointer in pointers if pointer not in self})
        if not new:
            return self
        ascending = self._sorted[:]
        if len(new) > FEW and ascending and new[0] < ascending[-1]:
            return self._with(array("q", merge(ascending, new)))
        for pointer in new:
            insort(ascending, pointer)
        return self._with(ascending)

    def removed(self, pointer: int) -> Self:
        """Returns these without the given one."""
        ascending = self._sorted
        place = bisect_left(ascending, pointer)
        if place == len(ascending) or ascending[place] != pointer:
            return self
        ascending = ascending[:]
        del ascending[place]
        return self._with(ascending)

    def without(self, pointers: Iterable[int]) -> Self:
        """Returns these without any of the given ones."""
        gone = {pointer for pointer in pointers if pointer in self}
        if len(gone) > FEW:
            return self._with(array("q", [p for p in self._sorted if p not in gone]))
        remaining = self
        for pointer in gone:
            remaining = remaining.removed(pointer)
        return remaining

    def least(self, none: int) -> int:
        """Returns the least pointer; `none` if there is none."""
        return self._sorted[0] if self._sorted else none

    def place(self, pointer: int) -> int:
        """Counts the pointers that are below `pointer`."""
        return bisect_left(self._sorted, pointer)

    def any_between(self, first: int, last: int) -> bool:
        """Tells whether one of them lies from `first` to `last`."""
        place = bisect_left(self._sorted, first)
        return place < len(self._sorted) and self._sorted[place] <= last

    def __contains__(self, pointer: object) -> bool:
        ascending: array[int] = self._sorted
        if not ascending:
            return False
        wanted: int = pointer  # type: ignore[assignment]
        place = bisect_left(ascending, wanted)
        return place < len(ascending) and ascending[place] == wanted

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sorted)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> int | Self:
        if isinstance(index, slice):
            return type(self)(self._sorted[index])
        return self._sorted[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Pointers):
            return self._sorted == other._sorted
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        if len(self) <= 8:
            return f"Pointers({list(self)})"
        return f"Pointers({len(self)} from {self[0]} to {self[-1]})"


class Ranges:
    """Ranges of pointers, both ends included, that do not overlap."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        ascending = sorted(ranges)
        self._firsts = [first for first, _ in ascending]
        self._lasts = [last for _, last in ascending]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def any_between(self, first: int, last: int) -> bool:
        """Tells whether a pointer of them lies from `first` to `last`."""
        place = bisect_right(self._firsts, last)
        return place > 0 and first <= self._lasts[place - 1]

    def __contains__(self, pointer: object) -> bool:
        wanted = cast(int, pointer)
        place = bisect_right(self._firsts, wanted)
        return place > 0 and wanted <= self._lasts[place - 1]


NO_RANGES = Ranges()


class PointersAndRanges(Pointers):
    """Pointers, and whole ranges that only `in` and `any_between` look at.

    The pointers in the ranges are not listed, counted or encoded: they are far too
    many for that.
    """

    __slots__ = ("_ranges",)

    def __init__(
        self, pointers: Iterable[int] = (), ranges: Ranges = NO_RANGES
    ) -> None:
        super().__init__(pointers)
        self._ranges = ranges

    def _with(self, ascending: "array[int]") -> Self:
        pointers = super()._with(ascending)
        pointers._ranges = self._ranges
        return pointers

    def any_between(self, first: int, last: int) -> bool:
        """Tells whether one of them, or of the ranges, lies from `first` to `last`."""
        listed = super().any_between(first, last)
        return listed or self._ranges.any_between(first, last)

    def __contains__(self, pointer: object) -> bool:
        return super().__contains__(pointer) or pointer in self._ranges


NO_POINTERS = Pointers()


def as_pointers(pointers: Iterable[int]) -> Pointers:
    """Returns the pointers as `Pointers`, without a copy if they are that already."""
    if pointers.__class__ is Pointers:  # nearly always, and it takes no call
        return pointers
    return pointers if isinstance(pointers, Pointers) else Pointers(pointers)
