"""Time-outs: which there may be, and the time that they count."""

import threading
import time
from collections.abc import Callable

from coordinator.errors import BadRequest

LONGEST_TIMEOUT_S = 2**31 - 1

ClockMs = Callable[[], int]


def system_clock_ms() -> int:
    """The system's clock, in ms since the epoch; it may be set, and jump."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Time that passes, in ms since some moment, whatever the clock is set to."""
    return time.monotonic_ns() // 1_000_000


class StepsForward:
    """Time that passes by a clock of the caller's: nothing while it is set back."""

    def __init__(self, clock_ms: ClockMs) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._seen_ms = self._passed_ms = clock_ms()

    def __call__(self) -> int:
        now_ms = self._clock_ms()
        with self._lock:
            if now_ms > self._seen_ms:
                self._passed_ms += now_ms - self._seen_ms
            self._seen_ms = now_ms
            return self._passed_ms


def elapsed_of(clock_ms: ClockMs) -> ClockMs:
    """Returns the time that time-outs count where that clock gives the ids.

    A clock of the caller's gives both where it has a method `elapsed_ms`; otherwise its
    steps forward count.
    """
    if clock_ms is system_clock_ms:
        return monotonic_ms
    of_its_own: ClockMs | None = getattr(clock_ms, "elapsed_ms", None)
    return StepsForward(clock_ms) if of_its_own is None else of_its_own


def checked_timeout_s(timeout_s: float) -> float:
    """The time-out as it is, where it is above 0 and not too long."""
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise BadRequest(f"a time-out is a number of seconds, not {timeout_s!r}")
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        raise BadRequest(
            f"a time-out of {timeout_s} s is not above 0 and at most "
            f"{LONGEST_TIMEOUT_S} s"
        )
    return timeout_s
