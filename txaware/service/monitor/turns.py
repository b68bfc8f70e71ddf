"""Looks at many things a bounded number at a time, each in its turn."""

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

from txaware.errors import ShardAway, TopicNotFound, TxAwareError, Unavailable

T = TypeVar("T")

# What is remembered that much longer than it took costs a twentieth of the time.
REMEMBERED_TIMES = 20

log = logging.getLogger(__name__)


class Budget:
    """The cost that one round may have: looks, and rows that they read."""

    def __init__(self, *, looks: int, rows: int) -> None:
        self.looks = looks
        self.rows = rows

    def spend(self, rows: int) -> None:
        """Takes off one look and its rows."""
        self.looks -= 1
        self.rows -= rows

    @property
    def is_spent(self) -> bool:
        """True when the rest has to wait for the next round."""
        return self.looks <= 0 or self.rows <= 0


class Turns:
    """The order of rounds: each begins behind the last thing of the one before."""

    def __init__(self) -> None:
        self._last: Any = None

    def of(self, things: Iterable[T]) -> Iterator[T]:
        """Yields all things; one counts as done when the next is asked for."""
        ordered: list[Any] = sorted(things)
        at = 0 if self._last is None else bisect_right(ordered, self._last)
        for thing in chain(ordered[at:], ordered[:at]):
            yield thing
            self._last = thing


class Remembered(Generic[T]):
    """A value that is made less often the longer it takes to make."""

    def __init__(
        self, make: Callable[[], T], *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock_s = clock_s
        self._until_s = float("-inf")
        self._made: T | None = None

    @property
    def last(self) -> T | None:
        """The value made last, however long ago; None where there is none yet."""
        return self._made

    def __call__(self) -> T:
        """Returns the value as it is now, or was a moment ago."""
        began_s = self._clock_s()
        if self._made is None or began_s >= self._until_s:
            self._made = self._make()
            ended_s = self._clock_s()
            self._until_s = ended_s + REMEMBERED_TIMES * (ended_s - began_s)
        return self._made


class Failures:
    """Leaves out what cannot be read in one look at many things, and nothing else.

    Where reads wait for a network (`reads_wait`), the store is not asked again in this
    look once it is away: each read would wait for the same time-out. The log says what
    is left out, but for what was in the look `before`.
    """

    def __init__(self, *, reads_wait: bool, before: Container[str] = ()) -> None:
        self.parts: dict[str, str] = {}
        self._logged_before = before
        self._reads_wait = reads_wait
        self._is_away = False

    def attempt(self, part: str, read: Callable[[], T], otherwise: T) -> T:
        """Returns the answer of `read`, or `otherwise` where it fails.

        `TopicNotFound` is an answer, and goes on to the caller.
        """
        if self._is_away:
            self.parts.setdefault(part, "not asked again: the store is away")
            return otherwise
        try:
            return read()
        except TopicNotFound:
            raise
        except ShardAway:  # its own server tells of it
            return otherwise
        except Exception as error:
            if part not in self.parts and part not in self._logged_before:
                trace = None if isinstance(error, TxAwareError) else error
                log.warning("%s: cannot be looked at: %s", part, error, exc_info=trace)
            self.parts.setdefault(part, str(error))
            self._is_away = self._reads_wait and isinstance(error, Unavailable)
            return otherwise
