"""A real HBase on this machine, to try things out and for tests."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from coordinator.directory_lock import DirectoryLock
from coordinator.java.jars import cached_jars
from coordinator.java.process import find_java
from txaware.errors import Unavailable
from txaware.local_hbase.configuration import Settings, write_configuration
from txaware.local_hbase.jars import HBASE_JARS, OPENED
from txaware.local_hbase.process import ServerProcess
from txaware.local_hbase.readiness import (
    HOST,
    Ports,
    kept_ports,
    listens,
    require_ready,
)

START_TIMEOUT_S = 120.0
# A stop takes a second, or fifteen if ZooKeeper ends before the region server has said
# goodbye to it. All that was acknowledged is in the log, so there is no need to wait.
_STOP_TIMEOUT_S = 6.0
_LOOK_AGAIN_S = 0.1
_MASTER = "org.apache.hadoop.hbase.master.HMaster"
_THRIFT = "org.apache.hadoop.hbase.thrift.ThriftServer"


class LocalHBase:
    """HBase 2.6.1 on a directory that it alone owns; it listens on 127.0.0.1 only.

    It has two processes: `master`, which is also the region server and ZooKeeper, and
    `thrift`, through which Python speaks to it. Both end with this process. Their ports
    are named, or chosen once and kept in the directory; their logs are in `log` there.
    What was acknowledged survives `kill`, but not power loss: there is no HDFS below.
    Callers are not authenticated.

    A `master` that is paused for half a minute ends itself when it goes on, as HBase
    does without ZooKeeper; 15 s do no harm.

    `settings` are HBase's own by their full names; a change counts from the next start.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        settings: Settings | None = None,
        heap_mb: int = 512,
        start_timeout_s: float = START_TIMEOUT_S,
        thrift_port: int | None = None,
        zookeeper_port: int | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.settings = dict(settings or {})
        self._start_timeout_s = start_timeout_s
        self._lock: DirectoryLock | None = None
        self._ports: Ports | None = None
        named = {"thrift": thrift_port, "zookeeper": zookeeper_port}
        self._named_ports = {n: port for n, port in named.items() if port is not None}
        command = self._command(heap_mb)
        self.master = self._process("master", [*command, _MASTER, "start"])
        self.thrift = self._process("thrift", [*command, _THRIFT, "start"])

    @property
    def thrift_port(self) -> int:
        """The port of Thrift1, with buffered transport and binary protocol."""
        return self._chosen_ports.thrift

    @property
    def zookeeper(self) -> str:
        """The address of ZooKeeper, as HOST:PORT."""
        return f"{HOST}:{self._chosen_ports.zookeeper}"

    def start(self) -> None:
        """Starts what does not run, and waits until all tables can be used."""
        try:
            self._start_master()
            self.start_thrift()
        except BaseException:
            self.kill()
            raise

    def start_thrift(self) -> None:
        """Starts the Thrift server, and waits until it answers from all tables."""
        self._run(self.thrift)
        self._wait(lambda: listens(self.thrift_port))
        self._wait(lambda: _is_ready(self.thrift_port))

    def kill_thrift(self) -> None:
        """Ends the Thrift server as a crash would."""
        self.thrift.kill()

    def stop(self) -> None:
        """Ends both processes in order; a second call does nothing."""
        self.thrift.stop(_STOP_TIMEOUT_S)
        self.master.stop(_STOP_TIMEOUT_S)
        self._release()

    def kill(self) -> None:
        """Ends both processes as a crash would."""
        self.thrift.kill()
        self.master.kill()
        self._release()

    def file_bytes(self, table: str) -> int:
        """Returns the size of a table's files on disk, to the byte.

        Files that a compaction has replaced count for a second or two more.
        """
        namespace, _, name = table.rpartition(":")
        regions = self.directory / "data" / "data" / (namespace or "default") / name
        total = 0
        for path in regions.glob("*/[!.]*/[!.]*"):
            with suppress(FileNotFoundError):  # moved away in this moment
                total += path.stat().st_size
        return total

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def _chosen_ports(self) -> Ports:
        if self._ports is None:
            raise Unavailable(f"the HBase on {self.directory} was not started")
        return self._ports

    def _start_master(self) -> None:
        if self._lock is None:
            self._lock = DirectoryLock(self.directory)
        for name in ("data", "tmp", "zookeeper", "log"):
            (self.directory / name).mkdir(exist_ok=True)
        if self._ports is None:
            self._ports = kept_ports(self.directory, self._named_ports)
        self._run(self.master)
        zookeeper = self._ports.zookeeper
        self._wait(lambda: listens(zookeeper))

    def _run(self, process: ServerProcess) -> None:
        if self._lock is None:
            raise Unavailable(f"the HBase on {self.directory} was not started")
        conf = self.directory / "conf"
        write_configuration(conf, self.directory, self._chosen_ports, self.settings)
        process.start(holds=[self._lock.fileno()])

    def _wait(self, is_there: Callable[[], bool]) -> None:
        give_up = time.monotonic() + self._start_timeout_s
        while not is_there():
            self.master.require_alive()
            if self.thrift.started:
                self.thrift.require_alive()
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"HBase did not start in {self._start_timeout_s} s; "
                    f"{self.master.last_words()}\n{self.thrift.last_words()}"
                )
            time.sleep(_LOOK_AGAIN_S)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _command(self, heap_mb: int) -> list[str]:
        folders = [self.directory / "conf", *cached_jars(HBASE_JARS)]
        return [
            find_java(),
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-Djava.net.preferIPv4Stack=true",
            f"-Djava.io.tmpdir={self.directory / 'tmp'}",
            f"-Dhbase.log.dir={self.directory / 'log'}",
            *OPENED,
            "-classpath",
            os.pathsep.join(str(folder) for folder in folders),
        ]

    def _process(self, name: str, command: list[str]) -> ServerProcess:
        log = self.directory / "log" / f"{name}.log"
        return ServerProcess(command, log=log, directory=self.directory)


def _is_ready(thrift_port: int) -> bool:
    try:
        require_ready(thrift_port)
    except Unavailable:
        return False
    return True
