"""How much of a processor a figure takes of this process; noise is left out."""

import time

from txaware.bench.measure import Figure, Measure


class Busy:
    """What this process, and no other, takes of a processor while it measures."""

    def __init__(self) -> None:
        self._spent_s: dict[str, list[float]] = {}

    def measure(self, name: str, measure: Measure) -> Measure:
        """The same, which also remembers how much of the time it was busy."""

        def measured() -> float:
            cpu_s, began_s = time.process_time(), time.perf_counter()
            value = measure()
            took_s = time.perf_counter() - began_s
            busy = (time.process_time() - cpu_s) / took_s
            self._spent_s.setdefault(name, []).append(busy)
            return value

        return measured

    def figure(
        self, name: str, unit: str, found: dict[str, list[float]], limit: str
    ) -> Figure:
        """How many of them a processor could do that does nothing else."""
        per_s = {
            key: [
                value / busy
                for value, busy in zip(found[key], self._spent_s[key], strict=True)
            ]
            for key in ("ours", "raw")
        }
        return Figure(
            f"{name}, as far as this process is busy with it",
            f"{unit}/s",
            per_s["ours"],
            per_s["raw"],
            limit,
        )
