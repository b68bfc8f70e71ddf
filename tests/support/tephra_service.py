"""A ZooKeeper and a Tephra that announces itself there, for tests only."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from coordinator.java.jars import Jar, cached_jars
from coordinator.java.jvm import Jvm
from coordinator.tephra import TephraCoordinator
from coordinator.tephra.local import TEPHRA_JARS

SERVICE_JARS = (
    Jar(
        "org.apache.twill:twill-zookeeper:0.8.0",
        "4e9e513e4d030acfdb0ddd1858d38adc97a49af9b63343fa7c570bebc20e48d3",
    ),
    Jar(
        "org.apache.zookeeper:zookeeper:3.4.5",
        "fadea8ad970ea76500db9fe8826a89dc66705a14e794389ea507fe4f5d090f55",
    ),
    Jar(
        "org.apache.twill:twill-discovery-core:0.8.0",
        "bca57360ce69a62c9a24a3eb2dbee230b20d852fa4013a8f95ca101785004a3e",
    ),
    Jar(
        "org.apache.twill:twill-discovery-api:0.8.0",
        "8d817bf97977998e6fba19783a4dce1129bf8d690be932289a3f7032e144aa73",
    ),
    Jar(
        "org.apache.twill:twill-api:0.8.0",
        "1beea259fbb625cee30781a88486a3cffc92642459d6a0684b958f636baaf58d",
    ),
    Jar(
        "com.google.inject:guice:3.0",
        "1a59d0421ffd355cc0b70b42df1c2e9af744c8a2d0c92da379f5fca2f07f1d22",
    ),
    Jar(
        "com.google.inject.extensions:guice-assistedinject:3.0",
        "29a0e823babf10e28c6d3c71b2f9d56a3be2c9696d016fb16258e3fb1d184cf1",
    ),
    Jar(
        "javax.inject:javax.inject:1",
        "91c77044a50c481636c32d916fd89c9118a72195390452c81065080f957de7ff",
    ),
    Jar(
        "aopalliance:aopalliance:1.0",
        "0addec670fedcd3f113c5c8091d783280d23f75e3acb841b61a9cdb079376a08",
    ),
    Jar(
        "com.google.code.gson:gson:2.2.4",
        "c0328cd07ca9e363a5acd00c1cf4afe8cf554bd6d373834981ba05cebec687fb",
    ),
    Jar(
        "io.dropwizard.metrics:metrics-core:3.1.0",
        "d88845f17cd2c2d2203145e6f52e0c992cbe14d5887ddce97c9aceeae444b331",
    ),
)
# Where Tephra's own service announces itself, too.
ANNOUNCED = "/discoverable/transaction/test"
# Guice 3.0 defines classes in a way that Java has closed since.
OPEN_TO_GUICE = "--add-opens=java.base/java.lang=ALL-UNNAMED"


class DistributedTephra:
    """One ZooKeeper and, one after the other, services that announce themselves."""

    def __init__(self, jvm: Jvm, directory: Path) -> None:
        self.jvm = jvm
        java = jvm.view
        builder = java.org.apache.twill.internal.zookeeper.InMemoryZKServer.builder()
        builder.setDataDir(java.java.io.File(str(directory)))
        self.zookeeper: Any = builder.build()
        self.zookeeper.startAndWait()
        self.hosts = str(self.zookeeper.getConnectionStr())

    def start_service(self) -> Any:
        """Tephra's own service, which keeps nothing on disk, on a free port."""
        java = self.jvm.view
        configuration = java.org.apache.hadoop.conf.Configuration(False)
        settings = {
            "data.tx.zookeeper.quorum": self.hosts,
            "data.tx.bind.address": "127.0.0.1",
            "data.tx.bind.port": "0",
            "tx.persist": "false",
        }
        for name, value in settings.items():
            configuration.set(name, value)
        service = java.org.apache.tephra.TransactionServiceMain(configuration)
        service.start()
        return service


@contextmanager
def distributed_tephra(directory: Path) -> Iterator[DistributedTephra]:
    """In a JVM of its own, without a service yet."""
    jars = cached_jars((*TEPHRA_JARS, *SERVICE_JARS))
    with Jvm(jars, options=[OPEN_TO_GUICE]) as jvm:
        distributed = DistributedTephra(jvm, directory)
        yield distributed
        distributed.zookeeper.stopAndWait()


@attrs.frozen
class AnnouncedTephra:
    """A Tephra of this process, and the ZooKeeper that leads others to it.

    Its JVM may be killed, and another one comes back on the same state elsewhere.
    """

    coordinator: TephraCoordinator
    zookeeper: str

    @property
    def address(self) -> str:
        """The coordinator that servers are to have."""
        return f"tephra+zk://{self.zookeeper}"

    def announce(self) -> None:
        """Writes to ZooKeeper where Tephra is now."""
        from kazoo.client import KazooClient

        host, port = self.coordinator.serve_thrift()
        # Its log's first edit is on disk only with the next: decisions come after it.
        self.coordinator.abort(self.coordinator.start_short())
        client = KazooClient(self.zookeeper)
        client.start()
        client.ensure_path(ANNOUNCED)
        client.set(ANNOUNCED, json.dumps({"hostname": host, "port": port}).encode())
        client.stop()
        client.close()

    def bring_back(self) -> None:
        """Another JVM on the same state, which listens elsewhere."""
        self.coordinator.reconnect()
        self.announce()
