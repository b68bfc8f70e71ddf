"""Figure e of HBase: the memory that each topic takes, in a process of its own."""

import json
import os
import subprocess
import sys

from tests.benchmarks.hbase_ends import TOPICS, load_topics, publish_to_all
from tests.benchmarks.hbase_store import store
from txaware.bench.measure import Figure
from txaware.bench.server import BenchServer
from txaware.bench.trial import Trial
from txaware.messaging import connect


def resident(trial: Trial) -> list[Figure]:
    """Figure e."""
    topics = trial.count(TOPICS)
    with store(trial) as here:
        load_topics(here, topics)
        here.messaging.close()
        command = [sys.executable, "-m", __name__, str(here.address), str(topics)]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    return [
        Figure(
            f"e) memory of a process that reads and writes {topics:,} topics",
            "MiB",
            [found["after_mib"]],
            [found["before_mib"]],
            "before",
        )
    ]


def run(url: str, topics: int) -> dict[str, float]:
    """Returns the memory of this process before it writes and reads all, and after."""
    this = BenchServer(url, os.getpid())
    with connect(url) as messaging:
        before_mib = this.resident_mib()
        publish_to_all(messaging, [f"t{number}" for number in range(topics)])
        return {"before_mib": before_mib, "after_mib": this.resident_mib()}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
