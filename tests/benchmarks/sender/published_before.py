"""Figure a of the sender: beside the background publisher of the version before it.

It runs with the packages of this environment: its client in one process and its server
in another.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.sender.code_before import unpack_before
from tests.benchmarks.sender.sending import (
    MESSAGES,
    PARTITIONS,
    Way,
    beside,
    sender_to,
    sent_in_turns,
)
from txaware.bench.measure import Figure
from txaware.bench.server import ENDS_S, serving
from txaware.bench.trial import Trial
from txaware.messaging import connect

AT_LEAST = 3
# The version before is the one in which this was not there.
CAME_WITH_THE_SENDER = "txaware/publish/send_machine.py"

# Runs in the version before. It has one order a topic, so it sends to one partition.
# Each line that it reads is a number of messages; the answer, once they are on disk, is
# the processor time of its client and its server so far.
PUBLISHES = """
import sys, time
from pathlib import Path
from txaware.bench.server import serving
from txaware.messaging import connect
from txaware.model.settings import Settings

payload, keys = b"x" * 100, [b"%d" % number for number in range(1000)]

with serving(Path(sys.argv[1]), Settings()) as server, connect(server.url) as messaging:
    messaging.create_topic("orders")
    print(time.process_time() + server.cpu_s(), flush=True)
    for line in sys.stdin:
        with messaging.async_publisher("orders") as publisher:
            for number in range(int(line)):
                publisher.publish(payload, key=keys[number % 1000])
        print(time.process_time() + server.cpu_s(), flush=True)
"""


def beside_before(trial: Trial) -> list[Figure]:
    """Figure a."""
    with (
        serving(trial.directory / "beside-before", trial.settings) as server,
        connect(server.url) as messaging,
        _publisher_before(trial.directory / "before") as before,
    ):
        ways = {"now": Way(sender_to(messaging), server.cpu_s), "before": before}
        found = sent_in_turns(trial.rounds, trial.count(MESSAGES), ways)
    return beside(
        f"a) sender to {PARTITIONS} partitions through a server",
        found["now"],
        found["before"],
        "async_publisher of before, to one",
        at_least=AT_LEAST,
    )


@contextmanager
def _publisher_before(place: Path) -> Iterator[Way]:
    """Runs the version before the sender, which is unpacked there."""
    unpack_before(CAME_WITH_THE_SENDER, place)
    # Python finds the package of the directory that it is started in.
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISHES, str(place / "data")],
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        asked, answers, used_s = child.stdin, child.stdout, list[float]()

        def answer() -> None:
            used_s.append(float(answers.readline()))

        def send(count: int) -> None:
            asked.write(f"{count}\n")
            asked.flush()
            answer()

        answer()
        try:
            yield Way(send, lambda: used_s[-1])
        finally:
            asked.close()
            child.wait(ENDS_S)
