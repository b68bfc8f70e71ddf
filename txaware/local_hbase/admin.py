"""HBase's own Admin, for what its Thrift server cannot do."""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from coordinator.java.jars import cached_jars
from coordinator.java.jvm import Jvm
from txaware.errors import BadRequest, TxAwareError, Unavailable
from txaware.local_hbase.jars import HBASE_JARS, OPENED
from txaware.local_hbase.readiness import listens

ANSWER_TIMEOUT_S = 60.0
COMPACTION_TIMEOUT_S = 3600.0
_LOOK_AGAIN_S = 0.1
_ADDRESSES = re.compile(r"[^:,/]+:\d{1,5}(,[^:,/]+:\d{1,5})*")
_KINDS: dict[str, type[TxAwareError]] = {
    "TableNotFoundException": BadRequest,
    "TableNotEnabledException": BadRequest,
    "TableExistsException": BadRequest,
    "NamespaceNotFoundException": BadRequest,
    "DoNotRetryIOException": BadRequest,
    "IllegalArgumentException": BadRequest,
}


class HBaseAdmin:
    """HBase's Admin in a JVM of our own, for the cluster of one ZooKeeper.

    `zookeeper` is HOST:PORT, or several of them with commas between. Each call raises
    `Unavailable` if the cluster does not answer, and `BadRequest` for a table that is
    not there.
    """

    def __init__(
        self, zookeeper: str, *, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        _require_listener(zookeeper)
        # Java gives up first, and says why.
        patience_ms = int(answer_timeout_s * 1000 * 0.8)
        self._jvm = Jvm(
            cached_jars(HBASE_JARS), options=OPENED, answer_timeout_s=answer_timeout_s
        )
        try:
            hbase = self._jvm.view.org.apache.hadoop.hbase
            self._table_name = hbase.TableName.valueOf
            conf = hbase.HBaseConfiguration.create()
            for name, value in _settings(zookeeper, patience_ms).items():
                conf.set(name, value)
            self._connection = self._ask(
                hbase.client.ConnectionFactory.createConnection, conf
            )
            self._admin = self._ask(self._connection.getAdmin)
        except BaseException:
            self._jvm.kill()
            raise

    def tables(self, prefix: str = "") -> list[str]:
        """Returns the names of all tables that begin with `prefix`, in order."""
        names = [str(name) for name in self._ask(self._admin.listTableNames)]
        return sorted(name for name in names if name.startswith(prefix))

    def create_table(
        self,
        table: str,
        *,
        family: bytes,
        versions: int,
        bloom_filter: str,
        compression: str,
        split_keys: Sequence[bytes] = (),
    ) -> None:
        """Makes a table of one family, with a region more than there are split keys.

        Split keys are bytes that rise by one.
        """
        hbase = self._jvm.view.org.apache.hadoop.hbase
        client = hbase.client
        algorithm = hbase.io.compress.Compression.Algorithm
        described = (
            client.ColumnFamilyDescriptorBuilder.newBuilder(family)
            .setMaxVersions(versions)
            .setBloomFilterType(hbase.regionserver.BloomType.valueOf(bloom_filter))
            .setCompressionType(self._ask(algorithm.valueOf, compression))
            .build()
        )
        name = self._ask(self._table_name, table)
        builder = client.TableDescriptorBuilder.newBuilder(name)
        arguments = [builder.setColumnFamily(described).build()]
        if split_keys:
            arguments += [split_keys[0], split_keys[-1], len(split_keys) + 1]
        try:
            self._ask(self._admin.createTable, *arguments)
        except BadRequest as error:
            reason = str(error).partition("\n")[0]
            raise BadRequest(f"HBase does not make {table}: {reason}") from error

    def flush(self, table: str) -> None:
        """Writes a table from memory to files; that is done when this returns."""
        self._ask(self._admin.flush, self._name(table))

    def major_compact(
        self, table: str, *, timeout_s: float = COMPACTION_TIMEOUT_S
    ) -> None:
        """Writes the files of a table anew, without what is deleted or expired.

        That is done when this returns. Raises `Unavailable` after the time-out, while
        the region servers go on.
        """
        name = self._name(table)
        self._wait_for_no_compaction(name, timeout_s)
        self._ask(self._admin.majorCompact, name)
        self._wait_for_no_compaction(name, timeout_s)

    def store_bytes(self, table: str) -> int:
        """Returns the size of a table's files, as the region servers tell it.

        They count whole MiB, and one MiB for a region with less.
        """
        name = self._name(table)
        bytes_unit = self._jvm.view.org.apache.hadoop.hbase.Size.Unit.BYTE
        total = 0.0
        for server in self._ask(self._admin.getRegionServers):
            for region in self._ask(self._admin.getRegionMetrics, server, name):
                total += region.getStoreFileSize().get(bytes_unit)
        return int(total)

    def close(self) -> None:
        """Ends the JVM; a second close does nothing."""
        self._jvm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _name(self, table: str) -> Any:
        name = self._ask(self._table_name, table)
        if not self._ask(self._admin.tableExists, name):
            raise BadRequest(f"HBase has no table {table}")
        return name

    def _wait_for_no_compaction(self, name: Any, timeout_s: float) -> None:
        give_up = time.monotonic() + timeout_s
        while str(self._ask(self._admin.getCompactionState, name)) != "NONE":
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"the compaction of {name} was not done in {timeout_s} s"
                )
            time.sleep(_LOOK_AGAIN_S)

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return self._jvm.call(method, *arguments, kinds=_KINDS)


def _require_listener(zookeeper: str) -> None:
    """Raises `Unavailable` if no ZooKeeper listens.

    The client would otherwise look for it until nobody waits for the answer.
    """
    if not _ADDRESSES.fullmatch(zookeeper):
        raise BadRequest(
            f"ZooKeeper's address is HOST:PORT, or HOST:PORT,HOST:PORT, and not "
            f"{zookeeper!r}"
        )
    for address in zookeeper.split(","):
        host, _, port = address.rpartition(":")
        if listens(int(port), host=host):
            return
    raise Unavailable(f"no ZooKeeper listens at {zookeeper}")


def _settings(zookeeper: str, patience_ms: int) -> dict[str, str]:
    return {
        "hbase.zookeeper.quorum": zookeeper,
        "hbase.client.operation.timeout": str(patience_ms),
        "hbase.client.meta.operation.timeout": str(patience_ms),
        "hbase.rpc.timeout": str(patience_ms),
    }
