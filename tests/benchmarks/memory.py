"""Figure i: the memory that a very large transaction takes, in a process of its own."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured
from txaware.messaging import Messaging, connect
from txaware.model.messages import MessageId

MESSAGES, SIZE_BYTES, PAGE = 1_000_000, 1024, 1000
LIMIT_MIB, TIMEOUT_S = 200.0, 3600


def resident(trial: Trial) -> list[Figure]:
    """Figure i."""
    messages = trial.count(MESSAGES)
    trial.tell(f"{messages:,} messages of 1 KiB in one transaction")
    path = trial.directory / "resident"
    command = [sys.executable, "-m", __name__, str(path), str(messages)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(run.stdout)
    name = f"i) {messages:,} messages of 1 KiB in one transaction"
    return [
        Figure(
            f"{name}, published and polled, resident",
            "MiB",
            [found["resident_bytes"] / (1 << 20)],
            [LIMIT_MIB],
            f"{LIMIT_MIB:g} MiB",
            at_most=1,
        ),
        Figure(
            f"{name}, published and committed",
            "s",
            [found["published_s"]],
            [found["polled_s"]],
            "polled",
        ),
    ]


def run(path: Path, messages: int) -> dict[str, float]:
    """Publishes and polls all of them; returns the most memory of the whole process."""
    with connect(f"leveldb:{path}") as messaging:
        messaging.create_topic("t")
        began_s = time.perf_counter()
        _publish(messaging, messages)
        published_s = time.perf_counter() - began_s
        _poll(messaging, messages)
        polled_s = time.perf_counter() - began_s - published_s
    return {
        "resident_bytes": most_resident_bytes(),
        "published_s": published_s,
        "polled_s": polled_s,
    }


def _publish(messaging: Messaging, messages: int) -> None:
    with messaging.transaction(timeout_s=TIMEOUT_S):
        publisher = messaging.publisher("t")
        for number in range(messages):
            # Half of it does not compress, as nothing in the way may be easier.
            noise = os.urandom(SIZE_BYTES // 2)
            publisher.publish(number.to_bytes(8, "big") + noise + noise[8:])


def _poll(messaging: Messaging, messages: int) -> None:
    at: MessageId | None = None
    expected, more = 0, True
    while more:
        with messaging.transaction() as context:
            page = messaging.poll(
                "t",
                start=at,
                inclusive=at is None,
                limit=PAGE,
                transaction=context.transaction,
            )
        for message in page:
            number = int.from_bytes(message.payload[:8], "big")
            if number != expected or len(message.payload) != SIZE_BYTES:
                raise RuntimeError(f"message {number} came as number {expected}")
            expected += 1
        at, more = page.next, bool(page)
    if expected != messages:
        raise RuntimeError(f"{expected} messages were polled, not {messages}")


def most_resident_bytes() -> int:
    """Returns the most memory of this process, and not of the one that started it.

    Linux hands `ru_maxrss` on through fork and exec; `VmHWM` begins anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


FIGURES = [
    Measured(
        "i",
        "1,000,000 messages of 1 KiB published in one transaction, which spills, and "
        "then polled in pages of 1,000 with default settings, every number and size "
        "checked; the most that the process had resident, LevelDB's share included. "
        "At most 200 MiB.",
        resident,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]))))
