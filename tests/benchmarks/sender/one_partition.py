"""Figure i of the sender: a topic of one partition beside the version before them."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.benchmarks.sender.code_before import CHECKOUT, unpack_before
from txaware.bench.measure import Figure, in_turns
from txaware.bench.trial import Trial

CAME_WITH_PARTITIONS = "txaware/model/partitions.py"
AT_MOST = 1.1
CALLS = 1000

# Runs in either version, in a process of its own: prints the microseconds of processor
# of a call of each kind, the least of five rounds, as what else runs adds to it. The
# syncs of a disk, which tell most of its time, are no part.
MEASURES = """
import json, sys, time
from txaware.messaging import connect

payload, count = b"x" * 100, int(sys.argv[2])

def round_us(clock_s, times, call):
    began_s = clock_s()
    for _ in range(times):
        call()
    return (clock_s() - began_s) / times * 1e6

with connect("leveldb:" + sys.argv[1]) as messaging:
    messaging.create_topic("one")
    messaging.create_topic("many")
    calls = {
        "publish of a message": (
            time.process_time, count, lambda: messaging.publish("one", [payload])
        ),
        "publish of 1,000": (
            time.process_time,
            max(10, count // 50),
            lambda: messaging.publish("many", [payload] * 1000),
        ),
        # Of its thread alone: LevelDB sorts in another what was published just now.
        "poll of 1,000": (
            time.thread_time,
            max(10, count // 50),
            lambda: messaging.poll("many", limit=1000),
        ),
    }
    found = {
        name: min(round_us(*how) for _ in range(5)) for name, how in calls.items()
    }
print(json.dumps(found))
"""


def one_partition(trial: Trial) -> list[Figure]:
    """Figure i."""
    before = trial.directory / "before-partitions"
    unpack_before(CAME_WITH_PARTITIONS, before)
    places = iter(range(1_000_000))
    costs: dict[str, list[dict[str, float]]] = {"now": [], "before": []}

    def measured(name: str, checkout: Path) -> float:
        place = trial.directory / f"one-{next(places)}"
        costs[name].append(_costs_us(checkout, place, trial.count(CALLS)))
        return 0.0

    turns: dict[str, Callable[[], float]] = {
        "now": partial(measured, "now", CHECKOUT),
        "before": partial(measured, "before", before),
    }
    in_turns(trial.rounds, **turns)
    return [
        Figure(
            f"i) {kind}, to a topic of one partition: processor",
            "us",
            [one[kind] for one in costs["now"]],
            [one[kind] for one in costs["before"]],
            "before partitions",
            at_most=AT_MOST,
        )
        for kind in costs["now"][0]
    ]


def _costs_us(checkout: Path, place: Path, count: int) -> dict[str, float]:
    # Python finds the package of the directory that it is started in.
    run = subprocess.run(
        [sys.executable, "-c", MEASURES, str(place), str(count)],
        cwd=checkout,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, float] = json.loads(run.stdout)
    return found
