"""Counts what happened to a queue within the last minute."""

from collections import deque

import attrs

WINDOW_S = 60


@attrs.define
class Second:
    """The counts of one second, with the time that items waited and were worked on."""

    at_s: int
    pushed: int = 0
    popped: int = 0
    first_popped: int = 0
    committed: int = 0
    waited_ms: int = 0
    worked_ms: int = 0


_COUNTED = tuple(name for name in attrs.fields_dict(Second) if name != "at_s")


class Meter:
    """The counts of the last minute, by second; each call comes under a lock."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque()
        self._since_ms: int | None = None

    def at(self, now_ms: int) -> Second:
        """Returns the counts of the present second, to be added to."""
        if self._since_ms is None:
            self._since_ms = now_ms
        now_s = now_ms // 1000
        if self._seconds and self._seconds[-1].at_s >= now_s:
            return self._seconds[-1]
        self._forget(now_s)
        self._seconds.append(Second(now_s))
        return self._seconds[-1]

    def _forget(self, now_s: int) -> None:
        while self._seconds and self._seconds[0].at_s <= now_s - WINDOW_S:
            self._seconds.popleft()

    def totals(self, now_ms: int) -> Second:
        """Adds up the last minute."""
        self._forget(now_ms // 1000)
        total = Second(now_ms // 1000)
        for second in self._seconds:
            for name in _COUNTED:
                setattr(total, name, getattr(total, name) + getattr(second, name))
        return total

    def covers_s(self, now_ms: int) -> float:
        """Returns the time that the counts are of: a minute, or less after a start."""
        if self._since_ms is None:
            return 1.0
        return min(max((now_ms - self._since_ms) / 1000, 1.0), float(WINDOW_S))
