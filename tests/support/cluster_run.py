"""A random workload over the shards of several servers under faults, checked.

    python -m tests.support.cluster_run DIRECTORY SECONDS [FAULT...]

Three processes serve twelve partitions in three shards. Processes are killed and
stopped for a while: the one with the coordinator, those that have shards alone, both
at once, the parent of all, and clients; or whoever comes to a step of a commit next.
Lines between each pair of them are cut, also in one direction alone and within a
frame; the clock of one jumps, and its disk is full for a while. A proxy before all
loses and doubles requests. With names of faults only those take turns. The history is
in DIRECTORY/history, for `tests.support.anomaly_check`.

By their names only: "home and owner", "step", "server" (any of those that kill),
"stop parent", which may take its processes for silent afterwards; "long stop", "long
stop home" and "long stop parent" for 20 s; "backup", which is restored and compared
with what clients noted, and "prune"; both while another fault is at work.

Who is silent for 2 s is killed by the parent, and begins anew; with `CLUSTER_SILENCE_S`
it is another time.
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
from contextlib import suppress
from pathlib import Path

import attrs

from tests.support.anomaly_run import (
    LONGEST_JUMP_S,
    LONGEST_PAUSE_S,
    Served,
    main,
)
from tests.support.backup_look import back_up
from tests.support.cluster_faults import FAULTY, STEPS
from tests.support.clusters import FIRST, Cluster, in_background, is_alive
from tests.support.concurrency import until
from tests.support.http_kill_load import PARTITIONS
from tests.support.killed_server import ROOT, STARTS_S
from tests.support.ports import free_ports
from tests.support.python_process import PythonProcess
from tests.support.server_cuts import ADVERTISED, ServerCuts, Way, strike
from txaware.errors import KeeperMissing, Unavailable
from txaware.messaging import connect
from txaware.model.keeper import UNREGISTERED

PROCESSES = 3
# A server that says nothing for so long is killed; a line, is cut.
SILENCE_S, LONGEST_CUT_S = os.environ.get("CLUSTER_SILENCE_S", "2"), 4
LONG_STOP_S = 20
# So often all of them mark the rows of invalid transactions, and home forgets these.
CLEANS_EVERY_S = 1
ALL = "all"  # the address of all servers together
AWAY = (OSError, ValueError, LookupError, AssertionError, http.client.HTTPException)


@attrs.frozen
class KeepsNothing:
    """A participant that has no rows."""

    transaction_aware_name: str

    def smallest_pointer(self) -> None:
        """It needs no pointer."""


class ClusterServer(Served):
    """The parent of servers, which is started anew on the same ports."""

    topics = PARTITIONS
    faults = (
        *("home", "owner", "owner", "parent", "stop", "stop home"),
        *("cut", "cut one way", "cut within a frame", "clock", "full disk"),
    )

    by_name = (
        *("home and owner", "step", "server", "stop parent"),
        *("long stop", "long stop home", "long stop parent"),
        *("backup", "prune"),
    )

    def __init__(
        self, place: Path, program: Sequence[str] = (*FAULTY, "told,steps,forgets")
    ) -> None:
        self.counts = Counter()
        self._keeping_nothing = set[str]()
        self._directory, self._program = place / "data", program
        self.data = f"leveldb:{self._directory}"
        self._port, *own = free_ports(1 + PROCESSES)
        self._own_ports = ",".join(map(str, own))
        names = [ALL, *map(str, range(1, 1 + PROCESSES))]
        self._cuts = ServerCuts(dict(zip(names, [self._port, *own], strict=True)))
        self.url = self.start()

    def start(self) -> str:
        """Returns when all shards have a server."""
        log = self._directory.with_name("servers.log").open("a")
        with log:
            parent = PythonProcess(
                [
                    *(*self._program, "--set", f"own_ports={self._own_ports}"),
                    *("--set", f"advertise={ADVERTISED}"),
                    *("--set", f"server_silence_s={SILENCE_S}"),
                    *("--set", f"janitor_interval_s={CLEANS_EVERY_S}"),
                    *("serve", "--data", str(self._directory)),
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
        """Kills, stops or cuts off a server for a while, or kills all of them.

        "server" kills any of them, one or several.
        """
        if fault == "server":
            fault = random.choice(("home", "owner", "home and owner", "parent"))
        shard = 0 if "home" in fault else random.randrange(1, PROCESSES)
        if fault == "parent":
            self._kill_all()
            self.start()
        elif fault.startswith("cut"):
            self._cut(fault)
        elif fault in ("backup", "prune"):
            striking = in_background(lambda: self.strike(random.choice(self.faults)))
            self._back_up() if fault == "backup" else self._prune()
            striking.join()
        elif fault == "step":
            self._die_at(random.choice(STEPS))
        elif fault in ("clock", "full disk"):
            self._tell(fault, random.randrange(PROCESSES))
        elif "stop" in fault:
            is_long, is_parent = "long" in fault, "parent" in fault
            parent = self._cluster.process
            stopped = parent.pid if is_parent else self._signal(shard, 0)
            if stopped is not None:
                self._stop(
                    stopped,
                    LONG_STOP_S if is_long else random.uniform(0, LONGEST_PAUSE_S),
                )
        else:
            self._signal(shard, signal.SIGKILL)
            if fault == "home and owner":
                self._signal(random.randrange(1, PROCESSES), signal.SIGKILL)

    def kill(self) -> None:
        """Kills the parent; all end with it, and so do the lines between them."""
        self._kill_all()
        self._cuts.close()

    def _stop(self, pid: int, pause_s: float) -> None:
        """Stops a process for so long; its parent may kill it meanwhile."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(pause_s)
            if is_alive(pid):
                self.counts["went on after a stop"] += 1
            os.kill(pid, signal.SIGCONT)

    def _cut(self, fault: str) -> None:
        """Cuts the lines between two servers, and heals them after a while."""
        one, other = map(str, random.sample(range(1, 1 + PROCESSES), 2))
        cut_s = random.uniform(0, LONGEST_CUT_S)
        strike(self._cuts, fault, [Way(one, other)], [Way(other, one)], cut_s)

    def _back_up(self) -> None:
        place, number = self._directory.parent, self.counts["backups tried"]
        logs = sorted(place.glob("client *"))
        self.counts["backups"] += back_up(
            self.url, place / f"backup {number}", logs, self.topics
        )
        self.counts["backups tried"] += 1

    def _prune(self) -> None:
        """Forgets invalid transactions, of which nobody has rows elsewhere.

        Home does by itself, too: so all that it forgot is counted at the end.
        """
        with suppress(KeeperMissing, Unavailable), connect(self.url) as messaging:
            for one in messaging.keepers():
                if one.kind == UNREGISTERED or one.name in self._keeping_nothing:
                    messaging.register_keeper(KeepsNothing(one.name))
                    self._keeping_nothing.add(one.name)
            self.counts["pruned"] += messaging.prune().pruned
        with suppress(FileNotFoundError):
            forgotten = self._directory.with_name("forgotten").stat()
            self.counts["forgotten"] = forgotten.st_size

    def _die_at(self, step: str) -> None:
        """Kills who comes to a step next, if that is soon."""
        mark = self._directory.parent / step
        mark.touch()
        until(lambda: not mark.exists(), timeout_s=LONGEST_PAUSE_S)
        mark.unlink(missing_ok=True)

    def _tell(self, fault: str, shard: int) -> None:
        """Moves the clock of an owner, or has its disk be full for a while."""
        pid = self._signal(shard, 0)
        if pid is None:
            return
        place = self._directory.parent
        if fault == "clock":
            # In one step: who reads it finds the old time or the new one.
            new = place / "ahead"
            new.write_text(str(random.randint(-1, 1) * 1000 * LONGEST_JUMP_S))
            new.rename(place / f"ahead-{pid}")
            return
        mark = place / f"full-{pid}"
        mark.touch()
        time.sleep(random.uniform(0, LONGEST_PAUSE_S))
        mark.unlink()

    def _kill_all(self) -> None:
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
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    [directory, seconds, *names] = sys.argv[1:]
    sys.exit(main(ClusterServer, Path(directory), float(seconds), names))
