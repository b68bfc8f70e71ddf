"""The least that a cycle over py4j costs, as the limit that ours is compared with.

Bare calls of py4j on a Tephra with its log on disk: start, the snapshot through
Tephra's codec, canCommit of one key, commit. It guards against nothing.
"""

import struct
import sys
from array import array
from itertools import count
from pathlib import Path
from typing import Any

from coordinator.java.jars import cached_jars
from coordinator.java.process import JavaProcess
from coordinator.tephra.local import TEPHRA_JARS

_HEAD = struct.Struct(">BHqBHqBHBi")
_LIST_HEAD = struct.Struct(">BHBi")


def decode(data: bytes) -> tuple[int, int, "array[int]", "array[int]"]:
    """Id, read pointer, invalid and in-progress pointers."""
    head = _HEAD.unpack_from(data)
    transaction_id, read_pointer, count = head[2], head[5], head[9]
    at = _HEAD.size
    invalids = _pointers(data[at : at + 8 * count])
    at += 8 * count
    *_, count = _LIST_HEAD.unpack_from(data, at)
    at += _LIST_HEAD.size
    return transaction_id, read_pointer, invalids, _pointers(data[at : at + 8 * count])


def _pointers(data: bytes) -> "array[int]":
    pointers = array("q", data)
    if sys.byteorder == "little":
        pointers.byteswap()
    return pointers


class RecipeTephra:
    """Tephra in a JVM of its own, called through py4j as it comes."""

    def __init__(self, directory: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        self._process = JavaProcess(cached_jars(TEPHRA_JARS))
        self._gateway: Any = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=self._process.port,
                auth_token=self._process.token,
                auto_convert=True,
                auto_field=True,
            )
        )
        java = self._gateway.jvm
        tephra = java.org.apache.tephra
        configuration = java.org.apache.hadoop.conf.Configuration(False)
        configuration.set("data.tx.snapshot.local.dir", str(directory))
        configuration.set("data.tx.cleanup.interval", "1")
        metrics = tephra.metrics.TxMetricsCollector()
        storage = tephra.persist.LocalFileTransactionStateStorage(
            configuration, tephra.snapshot.SnapshotCodecProvider(configuration), metrics
        )
        self._manager = tephra.TransactionManager(configuration, storage, metrics)
        self._manager.startAndWait()
        self._codec = tephra.TransactionCodec()
        self._keys = count()

    def cycle(self) -> None:
        """One transaction that changes one key."""
        transaction_id, *_ = decode(self._codec.encode(self._manager.startShort()))
        self._manager.canCommit(transaction_id, [b"key %d" % next(self._keys)])
        self._manager.commit(transaction_id, transaction_id)

    def close(self) -> None:
        """Ends the JVM."""
        self._gateway.close()
        self._process.end()

    def __enter__(self) -> "RecipeTephra":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
