"""A random workload of several processes under faults, whose history is checked.

    python -m tests.support.anomaly_run DIRECTORY SECONDS

The server is killed and stopped for a while, clients too; a proxy between them loses
requests and answers, and delivers requests twice; the server's clock jumps. The history
is in DIRECTORY/history, for `tests.support.anomaly_check`.
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

import txaware
from tests.support.anomaly_check import RecordedHistory, numbered
from tests.support.checker import OK
from tests.support.killed_server import (
    ENDS_S,
    MODULE,
    ROOT,
    History,
    Server,
    check,
    end_what_is_open,
    look,
    wait_for_load,
)
from tests.support.lossy_proxy import LossyProxy

CLIENTS = 3
LOSES_ONE_IN, DOUBLES_ONE_IN = 300, (2, 20)
LONGEST_PAUSE_S, LONGEST_JUMP_S = 3, 60


class Clients:
    """Client processes; each that is killed is followed by one of another name."""

    def __init__(self, place: Path, url: str, load: Sequence[str] = MODULE) -> None:
        self.logs: list[Path] = []
        self._place, self._url, self._load = place, url, load
        self._children: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Begins one more, and returns when it works."""
        name = str(len(self.logs))
        log = self._place / f"client {name}"
        self.logs.append(log)
        child = subprocess.Popen(
            [*self._load, "load", self._url, str(log), name],
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

    @property
    def acknowledged(self) -> int:
        """How many publishes were answered."""
        return sum(one.outcome == OK for one in self.history.publishes)

    def __str__(self) -> str:
        polls = len(self.history.polls)
        faults = ", ".join(f"{n} {name}" for name, n in sorted(self.faults.items()))
        return f"{self.acknowledged:,} acknowledged, {polls:,} polls; {faults}"


def run(place: Path, seconds: float) -> Outcome:
    """Runs the workload for so long, then heals all, looks at the rows, and checks."""
    server, faults = Server(place / "data"), Counter[str]()
    quiet: list[int] = []
    with ExitStack() as left:
        left.callback(server.kill)
        proxy = LossyProxy(
            *(server.url,),
            seed=random.randrange(1 << 30),
            one_in=0,
            double_one_in=random.choice(DOUBLES_ONE_IN),
        )
        left.enter_context(proxy)
        clients = Clients(place, proxy.url)
        left.callback(clients.close)
        for _ in range(CLIENTS):
            clients.start()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(random.uniform(0, 1))
            name = random.choice(["kill", "pause", "client", "stop", "clock", "loss"])
            faults[name] += 1
            _strike(name, server, clients, proxy, place)
        faults["lost"], faults["doubled"] = proxy.lost, proxy.doubled
        proxy.one_in = proxy.double_one_in = 0
        clients.end()
        logs = [*clients.logs, place / "look over http", place / "look embedded"]
        with txaware.connect(server.url) as messaging:
            end_what_is_open(messaging)
            quiet.append(time.monotonic_ns())
            look(messaging, logs[-2], "over http")
            check(messaging)
    with txaware.connect(f"leveldb:{place / 'data'}") as messaging:
        look(messaging, logs[-1], "embedded")
        check(messaging)
    read = History.read(logs)
    history = RecordedHistory(read.publishes, read.polls, quiet)
    history.save(place / "history")
    return Outcome(history, faults)


def _strike(
    name: str, server: Server, clients: Clients, proxy: LossyProxy, place: Path
) -> None:
    """One fault; all of them leave the processes running."""
    if name == "kill":
        server.kill()
        time.sleep(random.choice([0, 0.5]))
        server.start()
    elif name == "pause":
        server.stop_for(random.uniform(0, LONGEST_PAUSE_S))
    elif name == "client":
        clients.kill_one()
    elif name == "stop":
        clients.stop_one_for(random.uniform(0, LONGEST_PAUSE_S))
    elif name == "clock":
        ahead_ms = random.choice([0, random.randint(-1, 1) * 1000 * LONGEST_JUMP_S])
        (place / "ahead").write_text(str(ahead_ms))
    else:
        proxy.one_in = random.choice([0, LOSES_ONE_IN, LOSES_ONE_IN])


def main(place: Path, seconds: float) -> int:
    """Runs it once, and prints what it found; returns the exit code."""
    place.mkdir(parents=True, exist_ok=True)
    outcome = run(place, seconds)
    found = outcome.history.anomalies()
    for anomaly in found:
        print(numbered(anomaly))
    print(f"{outcome}: {len(found) or 'no'} anomalies")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
