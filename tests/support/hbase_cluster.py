"""A server over HBase and Tephra whose parts are killed and paused, one by one."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import attrs

import txaware
from tests.support.cli_runs import PROGRAM
from tests.support.http_kill_load import THREE
from tests.support.ports import free_port
from txaware.errors import TxAwareError
from txaware.local_hbase import LocalHBase
from txaware.local_hbase.process import ServerProcess
from txaware.messaging import Messaging
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.schema import create_tables

PROBE = "probe"
# Shorter than usual: more calls are given up, and are carried out later all the same.
HBASE_TIMEOUT_S, HBASE_PATIENCE_S = 3, 5
COMES_BACK_WITHIN_S = 180
LOOK_AGAIN_S = 0.1


class Server:
    """`txaware serve`, which is started until it comes, as a supervisor does it."""

    def __init__(self, data: str, coordinator: str, log: Path) -> None:
        port = str(free_port())
        self.url = f"http://127.0.0.1:{port}"
        self.killed_ns: list[int] = []
        self._log = log
        self._command = [*PROGRAM, "serve", "--data", data, "--port", port]
        self._command += ["--coordinator", coordinator]
        self._environment = {
            **os.environ,
            "TXAWARE_TOPICS": ", ".join([*THREE.all, PROBE]),
            "TXAWARE_HBASE_TIMEOUT_S": str(HBASE_TIMEOUT_S),
            "TXAWARE_HBASE_PATIENCE_S": str(HBASE_PATIENCE_S),
        }
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        give_up_s = time.monotonic() + COMES_BACK_WITHIN_S
        while not self._starts():
            assert time.monotonic() < give_up_s, self.last_words()
            time.sleep(LOOK_AGAIN_S)

    def kill(self) -> None:
        """Returns when it is gone."""
        if self._child is not None:
            self.killed_ns.append(time.monotonic_ns())
            self._child.kill()
            self._child.communicate()
            self._child = None

    def pause(self) -> None:
        """It answers nothing from now on."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause."""
        self._send(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of what it logged."""
        return self._log.read_text()[-3000:]

    def _starts(self) -> bool:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
            )
        assert self._child.stdout is not None
        if self._child.stdout.readline():
            return True
        self._child.communicate()
        return False

    def _send(self, number: signal.Signals) -> None:
        assert self._child is not None
        self._child.send_signal(number)


@attrs.define
class Cluster:
    """HBase, Tephra in the server's own JVM, and the server; blows fall on them.

    `back_s` is how long it took to publish again after each, by the name of the blow.
    """

    hbase: LocalHBase
    server: Server
    messaging: Messaging
    back_s: list[tuple[str, float]] = attrs.field(factory=list)

    @classmethod
    def start(cls, hbase: LocalHBase, directory: Path, prefix: str) -> Self:
        """Tables, a Tephra and a server of its own in a running HBase."""
        data = hbase_url(hbase, prefix)
        server = Server(data, f"tephra:{directory / 'tephra'}", directory / "server")
        server.start()
        return cls(hbase, server, txaware.connect(server.url))

    def close(self) -> None:
        """Ends the server; HBase is somebody else's."""
        self.server.kill()
        self.messaging.close()

    def suffer(self, blow: str) -> None:
        """Deals one blow, and returns when messages are published again."""
        BLOWS[blow](self)
        began_s = time.monotonic()
        while not self._publishes():
            took_s = time.monotonic() - began_s
            assert took_s < COMES_BACK_WITHIN_S, self.server.last_words()
            time.sleep(LOOK_AGAIN_S)
        self.back_s.append((blow, time.monotonic() - began_s))
        print(f"{blow}: {self.back_s[-1][1]:.1f} s", flush=True)

    def kill_server(self) -> None:
        self.server.kill()
        self.server.start()

    def kill_thrift(self) -> None:
        self.hbase.kill_thrift()
        _linger(2)
        self.hbase.start_thrift()

    def kill_hbase(self) -> None:
        """Master, region server and ZooKeeper, and perhaps the Thrift server too."""
        random.choice([self.hbase.kill, self.hbase.master.kill])()
        _linger(2)
        self.hbase.start()

    def kill_all(self) -> None:
        """The server that comes next has to wait for HBase."""
        parts = [self.server.kill, self.hbase.kill]
        random.shuffle(parts)
        for kill in parts:
            kill()
            _linger(1)
        self.hbase.start()
        self.server.start()

    def kill_server_without_thrift(self) -> None:
        """Batches under way are not settled by the one who wrote them."""
        self.hbase.kill_thrift()
        _linger(1)
        self.server.kill()
        self.hbase.start_thrift()
        self.server.start()

    def pause_thrift(self) -> None:
        self._pause(self.hbase.thrift)

    def pause_hbase(self) -> None:
        self._pause(self.hbase.master)

    def pause_server(self) -> None:
        self._pause(self.server)

    def _pause(self, part: ServerProcess | Server) -> None:
        """Sometimes for longer than anybody has patience."""
        part.pause()
        time.sleep(random.choice([1, HBASE_TIMEOUT_S + 1, HBASE_PATIENCE_S + 4]))
        part.resume()

    def _publishes(self) -> bool:
        try:
            with self.messaging.transaction():
                self.messaging.publisher(PROBE).publish(b"there")
            self.messaging.publish(PROBE, [b"there"])
        except TxAwareError:
            return False
        return True


BLOWS: dict[str, Callable[[Cluster], None]] = {
    "kill -9 of the server": Cluster.kill_server,
    "kill -9 of the Thrift server": Cluster.kill_thrift,
    "kill -9 of HBase": Cluster.kill_hbase,
    "kill -9 of all": Cluster.kill_all,
    "kill -9 of the server without Thrift": Cluster.kill_server_without_thrift,
    "pause of the Thrift server": Cluster.pause_thrift,
    "pause of HBase": Cluster.pause_hbase,
    "pause of the server": Cluster.pause_server,
}


def shuffled() -> Sequence[str]:
    """All blows, in any order."""
    return random.sample(list(BLOWS), len(BLOWS))


def hbase_url(hbase: LocalHBase, prefix: str) -> str:
    """The address of tables of that name, which are made where there are none."""
    url = f"hbase://127.0.0.1:{hbase.thrift_port}/{prefix}"
    connections = HBaseConnections(HBaseAddress.parse(url), timeout_s=60, patience_s=60)
    try:
        create_tables(connections)
    finally:
        connections.close()
    return url


def _linger(at_most_s: float) -> None:
    time.sleep(random.random() * at_most_s)
