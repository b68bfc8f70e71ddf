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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.anomaly_run import LONGEST_PAUSE_S, Served, main
from tests.support.cli_runs import PROGRAM
from tests.support.clusters import FIRST, Cluster, is_alive
from tests.support.concurrency import until
from tests.support.http_kill_load import PARTITIONS
from tests.support.killed_server import ROOT, STARTS_S
from tests.support.ports import free_port
from tests.support.python_process import PythonProcess

PROCESSES = 3
AWAY = (OSError, ValueError, LookupError, AssertionError, http.client.HTTPException)


class ClusterServer(Served):
    """The parent of servers, which is started anew on the same port."""

    topics = PARTITIONS
    faults = ("home", "owner", "owner", "parent", "stop", "stop home")

    def __init__(self, place: Path, program: Sequence[str] = PROGRAM) -> None:
        self._directory, self._program = place / "data", program
        self.data = f"leveldb:{self._directory}"
        self._port = free_port()
        self.url = self.start()

    def start(self) -> str:
        """Returns when all shards have a server."""
        log = self._directory.with_name("servers.log").open("a")
        with log:
            parent = PythonProcess(
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
        url: str = line.removeprefix(FIRST).strip()
        self._cluster = Cluster(parent, url, self._directory)
        return url

    def strike(self, fault: str) -> None:
        """Kills or stops a server, or kills all of them."""
        shard = 0 if "home" in fault else random.randrange(1, PROCESSES)
        if fault == "parent":
            self.kill()
            self.start()
        elif fault.startswith("stop"):
            stopped = self._signal(shard, signal.SIGSTOP)
            time.sleep(random.uniform(0, LONGEST_PAUSE_S))
            if stopped is not None:
                os.kill(stopped, signal.SIGCONT)
        else:
            self._signal(shard, signal.SIGKILL)

    def kill(self) -> None:
        """Kills the parent; all end with it."""
        parent, children = self._cluster.process, self._cluster.pids
        parent.kill()
        parent.wait(STARTS_S)
        assert parent.stdout is not None
        parent.stdout.close()
        assert until(lambda: not any(map(is_alive, children)))

    def is_whole(self) -> bool:
        """Tells whether each shard has a server."""
        return self._cluster.is_whole

    def _signal(self, shard: int, number: int) -> int | None:
        """Sends it to the owner of a shard; returns its process, if there is."""
        with suppress(*AWAY):
            return self._cluster.kill(self._cluster.owner_of(shard), number)
        return None


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(ClusterServer, Path(sys.argv[1]), float(sys.argv[2])))
