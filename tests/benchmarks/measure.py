"""Figures beside their limits: measured in turns in one run, compared by medians."""

import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs

Measure = Callable[[], float]


@attrs.frozen
class Figure:
    """A measured figure and the limit it is compared with, one value for each round."""

    name: str
    unit: str
    values: list[float]
    limits: list[float]
    limit_name: str

    @property
    def ratio(self) -> float:
        """The median over the rounds; a figure and its limit share each round."""
        return statistics.median(self._ratios())

    def _ratios(self) -> list[float]:
        return [
            value / limit for value, limit in zip(self.values, self.limits, strict=True)
        ]

    def report(self, *, at_least: float | None = None, at_most: float = 0) -> bool:
        """Prints one line and one JSON object; whether the bound is kept."""
        ratios = self._ratios()
        value, limit = statistics.median(self.values), statistics.median(self.limits)
        bound = f"at least {at_least}" if at_least is not None else f"at most {at_most}"
        print(
            f"\n{self.name}: {value:,.6g} {self.unit}, {self.limit_name} {limit:,.6g}, "
            f"ratio {self.ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {bound}"
        )
        print(
            json.dumps(
                {
                    "figure": self.name,
                    "unit": self.unit,
                    "value": value,
                    "limit": limit,
                    "limit_name": self.limit_name,
                    "ratio": self.ratio,
                    "ratio_min": min(ratios),
                    "ratio_max": max(ratios),
                    "at_least": at_least,
                    "at_most": at_most or None,
                }
            )
        )
        return self.ratio >= at_least if at_least is not None else self.ratio <= at_most


def in_turns(rounds: int, **measures: Measure) -> dict[str, list[float]]:
    """Runs all measures once a round, so that a noisy moment meets all of them."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            values[name].append(measure())
    return values


def per_second(work: Callable[[], object], *, for_s: float = 0.7) -> float:
    """How often `work` is done in a second."""
    count, began_s = 0, time.perf_counter()
    until_s = began_s + for_s
    while time.perf_counter() < until_s:
        work()
        count += 1
    return count / (time.perf_counter() - began_s)


def per_second_of_threads(
    threads: int,
    make_work: Callable[[int], Callable[[], object]],
    *,
    for_s: float = 0.7,
) -> float:
    """How often all threads together do their work in a second."""
    rates: list[float] = []
    ready = threading.Barrier(threads)

    def run(number: int) -> None:
        work = make_work(number)
        ready.wait()
        rates.append(per_second(work, for_s=for_s))

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(rates)


def fdatasyncs_per_second(directory: Path) -> float:
    """What the disk allows: appends of 128 bytes, each of them synced."""
    fd = os.open(directory / "limit", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append() -> None:
        os.write(fd, b"x" * 128)
        os.fdatasync(fd)

    try:
        return per_second(append)
    finally:
        os.close(fd)
