"""Endpoints of FastAPI under uvicorn: an order with its event beside one without."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

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
START_S = 30
POST = 'wrk.method = "POST"'
WAYS = {"outbox": "outbox_async", "block": "a block"}


@contextmanager
def served(trial: Trial, environment: Mapping[str, str]) -> Iterator[str]:
    """Runs the application in a process of its own; gives its address."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.benchmarks.web_app:app"]
    command += ["--port", str(port), "--log-level", "warning", "--no-access-log"]
    process = subprocess.Popen(command, env={**os.environ, **environment})
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(port, process)
        yield url
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


def requests_per_second(url: str, script: Path, for_s: int) -> float:
    """Runs wrk; raises where an answer was none."""
    wrk = program("wrk", package="wrk")
    options = ["-c", str(CONNECTIONS), "-t", "1", "-d", f"{for_s}s", "-s", str(script)]
    told = subprocess.run(
        [wrk, *options, url], check=True, capture_output=True, text=True
    ).stdout
    if "Non-2xx" in told:
        raise RuntimeError(f"{url} failed: {told}")
    found = re.search(r"Requests/sec:\s*([\d.]+)", told)
    assert found is not None, told
    return float(found[1])


def _figures(trial: Trial, letter: str, name: str, database: str) -> list[Figure]:
    script = trial.directory / "post.lua"
    script.write_text(POST)
    found: dict[str, list[float]] = {way: [] for way in ("alone", *WAYS)}
    for_s = max(1, round(trial.for_s * 3))
    with connect("memory:") as messaging, messaging.serve() as server:
        messaging.create_topic("orders")
        environment = {DATABASE: database, SERVER: server.url}
        with served(trial, environment) as url:
            for way in found:  # warm
                requests_per_second(f"{url}/{way}", script, 1)
            for _ in range(trial.rounds):
                for way, each in found.items():
                    each.append(requests_per_second(f"{url}/{way}", script, for_s))
    return [
        Figure(
            f"{letter}) {name}, order and event by {how}",
            "requests/s",
            found[way],
            found["alone"],
            "the order alone",
            at_least=FLOOR,
        )
        for way, how in WAYS.items()
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
    f"the same that stores the order alone, in turns; the relay is elsewhere. At least "
    f"{FLOOR}."
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
