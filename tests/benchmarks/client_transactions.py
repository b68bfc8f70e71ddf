"""Transactions by our own client: an older checkout beside this one, in turns."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

import txaware
from tests.benchmarks import transactions_child
from tests.benchmarks.before import NOW
from tests.benchmarks.started import busy_s, served, workers
from txaware.bench.measure import Figure
from txaware.bench.trial import Trial

AT_LEAST, AIM = 2.5, 4.0
# The threads of each process that works at the same time.
WORKS = {"8 threads of one process": [8], "8 processes": [1] * 8}


@attrs.frozen
class Done:
    """The transactions of one turn, and the microseconds that each took of both."""

    per_second: float
    server_us: float
    client_us: float


def figures(
    trial: Trial, checkout: Path, works: Mapping[str, list[int]] = WORKS
) -> Iterator[Figure]:
    """Yields what the client of each checkout does with its own server."""
    for what, threads in works.items():
        before, now = list[Done](), list[Done]()
        for number in range(1, trial.rounds + 1):
            trial.tell(f"{what}, turn {number} of {trial.rounds}")
            before.append(_measure(trial, checkout, threads))
            now.append(_measure(trial, NOW, threads))
        name = f"begin, publish one and commit by our client, {what}"
        yield Figure(
            name,
            "transactions/s",
            [one.per_second for one in now],
            [one.per_second for one in before],
            "before",
            at_least=AT_LEAST,
            aim=AIM,
        )
        for side in ("server", "client"):
            yield Figure(
                f"{name}: processor of the {side}",
                "us each",
                [getattr(one, f"{side}_us") for one in now],
                [getattr(one, f"{side}_us") for one in before],
                "before",
            )


def _measure(trial: Trial, checkout: Path, threads: list[int]) -> Done:
    program = ["-P", transactions_child.__file__]  # which finds no module beside it
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    with (
        tempfile.TemporaryDirectory(dir=trial.directory) as data,
        served(Path(data), checkout) as (url, server),
    ):
        with txaware.connect(url) as messaging:
            messaging.create_topic("t")
        arguments = [[url, str(count), str(trial.for_s)] for count in threads]
        with workers([[*program, *some] for some in arguments], env=env) as turn:
            began_s = busy_s(server)
            done = turn()
            took_s = busy_s(server) - began_s
    count = sum(one.count for one in done)
    client_s = sum(one.busy_s for one in done)
    return Done(count / trial.for_s, took_s / count * 1e6, client_s / count * 1e6)
