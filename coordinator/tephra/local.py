"""Tephra's own TransactionManager, in a JVM of our own, on a directory."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.errors import TxAwareError
from coordinator.java.jars import Jar, cached_jars
from coordinator.java.jvm import Jvm
from coordinator.tephra.calls import TEPHRA_KINDS

TEPHRA_JARS = (
    Jar(
        "org.apache.tephra:tephra-core:0.16.1",
        "5c3200244d7c8c599659139c6e5d07107e4292c047e8a7969e1e7f2b16fe824d",
    ),
    Jar(
        "org.apache.tephra:tephra-api:0.16.1",
        "8d3293b3f4358edba21aad9e7387c9683918c23a430b2b1dd310742c024c36b5",
    ),
    Jar(
        "it.unimi.dsi:fastutil:6.5.6",
        "d80d42abb53a569f088933f5a689cf92e278fa86ce88fb6f235aa9b943b8f6f4",
    ),
    Jar(
        "com.google.guava:guava:13.0.1",
        "feb4b5b2e79a63b72ec47a693b1cf35cf1cea1f60a2bb2615bf21f74c7a60bb0",
    ),
    Jar(
        "org.apache.thrift:libthrift:0.9.3-1",
        "6837cd6009b8401ce7ef0dcccc80c30148265f7e97cd31dc33b278a268e9471b",
    ),
    Jar(
        "commons-logging:commons-logging:1.2",
        "daddea1ea0be0f56978ab3006b8ac92834afeefbd9b7e4e6316fca57df0fa636",
    ),
    Jar(
        "org.slf4j:slf4j-api:1.7.5",
        "fe30825245d2336c859dc38d60c0fc5f3668dbf29cd586828d2b5667ec355b91",
    ),
    Jar(
        "org.apache.hadoop:hadoop-common:2.2.0",
        "02bbd795a1d9b406d5b01366cef8232da1c06fa6b9ed0a658436ce30fda6cc9b",
    ),
    Jar(
        "org.slf4j:slf4j-nop:1.7.5",
        "fa62326cf97f6e06bcdd8f83d3dd756eb62c87e245d39bf6ef78fa4bc7dd601c",
    ),
    # Only Tephra's own Thrift server needs these two.
    Jar(
        "org.apache.twill:twill-common:0.8.0",
        "0de839845a5bc9ecdef968f68cbb754bfe9d1280631bedd92acc639cec805e1c",
    ),
    Jar(
        "org.apache.twill:twill-core:0.8.0",
        "7e5e1c0df4df851709d06379f16120407db2b91f1a7da3e309514749f3362918",
    ),
)


_WORKER_THREADS = 20
_IO_THREADS = 2


class LocalTephra:
    """A Tephra started on the state in a directory; it lives in `jvm`.

    `settings` are Tephra's, by their full names. `lock` is the descriptor of the
    directory's lock, which the JVM holds with us until it has ended.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        *,
        lock: int,
        classpath: tuple[Path, ...] = (),
        answer_timeout_s: float = 30,
    ) -> None:
        self.jvm = Jvm(
            (*cached_jars(TEPHRA_JARS), *classpath),
            answer_timeout_s=answer_timeout_s,
            holds=(lock,),
        )
        self._serving = threading.Lock()
        self._server: Any = None
        try:
            self.manager = self._start(directory, settings)
        except BaseException:
            self.jvm.kill()
            raise

    def serve(self) -> tuple[str, int]:
        """Starts Tephra's own Thrift service, once, and returns its address.

        It listens on 127.0.0.1 and asks nobody who they are.
        """
        with self._serving:
            if self._server is None:
                self._server = self.jvm.call(self._start_server, kinds=TEPHRA_KINDS)
            return "127.0.0.1", int(self._server.getBindAddress().getPort())

    def close(self) -> None:
        """Lets Tephra write a last snapshot, and ends the JVM."""
        try:
            if self.jvm.alive:
                stop = self.manager.stopAndWait
                self.jvm.call(stop, kinds=TEPHRA_KINDS)
        except TxAwareError:
            pass  # its log holds everything that it acknowledged
        finally:
            self.jvm.close()

    def _start(self, directory: Path, settings: Mapping[str, str]) -> Any:
        java = self.jvm.view
        tephra = java.org.apache.tephra
        configuration = java.org.apache.hadoop.conf.Configuration(False)
        configuration.set("data.tx.snapshot.local.dir", str(directory))
        for name, value in settings.items():
            configuration.set(name, value)
        metrics = tephra.metrics.TxMetricsCollector()
        storage = tephra.persist.LocalFileTransactionStateStorage(
            configuration, tephra.snapshot.SnapshotCodecProvider(configuration), metrics
        )
        manager = tephra.TransactionManager(configuration, storage, metrics)
        self.jvm.call(manager.startAndWait, kinds=TEPHRA_KINDS)
        return manager

    def _start_server(self) -> Any:
        java = self.jvm.view
        tephra = java.org.apache.tephra
        handler = tephra.distributed.TransactionServiceThriftHandler(self.manager, None)
        service = java.java.lang.Class.forName(
            "org.apache.tephra.distributed.thrift.TTransactionServer"
        )
        server = (
            tephra.rpc.ThriftRPCServer.builder(service)
            .setHost("127.0.0.1")
            .setPort(0)
            .setWorkerThreads(_WORKER_THREADS)
            .setIOThreads(_IO_THREADS)
            .build(handler)
        )
        server.startAndWait()
        return server
