"""Figure d of the sender: the memory that it takes whose server does not answer."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.sender.sending import KEYS, PARTITIONS, PAYLOAD, TOPIC
from tests.support.http_raw import resident_bytes
from txaware.bench.measure import Figure, in_turns
from txaware.bench.server import MIB, serving
from txaware.bench.trial import Trial
from txaware.errors import QueueFull
from txaware.messaging import connect
from txaware.model.settings import Settings
from txaware.publish.sender import SenderOptions

MORE_MIB = 32.0
QUEUE_MIB = SenderOptions().queue_limit_bytes / MIB


def paused(trial: Trial) -> list[Figure]:
    """Figure d."""
    places = (trial.directory / f"paused-{number}" for number in range(trial.rounds))

    def grown_mib() -> float:
        command = [sys.executable, "-m", __name__, str(next(places))]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(run.stdout)

    found = in_turns(trial.rounds, grown=grown_mib)["grown"]
    limit_mib = QUEUE_MIB + MORE_MIB
    return [
        Figure(
            f"d) memory of a full queue of {QUEUE_MIB:g} MiB, server paused",
            "MiB",
            found,
            [limit_mib] * len(found),
            f"{QUEUE_MIB:g} + {MORE_MIB:g} MiB",
            at_most=1,
        )
    ]


def run(place: Path) -> float:
    """Fills the queue of a sender; returns how much memory that takes, in MiB."""
    with (
        serving(place, Settings()) as server,
        connect(server.url) as messaging,
    ):
        messaging.create_topic(TOPIC, partitions=PARTITIONS)
        with messaging.sender(when_full="raise") as sender:
            for key in KEYS:
                sender.send(TOPIC, PAYLOAD, key=key)
            sender.flush()
            before_bytes = resident_bytes()
            os.kill(server.pid, signal.SIGSTOP)
            try:
                number = 0
                # The last ones find no room: what is full is full for good.
                while sender.metrics().dropped_messages < len(KEYS):
                    number += 1
                    payload = b"%0*d" % (len(PAYLOAD), number)  # none is another's
                    with suppress(QueueFull):
                        sender.send(TOPIC, payload, key=KEYS[number % len(KEYS)])
                grown_bytes = resident_bytes() - before_bytes
            finally:
                os.kill(server.pid, signal.SIGCONT)
    return grown_bytes / MIB


if __name__ == "__main__":
    print(run(Path(sys.argv[1])))
