"""Figures beside their limits: measured in turns in one run, compared by medians."""

import json
import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs

# The time that threads wait for the last of them to be there.
READY_S = 60

Measure = Callable[[], float]
T = TypeVar("T")


@attrs.frozen
class Figure:
    """A measured figure and the limit it is compared with, one value for each round.

    The bound is on their ratio: `at_least`, or `at_most`, or none of the two. `aim` is
    a ratio to aim at. `goal` is a value to aim at, as measured elsewhere.
    """

    name: str
    unit: str
    values: list[float]
    limits: list[float]
    limit_name: str
    at_least: float | None = None
    at_most: float | None = None
    goal: float | None = None
    aim: float | None = None

    @property
    def ratio(self) -> float:
        """The median over the rounds; a figure and its limit share each round."""
        return statistics.median(self._ratios())

    @property
    def is_kept(self) -> bool:
        """True when the ratio is within the bound."""
        if self.at_least is not None and self.ratio < self.at_least:
            return False
        return self.at_most is None or self.ratio <= self.at_most

    def line(self) -> str:
        """The figure for people."""
        ratios, bound = self._ratios(), self._bound()
        value, limit = statistics.median(self.values), statistics.median(self.limits)
        return (
            f"{self.name}: {value:,.6g} {self.unit}, {self.limit_name} {limit:,.6g}, "
            f"ratio {self.ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}){bound}"
        )

    def record(self) -> str:
        """The figure as a JSON object."""
        ratios = self._ratios()
        return json.dumps(
            {
                "figure": self.name,
                "unit": self.unit,
                "value": statistics.median(self.values),
                "limit": statistics.median(self.limits),
                "limit_name": self.limit_name,
                "ratio": self.ratio,
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
                "at_least": self.at_least,
                "at_most": self.at_most,
                "aim": self.aim,
                "goal": self.goal,
                "kept": self.is_kept,
            }
        )

    def _bound(self) -> str:
        goal = "" if self.goal is None else f", goal {self.goal:,.6g}"
        if self.aim is not None:
            goal = f", aim {self.aim:g}{goal}"
        missed = "" if self.is_kept else ": MISSED"
        if self.at_least is not None:
            return f", at least {self.at_least:g}{missed}{goal}"
        if self.at_most is not None:
            return f", at most {self.at_most:g}{missed}{goal}"
        return goal

    def _ratios(self) -> list[float]:
        return [
            value / limit for value, limit in zip(self.values, self.limits, strict=True)
        ]


def in_turns(rounds: int, **measures: Measure) -> dict[str, list[float]]:
    """Runs all measures once a round, so that a noisy moment disturbs all of them."""
    values: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            values[name].append(measure())
    return values


def medians_in_turns(
    rounds: int, times: int, **measures: Measure
) -> dict[str, list[float]]:
    """Runs all measures in turns, many times a round; returns medians of the rounds."""
    found = in_turns(rounds * times, **measures)
    return {
        name: [
            statistics.median(values[at : at + times])
            for at in range(0, len(values), times)
        ]
        for name, values in found.items()
    }


def p99(values: list[float]) -> float:
    """Returns the value that one in a hundred is above."""
    return sorted(values)[(len(values) * 99 - 1) // 100]


def p50_s(work: Callable[[], object], *, count: int) -> float:
    """Returns how long `work` takes: half of so many times take less."""
    return statistics.median([took_ms(work) for _ in range(count)]) / 1000


def with_cost(per_second: Measure, costs_us: list[float]) -> Measure:
    """Returns a measure that also notes the processor time for each thing done.

    It is that of all threads of this process, in microseconds.
    """

    def run() -> float:
        began_s, used_s = time.perf_counter(), time.process_time()
        found = per_second()
        done = found * (time.perf_counter() - began_s)
        costs_us.append((time.process_time() - used_s) / done * 1e6)
        return found

    return run


def took_ms(work: Callable[[], object]) -> float:
    """Returns how long `work` takes."""
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1000


def per_second(work: Callable[[], object], *, for_s: float = 0.7) -> float:
    """Returns how often `work` is done in a second; it is done once at least."""
    count, began_s = 0, time.perf_counter()
    until_s = began_s + for_s
    while not count or time.perf_counter() < until_s:
        work()
        count += 1
    return count / (time.perf_counter() - began_s)


def per_second_of_threads(
    threads: int,
    make_work: Callable[[int], Callable[[], object]],
    *,
    for_s: float = 0.7,
) -> float:
    """Returns how often all threads together do their work in a second."""
    ready = threading.Barrier(threads, timeout=READY_S)

    def run(number: int) -> float:
        work = make_work(number)
        ready.wait()
        return per_second(work, for_s=for_s)

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(run, range(threads)))


def off_the_main_thread(work: Callable[[], T]) -> T:
    """Returns the answer of `work` in a thread of its own, as most programs run.

    The main thread is served a little slower, since an interrupt may come to it.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def fdatasyncs_per_second(directory: Path, *, for_s: float = 0.7) -> float:
    """Measures what the disk allows: appends of 128 bytes, each of them synced."""
    fd = os.open(directory / "limit", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append() -> None:
        os.write(fd, b"x" * 128)
        os.fdatasync(fd)

    try:
        return per_second(append, for_s=for_s)
    finally:
        os.close(fd)


def fdatasync_p50_s(directory: Path, *, count: int) -> float:
    """Returns how long a synced append of 128 bytes takes: half take less."""
    fd = os.open(directory / "limit", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append() -> None:
        os.write(fd, b"x" * 128)
        os.fdatasync(fd)

    try:
        return p50_s(append, count=count)
    finally:
        os.close(fd)


@contextmanager
def sqlite_inserts(directory: Path, payload: bytes) -> Iterator[Callable[[], object]]:
    """Yields what inserts a row in SQLite, on disk when it returns.

    What users have without us: Python's module, WAL, synchronous=FULL. One thread at a
    time may call it.
    """
    path = directory / "sqlite.db"
    opened = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with closing(opened) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS messages (payload BLOB)")
        yield partial(connection.execute, "INSERT INTO messages VALUES (?)", (payload,))
