"""The real TransactionManager, in a JVM of our own, on a directory."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.errors import TxAwareError
from coordinator.java.jars import cached_jars
from coordinator.java.jvm import Jvm
from coordinator.tephra.errors import TEPHRA_KINDS
from coordinator.tephra.jars import TEPHRA_JARS

_WORKER_THREADS = 20
_IO_THREADS = 2


class LocalTephra:
    """Starts Tephra on what the directory holds; `jvm` is where it lives.

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
        """Starts Tephra's own Thrift service, once, and answers its address.

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
