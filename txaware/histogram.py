"""Counts how many of something were how large; cheap enough to be always on."""

import threading
from bisect import bisect_left
from collections.abc import Sequence

import attrs

# Upper bounds, in steps that are about as wide everywhere: 1, 2.5, 5, 10.
LATENCY_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0, 16384.0)


@attrs.frozen
class Histogram:
    """How many were how large: `counts[i]` are above `bounds[i - 1]`, to `bounds[i]`.

    The last count is of those above all bounds; `total` is their sum.
    """

    bounds: Sequence[float] = ()
    counts: Sequence[int] = (0,)
    total: float = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)


class HistogramCounter:
    """Counts for one histogram, under a lock of its own."""

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self._lock = threading.Lock()
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """One more, of that size."""
        at = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[at] += 1
            self._total += value

    def snapshot(self) -> Histogram:
        """The counts as they are now."""
        with self._lock:
            return Histogram(self._bounds, tuple(self._counts), self._total)
