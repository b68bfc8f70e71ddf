"""The time of a store, which never goes back, whatever clocks and crashes do."""

import threading
import time

from coordinator.transaction import ClockMs, elapsed_of, system_clock_ms

__all__ = ["ClockMs", "StoreClock", "system_clock_ms"]

# Time is saved this far ahead of its use. After a crash, publish times may be this far
# ahead of the clock.
AHEAD_MS = 2_000
STEP_MS = 100


class StoreClock:
    """Gives out times that never go back, not even after a restart.

    `saved_ms` is on disk: a restart begins there. A time above it is saved before
    anybody reads a row with that time, at the latest in the batch that writes the row.
    `elapsed_ms` measures the time that passes, for time-outs: it goes on while the
    clock is behind.
    """

    def __init__(self, clock_ms: ClockMs, saved_ms: int) -> None:
        self.first_ms = saved_ms
        self.saved_ms = saved_ms
        self.elapsed_ms = elapsed_of(clock_ms)
        self._clock_ms = clock_ms
        self._is_system = clock_ms is system_clock_ms
        self._lock = threading.Lock()
        self._latest_ms = saved_ms

    def now_ms(self) -> int:
        """Returns the time, which is never less than it was before."""
        latest_ms = self._latest_ms
        # The system's clock is read without a call of ours: often, in each transaction.
        now_ms = time.time_ns() // 1_000_000 if self._is_system else self._clock_ms()
        if now_ms <= latest_ms:  # nearly always, within a millisecond
            return latest_ms
        with self._lock:
            if now_ms > self._latest_ms:
                self._latest_ms = now_ms
            return self._latest_ms

    def given(self, time_ms: int) -> None:
        """Notes that a time was given out, which may be ahead of the clock."""
        if time_ms > self._latest_ms:
            with self._lock:
                self._latest_ms = max(self._latest_ms, time_ms)

    def due(self) -> int | None:
        """Returns the time to save with the next batch; None while enough is saved.

        After a crash the time may be ahead of the clock. It then moves ahead in small
        steps only, or one crash after another would add up.
        """
        latest_ms = self._latest_ms
        if self.saved_ms - latest_ms > AHEAD_MS // 2:
            return None
        wanted_ms = max(self._clock_ms() + AHEAD_MS, latest_ms + STEP_MS)
        return wanted_ms if wanted_ms > self.saved_ms else None

    @property
    def next_ms(self) -> int:
        """The first time above every time that was given out."""
        return self._latest_ms + 1

    @property
    def is_saved(self) -> bool:
        """True when no time given out so far can come again after a crash."""
        return self._latest_ms < self.saved_ms

    def saved(self, time_ms: int) -> None:
        """Notes that a time is on disk."""
        with self._lock:
            self.saved_ms = max(self.saved_ms, time_ms)
