"""A random workload over the shards of several servers under faults, checked.

    python -m tests.support.cluster_run DIRECTORY SECONDS

Three processes serve twelve partitions in three shards. Processes are killed and
stopped for a while: the one with the coordinator, those that have shards alone, the
parent of all, and clients; a proxy before all loses and doubles requests. The history
is in DIRECTORY/history, for `tests.support.anomaly_check`.
"""

import http.client
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import txaware
from tests.support import killed_server
from tests.support.anomaly_check import RecordedHistory, numbered
from tests.support.anomaly_run import (
    CLIENTS,
    DOUBLES_ONE_IN,
    LONGEST_PAUSE_S,
    LOSES_ONE_IN,
    Clients,
    Outcome,
)
from tests.support.cli_runs import PROGRAM
from tests.support.clusters import FIRST, Cluster, is_alive
from tests.support.concurrency import until
from tests.support.killed_server import (
    ROOT,
    STARTS_S,
    History,
    check,
    end_what_is_open,
    look,
)
from tests.support.lossy_proxy import LossyProxy
from tests.support.partitions_load import COPIES, NAMES, make_topics
from tests.support.ports import free_port

LOAD = [sys.executable, "-m", "tests.support.partitions_load"]
PROCESSES = 3
AWAY = (OSError, ValueError, LookupError, AssertionError, http.client.HTTPException)
FAULTS = ("home", "owner", "owner", "parent", "stop", "stop home", "client")


class ClusterServer:
    """The parent of servers, which is started anew on the same port."""

    def __init__(self, directory: Path, program: Sequence[str] = PROGRAM) -> None:
        self._directory, self._program = directory, program
        self._port = free_port()
        self.url = self.start()

    def start(self) -> str:
        """Returns when all shards have a server."""
        log = self._directory.with_name("servers.log").open("a")
        with log:
            parent = subprocess.Popen(
                [
                    *(*self._program, "serve", "--data", str(self._directory)),
                    *("--processes", str(PROCESSES), "--port", str(self._port)),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert parent.stdout is not None
        line = parent.stdout.readline().decode()
        assert line.startswith(FIRST), "the servers do not start"
        url = line.removeprefix(FIRST).strip()
        self._cluster = Cluster(parent, url, self._directory)
        return url

    def strike(self, shard: int, number: int = signal.SIGKILL) -> int | None:
        """Sends a signal to the owner of a shard; returns its process, if there is."""
        with suppress(*AWAY):
            return self._cluster.kill(self._cluster.owner_of(shard), number)
        return None

    def kill(self) -> None:
        """Kills the parent; all end with it."""
        parent, children = self._cluster.process, self._cluster.pids
        parent.kill()
        parent.wait(STARTS_S)
        assert parent.stdout is not None
        parent.stdout.close()
        assert until(lambda: not any(map(is_alive, children)))

    def stop(self) -> None:
        """Ends all as an operator does."""
        self._cluster.process.terminate()
        assert self._cluster.process.wait(STARTS_S) == 0

    def is_whole(self) -> bool:
        """Tells whether each shard has a server."""
        return self._cluster.is_whole


def run(
    place: Path,
    seconds: float,
    *,
    program: Sequence[str] = PROGRAM,
    strikes: Sequence[str] = FAULTS,
) -> Outcome:
    """Runs the workload for so long, then heals all, looks at the rows, and checks."""
    server, faults = ClusterServer(place / "data", program), Counter[str]()
    quiet: list[int] = []
    with ExitStack() as left:
        left.callback(server.kill)
        with txaware.connect(server.url) as messaging:
            make_topics(messaging)
        proxy = LossyProxy(
            *(server.url,),
            seed=random.randrange(1 << 30),
            one_in=LOSES_ONE_IN,
            double_one_in=random.choice(DOUBLES_ONE_IN),
        )
        left.enter_context(proxy)
        clients = Clients(place, proxy.url, LOAD)
        left.callback(clients.close)
        for _ in range(CLIENTS):
            clients.start()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(random.uniform(0, 1))
            name = random.choice(strikes)
            faults[name] += 1
            _strike(name, server, clients)
        faults["lost"], faults["doubled"] = proxy.lost, proxy.doubled
        proxy.one_in = proxy.double_one_in = 0
        assert until(server.is_whole, timeout_s=STARTS_S)
        clients.end()
        logs = [*clients.logs, place / "look over http", place / "look embedded"]
        with txaware.connect(server.url) as messaging:
            end_what_is_open(messaging)
            quiet.append(time.monotonic_ns())
            look(messaging, logs[-2], "over http")
        server.stop()
    with txaware.connect(f"leveldb:{place / 'data'}") as messaging:
        look(messaging, logs[-1], "embedded")
        check(messaging)
    read = History.read(logs)
    history = RecordedHistory(read.publishes, read.polls, quiet)
    history.save(place / "history")
    return Outcome(history, faults)


def _strike(name: str, server: ClusterServer, clients: Clients) -> None:
    """One fault; the parent starts anew what is killed, and others go on."""
    shard = 0 if "home" in name else random.randrange(1, PROCESSES)
    if name == "parent":
        server.kill()
        server.start()
    elif name == "client":
        clients.kill_one()
    elif name.startswith("stop"):
        stopped = server.strike(shard, signal.SIGSTOP)
        time.sleep(random.uniform(0, LONGEST_PAUSE_S))
        if stopped is not None:
            os.kill(stopped, signal.SIGCONT)
    else:
        server.strike(shard)


def main(place: Path, seconds: float) -> int:
    """Runs it once, and prints what it found; returns the exit code."""
    place.mkdir(parents=True, exist_ok=True)
    outcome = run(place, seconds)
    found = outcome.history.anomalies()
    for anomaly in found:
        print(numbered(anomaly))
    print(f"{outcome}: {len(found) or 'no'} anomalies")
    return 1 if found else 0


# `look` goes through these names.
killed_server.TOPICS = NAMES  # type: ignore
killed_server.COPIES = COPIES  # type: ignore

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
