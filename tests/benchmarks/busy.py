"""The processor time that a figure takes of this process, without noise."""

import time

from txaware.bench.measure import Figure, Measure


class Busy:
    """The processor time that this process, and no other, takes while it measures."""

    def __init__(self) -> None:
        self._spent_s: dict[str, list[float]] = {}

    def measure(self, name: str, measure: Measure) -> Measure:
        """Returns the same measure, which also remembers how busy this process was."""

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
        """Returns how many of them a processor could do that does nothing else."""
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
