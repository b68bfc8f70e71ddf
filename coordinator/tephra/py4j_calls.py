"""Tephra's calls over py4j."""

from collections.abc import Callable, Iterable
from typing import Any

from coordinator import codec
from coordinator.errors import TransactionTooLarge
from coordinator.tephra.calls import TEPHRA_KINDS
from coordinator.tephra.local import LocalTephra
from coordinator.tephra.thrift_messages import encode_changes, encode_pointers
from coordinator.transaction import Transaction

# A list costs a round trip an element, so above this many keys go as one value.
KEYS_ONE_BY_ONE = 4
# The handler for many keys says this of a change set that is too large, and only then.
_KINDS = TEPHRA_KINDS | {"TGenericException": TransactionTooLarge}


class Py4JCalls:
    """`TephraCalls` on the manager of a `LocalTephra`.

    Java transactions are never kept: only their bytes are passed on.
    """

    def __init__(self, tephra: LocalTephra) -> None:
        self._jvm = tephra.jvm
        self._manager = tephra.manager
        java = tephra.jvm.view
        self._codec = java.org.apache.tephra.TransactionCodec()
        self._thrift = java.org.apache.tephra.distributed.thrift.TTransactionServer
        self._handler = (
            java.org.apache.tephra.distributed.TransactionServiceThriftHandler(
                tephra.manager, None
            )
        )
        self._read_struct = java.org.apache.thrift.TDeserializer
        self._singleton = java.java.util.Collections.singleton
        self._no_keys = java.java.util.Collections.emptySet()

    def start_short(self, timeout_s: int | None) -> Transaction:
        start = self._manager.startShort
        return self._read(
            self._ask(start) if timeout_s is None else self._ask(start, timeout_s)
        )

    def start_long(self) -> Transaction:
        return self._read(self._ask(self._manager.startLong))

    def can_commit(self, transaction_id: int, keys: frozenset[bytes]) -> None:
        if len(keys) > KEYS_ONE_BY_ONE:
            arguments = self._ask(self._thrift.canCommitOrThrow_args)
            self._fill(arguments, encode_changes(keys))
            changes = self._ask(arguments.getChanges)
            self._ask(self._handler.canCommitOrThrow, transaction_id, changes)
            return
        if len(keys) == 1:
            changes = self._ask(self._singleton, *keys)
        else:
            changes = list(keys) or self._no_keys
        self._ask(self._manager.canCommit, transaction_id, changes)

    def commit(self, transaction_id: int) -> None:
        self._ask(self._manager.commit, transaction_id, transaction_id)

    def abort(self, tx: Transaction) -> None:
        self._ask(self._manager.abort, self._write(tx))

    def invalidate(self, transaction_id: int) -> bool:
        return bool(self._ask(self._manager.invalidate, transaction_id))

    def checkpoint(self, tx: Transaction) -> Transaction:
        return self._read(self._ask(self._manager.checkpoint, self._write(tx)))

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        # Not as a Python set: py4j sends a small int as an Integer, which is no Long.
        arguments = self._ask(self._thrift.truncateInvalidTx_args)
        self._fill(arguments, encode_pointers(pointers))
        listed = self._ask(arguments.getTxns)
        return bool(self._ask(self._manager.truncateInvalidTx, listed))

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        return bool(self._ask(self._manager.truncateInvalidTxBefore, time_ms))

    def invalid_size(self) -> int:
        return int(self._ask(self._manager.getInvalidSize))

    def status(self) -> str:
        if self._ask(self._manager.isRunning):
            return "OK"
        return f"Tephra is {self._ask(self._manager.state).toString().lower()}"

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return self._jvm.call(method, *arguments, kinds=_KINDS)

    def _read(self, java_tx: Any) -> Transaction:
        return codec.decode(self._jvm.read_bytes(self._codec, "encode", java_tx))

    def _write(self, tx: Transaction) -> Any:
        return self._ask(self._codec.decode, codec.encode(tx))

    def _fill(self, arguments: Any, encoded: bytes) -> None:
        """Fills a Java struct of Thrift's from its bytes, in few round trips."""
        self._ask(self._ask(self._read_struct).deserialize, arguments, encoded)
