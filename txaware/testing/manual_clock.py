"""A clock that a test moves: give it to `connect(..., clock_ms=clock)`."""

BEGIN_MS = 1_700_000_000_000


class ManualClock:
    """A clock that only moves when told to; calling it returns the time in ms."""

    def __init__(self, now_ms: int = BEGIN_MS) -> None:
        self.now_ms = now_ms
        self._set_by_ms = 0

    def __call__(self) -> int:
        """Returns the time, in ms since the epoch."""
        return self.now_ms

    def elapsed_ms(self) -> int:
        """Returns a time that passes, and that setting the clock does not change."""
        return self.now_ms - self._set_by_ms

    def advance_s(self, seconds: float) -> None:
        """Lets time pass; with a negative number the clock is set back."""
        if seconds < 0:
            self.set_s(seconds)
        else:
            self.now_ms += int(seconds * 1000)

    def set_s(self, seconds: float) -> None:
        """Sets the clock ahead or back by so much, while no time passes."""
        self.now_ms += int(seconds * 1000)
        self._set_by_ms += int(seconds * 1000)
