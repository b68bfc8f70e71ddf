"""A random workload of several processes under faults, whose history is checked.

    python -m tests.support.anomaly_run DIRECTORY SECONDS [partitions]

Clients publish to three topics, or to the twelve partitions of one, by senders too.
What is served is killed and stopped for a while, clients too; a proxy between them
loses and delays requests and answers, and delivers requests twice and in another order;
the server's clock jumps. The history is in DIRECTORY/history, for
`tests.support.anomaly_check`. Several servers over shards run it by
`tests.support.cluster_run`, in HBase by `tests.support.hbase_cluster_run`. The faults
and their order are those of `ANOMALY_SEED`, or of another seed at each run.
"""

import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import attrs

import txaware
from tests.support.anomaly_check import RecordedHistory, numbered
from tests.support.checker import OK
from tests.support.concurrency import until
from tests.support.http_kill_load import EXPECTED, PARTITIONS, THREE, Topics
from tests.support.killed_server import (
    ENDS_S,
    ROOT,
    History,
    Server,
    check,
    end_what_is_open,
    look,
    wait_for_load,
)
from tests.support.lossy_proxy import LossyProxy
from tests.support.python_process import PythonProcess

CLIENTS = 3
LOSES_ONE_IN, DOUBLES_ONE_IN, DELAYS_ONE_IN, SWAPS_ONE_IN = 300, (2, 20), 100, 10
LONGEST_PAUSE_S, LONGEST_JUMP_S = 3, 60
# Several servers over HBase take a while on a busy machine, home after the shards.
WHOLE_S = 240
CLIENTS_FAULTS = ("client", "stop client", "loss")


class Clients:
    """Client processes; each that is killed is followed by one of another name."""

    def __init__(self, place: Path, url: str, topics: Topics) -> None:
        self.logs: list[Path] = []
        self._place, self._url, self._topics = place, url, topics
        self._children: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Begins one more, and returns when it works."""
        name = str(len(self.logs))
        log = self._place / f"client {name}"
        self.logs.append(log)
        child = PythonProcess(
            [*self._topics.command, "load", self._url, str(log), name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._children.append(child)
        wait_for_load(child, log)

    def kill_one(self) -> None:
        """Kills the oldest, and begins another one."""
        child = self._children.pop(0)
        child.kill()
        child.communicate()
        self.start()

    def stop_one_for(self, pause_s: float) -> None:
        """Stops one for some time."""
        child = random.choice(self._children)
        child.send_signal(signal.SIGSTOP)
        time.sleep(pause_s)
        child.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Returns when all have ended; they have failed if anything has."""
        for child in self._children:
            _, said = child.communicate(timeout=2 * ENDS_S)
            assert child.returncode == 0, said

    def close(self) -> None:
        """Kills what is left."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.communicate()


@attrs.frozen
class Outcome:
    """What a run did, and what it found."""

    history: RecordedHistory
    faults: Counter[str]
    seed: int

    @property
    def acknowledged(self) -> int:
        """How many publishes were answered."""
        return sum(one.outcome == OK for one in self.history.publishes)

    def __str__(self) -> str:
        polls = len(self.history.polls)
        faults = ", ".join(f"{n} {name}" for name, n in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.acknowledged:,} acknowledged, {polls:,} polls; "
            f"{faults}"
        )


class Served(ABC):
    """A server, or several, and what may befall them."""

    topics: ClassVar[Topics]
    faults: ClassVar[Sequence[str]]  # what is there twice happens twice as often
    by_name: ClassVar[Sequence[str]] = ()  # more of them, only where they are named
    url: str  # the same from one life to the next
    data: str  # what is served, to be opened when nobody does any more
    coordinator: str | None = None  # with that
    counts: Counter[str]  # how often something else took place

    @abstractmethod
    def strike(self, fault: str) -> None:
        """One of its faults, after which it serves again, at once or soon."""

    @abstractmethod
    def is_whole(self) -> bool:
        """Tells whether all of it serves."""

    @abstractmethod
    def kill(self) -> None:
        """Ends all of it."""


class OneServer(Served):
    """A server by itself."""

    topics: ClassVar[Topics] = THREE
    faults = ("kill", "pause", "clock")

    def __init__(self, place: Path) -> None:
        self._server, self._ahead = Server(place / "data"), place / "ahead"
        self.data = f"leveldb:{place / 'data'}"
        self.url, self.counts = self._server.url, Counter()

    def strike(self, fault: str) -> None:
        """Kills it, stops it for a while, or moves its clock."""
        if fault == "kill":
            self._server.kill()
            time.sleep(random.choice([0, 0.5]))
            self._server.start()
        elif fault == "pause":
            self._server.stop_for(random.uniform(0, LONGEST_PAUSE_S))
        else:
            ahead_ms = random.choice([0, random.randint(-1, 1) * 1000 * LONGEST_JUMP_S])
            self._ahead.write_text(str(ahead_ms))

    def is_whole(self) -> bool:
        """It is, since each fault ends with it."""
        return True

    def kill(self) -> None:
        """Ends it."""
        self._server.kill()


class OneServerOfPartitions(OneServer):
    """The same, whose clients publish to the partitions of one topic."""

    topics = PARTITIONS


def run(
    place: Path,
    seconds: float,
    serve: Callable[[Path], Served] = OneServer,
    faults: Sequence[str] = (),
) -> Outcome:
    """Runs the workload for so long, then heals all, looks at the rows, and checks.

    Without names of faults, those of clients and of what is served take turns.
    """
    seed = int(os.environ.get("ANOMALY_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    served, done = serve(place), Counter[str]()
    topics, quiet = served.topics, list[int]()
    chosen = faults or (*served.faults, *CLIENTS_FAULTS)
    with ExitStack() as left:
        left.callback(served.kill)
        with txaware.connect(served.url) as messaging:
            topics.make(messaging)
        proxy = LossyProxy(
            *(served.url,),
            seed=random.randrange(1 << 30),
            one_in=0,
            double_one_in=random.choice(DOUBLES_ONE_IN),
            delay_one_in=DELAYS_ONE_IN,
            swap_one_in=SWAPS_ONE_IN,
        )
        left.enter_context(proxy)
        clients = Clients(place, proxy.url, topics)
        left.callback(clients.close)
        for _ in range(CLIENTS):
            clients.start()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(random.uniform(0, 1))
            fault = random.choice(chosen)
            done[fault] += 1
            if fault in (*served.faults, *served.by_name):
                served.strike(fault)
            else:
                _strike(fault, clients, proxy)
        done.update(lost=proxy.lost, doubled=proxy.doubled, swapped=proxy.swapped)
        done.update(served.counts)
        proxy.one_in = proxy.double_one_in = 0
        assert until(served.is_whole, timeout_s=WHOLE_S)
        clients.end()
        logs = [*clients.logs, place / "look over http", place / "look embedded"]

        def is_looked_at() -> bool:
            """A busy machine has servers killed that cannot say a word, also now."""
            try:
                with txaware.connect(served.url) as messaging:
                    end_what_is_open(messaging)
                    quiet[:] = [time.monotonic_ns()]
                    look(messaging, logs[-2], "over http", topics)
                    check(messaging)
            except EXPECTED:
                return False
            return True

        assert until(is_looked_at, timeout_s=WHOLE_S)
    with txaware.connect(served.data, coordinator=served.coordinator) as messaging:
        look(messaging, logs[-1], "embedded", topics)
        check(messaging)
    read = History.read(logs)
    history = RecordedHistory(read.publishes, read.polls, quiet)
    history.save(place / "history")
    return Outcome(history, done, seed)


def run_without_anomalies(
    place: Path,
    seconds: float,
    serve: Callable[[Path], Served] = OneServer,
    faults: Sequence[str] = (),
) -> None:
    """Runs it, and fails by what is wrong with the history, or if nothing happened."""
    outcome = run(place, seconds, serve, faults)
    print(outcome)
    found = outcome.history.anomalies()
    assert not found, [numbered(one) for one in found[:20]]
    assert outcome.acknowledged > 50
    assert sum(outcome.faults.values()) > 0


def _strike(fault: str, clients: Clients, proxy: LossyProxy) -> None:
    """A fault of a client or of the line."""
    if fault == "client":
        clients.kill_one()
    elif fault == "stop client":
        clients.stop_one_for(random.uniform(0, LONGEST_PAUSE_S))
    else:
        proxy.one_in = random.choice([0, LOSES_ONE_IN, LOSES_ONE_IN])


def main(
    serve: Callable[[Path], Served],
    place: Path,
    seconds: float,
    faults: Sequence[str] = (),
) -> int:
    """Runs it once, and prints what it found; returns the exit code."""
    place.mkdir(parents=True, exist_ok=True)
    outcome = run(place, seconds, serve, faults)
    found = outcome.history.anomalies()
    for anomaly in found:
        print(numbered(anomaly))
    print(f"{outcome}: {len(found) or 'no'} anomalies")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 and sys.argv[3:] != [PARTITIONS.name]:
        sys.exit(__doc__)
    served = OneServer if len(sys.argv) == 3 else OneServerOfPartitions
    sys.exit(main(served, Path(sys.argv[1]), float(sys.argv[2])))
