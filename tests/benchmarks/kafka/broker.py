"""A broker of Kafka on this machine, from pinned jars, to be measured beside."""

import base64
import os
import subprocess
import time
import uuid
from pathlib import Path
from typing import Self

from coordinator.java.jars import cached_jars, locked_jars
from coordinator.java.process import find_java
from tests.support.ports import free_port
from txaware.bench.server import BenchServer
from txaware.errors import Unavailable
from txaware.local_hbase.process import ServerProcess
from txaware.local_hbase.readiness import HOST, listens

KAFKA_JARS = locked_jars(Path(__file__).with_name("jars.lock"))
HEAP_MB = 768
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 10.0
_LOOK_AGAIN_S = 0.1

# One broker that is its own controller. Without the replication factors and the
# minimum of replicas, transactions wait for brokers that are not there.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
{flush}
"""
_LOG4J = """\
log4j.rootLogger=ERROR,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n
"""


class KafkaBroker:
    """A broker on a directory of its own, which listens on 127.0.0.1 only.

    If it is `flushed`, it syncs each request to the disk before it answers. By default
    it leaves that to the system, as Kafka does; `properties` are others of it. It ends
    with this process.
    """

    def __init__(self, directory: Path, *, flushed: bool, **properties: str) -> None:
        self._directory = directory
        self._port = free_port()
        directory.mkdir(parents=True)
        self._properties = directory / "server.properties"
        self._properties.write_text(
            _PROPERTIES.format(
                host=HOST,
                port=self._port,
                controller=free_port(),
                data=directory / "data",
                flush="log.flush.interval.messages=1" if flushed else "",
            )
            + "".join(f"{name}={value}\n" for name, value in properties.items())
        )
        log4j = directory / "log4j.properties"
        log4j.write_text(_LOG4J)
        self._java = [
            *(find_java(), f"-Xmx{HEAP_MB}m", f"-Xms{HEAP_MB}m"),
            *("-XX:+UseG1GC", f"-Dlog4j.configuration=file:{log4j}"),
            *("-classpath", os.pathsep.join(map(str, cached_jars(KAFKA_JARS)))),
        ]
        self._process = ServerProcess(
            [*self._java, "kafka.Kafka", str(self._properties)],
            log=directory / "broker.log",
            directory=directory,
        )

    @property
    def address(self) -> str:
        """The address that clients connect to, as HOST:PORT."""
        return f"{HOST}:{self._port}"

    def cpu_s(self) -> float:
        """Returns the processor time that it has taken."""
        return BenchServer(self.address, self._process.pid).cpu_s()

    def start(self) -> None:
        """Formats the directory, and starts the broker; returns when it listens."""
        # One that begins with "-" would be taken for an option.
        cluster = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:21]
        subprocess.run(
            [
                *(*self._java, "kafka.tools.StorageTool", "format"),
                *("-t", cluster, "-c", str(self._properties)),
            ],
            check=True,
            capture_output=True,
        )
        self._process.start()
        give_up_s = time.monotonic() + START_TIMEOUT_S
        while not listens(self._port):
            self._process.require_alive()
            if time.monotonic() > give_up_s:
                raise Unavailable(
                    f"Kafka did not start in {START_TIMEOUT_S} s; "
                    f"{self._process.last_words()}"
                )
            time.sleep(_LOOK_AGAIN_S)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.stop(STOP_TIMEOUT_S)
