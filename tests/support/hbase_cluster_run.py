"""The random workload over several servers of one store in HBase, checked.

    python -m tests.support.hbase_cluster_run DIRECTORY SECONDS COORDINATOR [FAULT...]

Three servers have twelve partitions in four shards, over an HBase that is begun in
DIRECTORY. Servers are killed, and begin anew at their address; they are stopped for a
while; shards move by hand. Lines between each pair of them are cut, also in one
direction alone and within a frame; the clock of one jumps.

By their names only: HBase ("hbase" answers nothing, "hbase killed") and Tephra
("tephra", "tephra killed") are away for 30 s; for longer than the others wait servers
stop ("long stop", "long stop home") and lines are cut ("long cut", "long cut one way");
"server" is any of those that take a shard away. COORDINATOR is "embedded", or "tephra"
for a Tephra that is begun in DIRECTORY, too. The history is in DIRECTORY/history, for
`tests.support.anomaly_check`.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from coordinator.tephra import TephraCoordinator
from tests.support.anomaly_run import (
    LONGEST_JUMP_S,
    LONGEST_PAUSE_S,
    Served,
    main,
)
from tests.support.cli_runs import run as run_program
from tests.support.cluster_faults import FAULTY
from tests.support.http_kill_load import PARTITIONS
from tests.support.ports import free_ports
from tests.support.server_cuts import ADVERTISED, ServerCuts, Way, strike
from tests.support.shard_servers import ShardServer, ShardServers
from tests.support.tephra_service import AnnouncedTephra
from txaware.errors import TxAwareError
from txaware.local_hbase import LocalHBase
from txaware.messaging import connect

SERVERS, SHARDS = 3, 4
# A server that stands still for so long is none any more; nor is one that home does not
# reach. Its shards are offered to others after 3 s.
HANGS_S, LONGEST_CUT_S = 20.0, 6.0
# HBase's master survives half of that; its Thrift server any pause.
AWAY_S = 30.0


class HBaseServers(Served):
    """Servers of a store in HBase; the first one listens where clients ask."""

    topics = PARTITIONS
    faults = (
        *("home", "owner", "owner", "give", "give", "stop", "stop home"),
        *("cut", "cut one way", "cut within a frame", "clock"),
    )
    by_name = (
        *("hbase", "hbase killed", "tephra", "tephra killed"),
        *("long stop", "long stop home", "long cut", "long cut one way", "server"),
    )

    def __init__(
        self,
        place: Path,
        *,
        hbase: LocalHBase,
        prefix: str,
        tephra: AnnouncedTephra | None = None,
    ) -> None:
        self.data = f"hbase://127.0.0.1:{hbase.thrift_port}/{prefix}"
        self._hbase, self._tephra = hbase, tephra
        self.counts = Counter()
        self.coordinator = None if tephra is None else tephra.address
        named = () if tephra is None else ("--coordinator", tephra.address)
        run_program("hbase", "create-tables", self.data)
        self._place = place
        self._servers = ShardServers(
            *(self.data,),
            shards=SHARDS,
            directory=place,
            host=ADVERTISED,
            program=[*FAULTY, "told"],
        )
        ports = free_ports(SERVERS)
        addresses = [f"http://{ADVERTISED}:{port}" for port in ports]
        self._cuts = ServerCuts(dict(zip(addresses, ports, strict=True)))
        for port in ports:
            self._servers.start(*named, port=port)
        self._servers.settle()
        self.url = self._servers.servers[0].url

    def strike(self, fault: str) -> None:
        """Kills or stops a server, moves a shard, or takes HBase or Tephra away."""
        self._servers.begin_ended()
        if fault.startswith("hbase"):
            self._take_hbase_away(is_killed="killed" in fault)
            return
        if fault.startswith("tephra"):
            self._take_tephra_away(is_killed="killed" in fault)
            return
        if fault == "server":
            fault = random.choice(("home", "home", "owner", "give"))
        if fault == "give":
            self._give()
            return
        if "cut" in fault:
            self._cut(fault)
            return
        least = 0 if fault == "clock" else 1
        struck = self._owner(0 if "home" in fault else random.randrange(least, SHARDS))
        if struck is None:
            return
        if fault == "clock":
            self._move_clock(struck)
        elif "stop" in fault:
            pause_s = HANGS_S if "long" in fault else random.uniform(0, LONGEST_PAUSE_S)
            struck.process.send_signal(signal.SIGSTOP)
            time.sleep(pause_s)
            struck.process.send_signal(signal.SIGCONT)
        else:
            self._servers.start_anew(struck)

    def is_whole(self) -> bool:
        """Tells whether all servers know the same, and each has its part."""
        self._servers.begin_ended()
        return self._servers.is_settled()

    def kill(self) -> None:
        """Kills all servers, and ends the lines between them."""
        for one in [*self._servers.servers]:
            self._servers.kill(one)
        self._cuts.close()

    def _cut(self, fault: str) -> None:
        """Cuts the lines between two servers, and heals them after a while."""
        one, other = random.sample(self._servers.servers, 2)
        ids = [self._servers.id_of(each) for each in (one, other)]
        cut_s = HANGS_S if "long" in fault else random.uniform(0, LONGEST_CUT_S)
        if None in ids:
            return
        # Who asks is known by the id of its process, and who is asked by its address.
        there = [Way(str(ids[0]), other.url), Way(one.url, str(ids[1]))]
        back = [Way(str(ids[1]), one.url), Way(other.url, str(ids[0]))]
        strike(self._cuts, fault, there, back, cut_s)

    def _move_clock(self, server: ShardServer) -> None:
        """Moves it in one step: who reads the file finds the old or the new one."""
        new = self._place / "ahead"
        new.write_text(str(random.randint(-1, 1) * 1000 * LONGEST_JUMP_S))
        new.rename(self._place / f"ahead-{server.process.pid}")

    def _take_hbase_away(self, *, is_killed: bool) -> None:
        if is_killed:
            self._hbase.kill()
        else:
            self._hbase.thrift.pause()
        time.sleep(AWAY_S)
        self._hbase.thrift.resume()
        self._hbase.start()

    def _take_tephra_away(self, *, is_killed: bool) -> None:
        assert self._tephra is not None, "there is no Tephra"
        jvm = self._tephra.coordinator.jvm
        if is_killed:
            jvm.kill()
        else:
            os.kill(jvm.pid, signal.SIGSTOP)
        time.sleep(AWAY_S)
        if is_killed:
            self._tephra.bring_back()
        else:
            os.kill(jvm.pid, signal.SIGCONT)

    def _give(self) -> None:
        """Moves a shard to a server; one that is not there yet takes none."""
        to = random.choice(self._servers.servers)
        with suppress(TxAwareError), connect(self.url) as messaging:
            messaging.give_shard(random.randrange(1, SHARDS), to.url)

    def _owner(self, shard: int) -> ShardServer | None:
        """Returns the server that has a shard, as any of them knows."""
        for one in self._servers.servers:
            url = self._servers.owners(one).get(shard)
            if url:
                return self._servers.at(url)
        return None


@contextmanager
def announced_tephra(directory: Path, hbase: LocalHBase) -> Iterator[AnnouncedTephra]:
    """A Tephra that HBase's ZooKeeper leads to."""
    # No new log files: what is in the first edit of one is lost with its JVM.
    whole_log = {"data.tx.snapshot.interval": "0"}
    with TephraCoordinator(directory, settings=whole_log) as coordinator:
        tephra = AnnouncedTephra(coordinator, hbase.zookeeper)
        tephra.announce()
        yield tephra


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    [directory, seconds, chosen, *names] = sys.argv[1:]
    with ExitStack() as opened:
        local = opened.enter_context(LocalHBase(Path(directory) / "hbase"))
        found = None
        if chosen == "tephra":
            made = announced_tephra(Path(directory) / "tephra", local)
            found = opened.enter_context(made)
        served = partial(HBaseServers, hbase=local, prefix="store", tephra=found)
        sys.exit(main(served, Path(directory), float(seconds), names))
