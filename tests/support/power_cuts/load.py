"""Many threads of load on a directory, by a process that is recorded.

    python -m tests.support.power_cuts.load BELOW NAME SECONDS SHARDS [FAULT]

The data lies in BELOW/data, and what clients were told in BELOW/NAME. So the record
also tells what was said before which write. The topics lie in so many shards. A fault
is one that the test has to find.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs

import txaware
from coordinator import TransactionContext
from tests.support.http_kill_load import EXPECTED, THREE, Client, Notes, Reader
from txaware.errors import Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import COMMITTED, UNCOMMITTED
from txaware.model.settings import Settings
from txaware.store.leveldb_store import Database, LogFile

DATA = "data"
SETTINGS = Settings(
    topics=THREE.settings,
    write_buffer_bytes=1 << 16,  # LevelDB takes no less; logs are switched often
    sync_limit_bytes=300,  # some transactions are held in memory, and others are not
    janitor_interval_s=0,
    prune_grace_s=0,
)
# What makes the logs of LevelDB longer, so that they are switched.
BALLAST = bytes(8000)


class Worker(Client):
    """A client that also makes checkpoints, cleans up, and begins and ends topics."""

    def checkpointed(self) -> None:
        """Writes before and after a checkpoint, by hand and through a publisher."""
        sent = [*self._values("a", 4), *self._values("b", 2)]
        half = len(sent) // 2

        def write(context: TransactionContext) -> None:
            self._publish(sent[:half])
            context.checkpoint()
            self._publish(sent[half:])

        self._transact(sent, write)

    def churn(self) -> None:
        """Leaves nothing behind but work for LevelDB."""
        topic = self._next().replace(".", "-")
        self._messaging.create_topic(topic)
        self._messaging.publish(topic, [BALLAST, BALLAST])
        self._messaging.delete_topic(topic)
        if self.chance.random() < 0.5:
            self._messaging.clean_up()
        else:
            self._messaging.prune()


def steps(messaging: Messaging, notes: Notes, name: str) -> list[Callable[[], object]]:
    """What the threads do, each over and over again."""

    def worker(number: int) -> Worker:
        return Worker(messaging, notes, f"{name}.{number}")

    def any_of(worker: Worker) -> None:
        worker.chance.choice([worker.any, worker.any, worker.checkpointed])()

    readers = [
        Reader(messaging, notes, f"{name} {topic} {how}", topic, how)
        for topic in THREE.all
        for how in (COMMITTED, UNCOMMITTED)
    ]

    def read() -> None:
        for reader in readers:
            reader.poll()
        time.sleep(0.02)

    return [
        partial(any_of, worker(0)),
        partial(any_of, worker(1)),
        partial(any_of, worker(2)),
        worker(3).plain,
        partial(worker(4).copy, "copiers"),
        partial(worker(5).copy, "tellers"),
        worker(6).churn,
        read,
    ]


def load(below: Path, name: str, seconds: float, shards: int) -> None:
    """Works so long, closes the data, opens it again and works on."""
    settings = SETTINGS
    if shards > 1:  # where topics of settings are home's
        settings = attrs.evolve(SETTINGS, shards=shards, topics="")
    with (below / name).open("w", buffering=1) as file:
        notes = Notes(file)
        for life in ("one", "two"):
            with txaware.connect(
                f"leveldb:{below / DATA}", settings=settings
            ) as messaging:
                for number, topic in enumerate(THREE.all if shards > 1 else ()):
                    place = [number % shards]
                    messaging.create_topic(topic, shards=place, exist_ok=True)
                work(messaging, notes, f"{name}.{life}", seconds / 2)


def work(messaging: Messaging, notes: Notes, name: str, seconds: float) -> None:
    """Has all threads work so long."""
    until_s = time.monotonic() + seconds

    def over_and_over(step: Callable[[], object]) -> None:
        while time.monotonic() < until_s:
            with suppress(*EXPECTED):
                step()

    threads = steps(messaging, notes, name)
    with ThreadPoolExecutor(len(threads)) as pool:
        for thread in [pool.submit(over_and_over, step) for step in threads]:
            thread.result()


def write_without_sync() -> None:
    """Plants a fault: no batch is synced."""

    def batch(database: Any, number: int) -> Any:
        return database._db.write_batch(sync=False)

    Database.batch = batch  # type: ignore[method-assign,assignment]


def sync_no_names() -> None:
    """Plants a fault: nobody syncs the directory when LevelDB begins a new log."""

    def follow(log: Any) -> None:
        pass

    LogFile.follow = follow  # type: ignore[method-assign,assignment]


FAULTS: dict[str, Callable[[], None]] = {
    "writes without sync": write_without_sync,
    "syncs no names": sync_no_names,
}


if __name__ == "__main__":
    if len(sys.argv) > 5:
        FAULTS[sys.argv[5]]()
    with suppress(Unavailable):
        load(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
