"""The time of a store: never goes back, whatever clocks and crashes do."""

import threading

from coordinator.transaction import ClockMs, elapsed_of, system_clock_ms

__all__ = ["ClockMs", "StoreClock", "system_clock_ms"]

# How far ahead of its use time is saved. After a crash publish times may be that much
# ahead of the clock.
AHEAD_MS = 2_000
STEP_MS = 100


class StoreClock:
    """Gives out times that nobody goes below, not after a restart either.

    `saved_ms` is on disk: a restart begins there. What is given out above it is saved
    before anybody reads it, in the batch that writes it at the latest. `elapsed_ms` is
    the time that passes, for time-outs: these go on while the clock is behind.
    """

    def __init__(self, clock_ms: ClockMs, saved_ms: int) -> None:
        self.first_ms = saved_ms
        self.saved_ms = saved_ms
        self.elapsed_ms = elapsed_of(clock_ms)
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._latest_ms = saved_ms

    def now_ms(self) -> int:
        """The time, at least what it was before."""
        now_ms, latest_ms = self._clock_ms(), self._latest_ms
        if now_ms <= latest_ms:  # nearly always, within a millisecond
            return latest_ms
        with self._lock:
            if now_ms > self._latest_ms:
                self._latest_ms = now_ms
            return self._latest_ms

    def given(self, time_ms: int) -> None:
        """That time was given out, perhaps ahead of the clock."""
        if time_ms > self._latest_ms:
            with self._lock:
                self._latest_ms = max(self._latest_ms, time_ms)

    def due(self) -> int | None:
        """What to save with the next batch, where little is left.

        Where the time is ahead of the clock, after a crash, it gets hardly further:
        crash after crash would otherwise add up.
        """
        latest_ms = self._latest_ms
        if self.saved_ms - latest_ms > AHEAD_MS // 2:
            return None
        wanted_ms = max(self._clock_ms() + AHEAD_MS, latest_ms + STEP_MS)
        return wanted_ms if wanted_ms > self.saved_ms else None

    @property
    def next_ms(self) -> int:
        """Above every time that was given out."""
        return self._latest_ms + 1

    @property
    def is_saved(self) -> bool:
        """Whether no time given out so far can come again after a crash."""
        return self._latest_ms < self.saved_ms

    def saved(self, time_ms: int) -> None:
        """That time is on disk."""
        with self._lock:
            self.saved_ms = max(self.saved_ms, time_ms)
