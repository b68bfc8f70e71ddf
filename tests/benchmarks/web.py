"""Endpoints of FastAPI under uvicorn: an order with its event beside one without."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from tests.benchmarks.measure import program
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured
from txaware.messaging import connect

# Tell the application where its database and its server are.
DATABASE, SERVER = "BENCHMARK_DATABASE", "BENCHMARK_SERVER"
CONNECTIONS = 8
FLOOR = 0.8
START_S = 120
POST = 'wrk.method = "POST"'
UNITS: dict[str, Callable[["Rates"], float]] = {
    "requests/s": lambda rates: rates.by_time,
    "requests/s of its processor": lambda rates: rates.by_processor,
}
WAYS = {"outbox": "outbox_async", "block": "a block"}


@attrs.frozen
class Rates:
    """Requests a second, and a second of the application's processor."""

    by_time: float
    by_processor: float


@attrs.frozen
class Served:
    """An application that is served."""

    url: str
    process_id: int

    def processor_s(self) -> float:
        """Returns the time that it had a processor for."""
        stat = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2]
        return sum(map(int, stat.split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def rates(self, way: str, script: Path, for_s: int) -> Rates:
        """Runs wrk; raises where an answer was none."""
        wrk = program("wrk", package="wrk")
        options = [f"-c{CONNECTIONS}", "-t1", f"-d{for_s}s", "-s", str(script)]
        began_s, command = self.processor_s(), [wrk, *options, f"{self.url}/{way}"]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
        if "Non-2xx" in told.stdout:
            raise RuntimeError(f"{way} failed: {told.stdout}")
        rate = re.search(r"Requests/sec:\s*([\d.]+)", told.stdout)
        count = re.search(r"(\d+) requests in", told.stdout)
        assert rate is not None, told.stdout
        assert count is not None, told.stdout
        took_s = self.processor_s() - began_s
        return Rates(float(rate[1]), int(count[1]) / took_s)


@contextmanager
def served(environment: Mapping[str, str]) -> Iterator["Served"]:
    """Runs the application in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.benchmarks.web_app:app"]
    command += ["--port", str(port), "--log-level", "warning", "--no-access-log"]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        _wait(port, process)
        yield Served(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START_S)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until_s:
                raise
            time.sleep(0.1)


def _figures(trial: Trial, letter: str, name: str, database: str) -> list[Figure]:
    script = trial.directory / "post.lua"
    script.write_text(POST)
    found: dict[str, list[Rates]] = {way: [] for way in ("alone", *WAYS)}
    for_s = max(1, round(trial.for_s * 3))
    with connect("memory:") as messaging, messaging.serve() as server:
        messaging.create_topic("orders")
        with served({DATABASE: database, SERVER: server.url}) as application:
            for way in found:  # warm
                application.rates(way, script, 1)
            for _ in range(trial.rounds):
                for way, each in found.items():
                    each.append(application.rates(way, script, for_s))
    return [
        Figure(
            f"{letter}) {name}, order and event by {how}",
            unit,
            [of(one) for one in found[way]],
            [of(one) for one in found["alone"]],
            "the order alone",
            at_least=FLOOR,
        )
        for way, how in WAYS.items()
        for unit, of in UNITS.items()
    ]


def sqlite(trial: Trial) -> list[Figure]:
    """Figure a."""
    database = f"sqlite+aiosqlite:///{trial.directory / 'shop.db'}"
    return _figures(trial, "a", "SQLite by aiosqlite", database)


def postgres(trial: Trial, *, letter: str, driver: str) -> list[Figure]:
    """Figures b and c."""
    server = PostgresServer(fsync="on")
    try:
        database = server.url.replace("postgresql:", f"postgresql+{driver}:")
        return _figures(trial, letter, f"PostgreSQL by {driver}", database)
    finally:
        server.close()


METHOD = (
    f"An endpoint of FastAPI under uvicorn with one worker, asked by wrk over "
    f"{CONNECTIONS} connections, with sessions of SQLAlchemy over %s. It stores an "
    f"order and its event, by `outbox_async` and in a block with `outbox=True`, beside "
    f"the same that stores the order alone, in turns, by the clock and by the "
    f"processor time of the application; the relay is elsewhere. At least {FLOOR}."
)

FIGURES = [
    Measured("a", METHOD % "aiosqlite", sqlite),
    Measured("b", METHOD % "psycopg", partial(postgres, letter="b", driver="psycopg")),
    Measured("c", METHOD % "asyncpg", partial(postgres, letter="c", driver="asyncpg")),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
