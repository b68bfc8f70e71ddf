"""Looks at many things a bounded number at a time, each in its turn."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# What is remembered that much longer than it took costs a twentieth of the time.
REMEMBERED_TIMES = 20


class Budget:
    """How much one round may cost: looks, and rows that they read."""

    def __init__(self, *, looks: int, rows: int) -> None:
        self.looks = looks
        self.rows = rows

    def spend(self, rows: int) -> None:
        """A look was taken."""
        self.looks -= 1
        self.rows -= rows

    @property
    def is_spent(self) -> bool:
        """Whether the rest has to wait for the next round."""
        return self.looks <= 0 or self.rows <= 0


class Turns:
    """Goes round: a round begins behind what the last one came to."""

    def __init__(self) -> None:
        self._last: Any = None

    def of(self, things: Iterable[T]) -> Iterator[T]:
        """All of them; one is done when the next is asked for."""
        ordered: list[Any] = sorted(things)
        at = 0 if self._last is None else bisect_right(ordered, self._last)
        for thing in chain(ordered[at:], ordered[:at]):
            yield thing
            self._last = thing


class Remembered(Generic[T]):
    """A list that takes long to make is made so much less often."""

    def __init__(
        self, make: Callable[[], T], *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock_s = clock_s
        self._until_s = float("-inf")
        self._made: T | None = None

    def __call__(self) -> T:
        """As it is now, or was a moment ago."""
        began_s = self._clock_s()
        if self._made is None or began_s >= self._until_s:
            self._made = self._make()
            ended_s = self._clock_s()
            self._until_s = ended_s + REMEMBERED_TIMES * (ended_s - began_s)
        return self._made
