"""Lets an object in the JVM, written for Tephra in Java, take part in a transaction."""

from collections.abc import Callable
from typing import Any

from coordinator import codec
from coordinator.errors import ParticipantFailed
from coordinator.interfaces import Participant
from coordinator.java.jvm import Jvm
from coordinator.tephra.calls import TEPHRA_KINDS
from coordinator.transaction import Transaction


class JavaParticipant(Participant):
    """A `TransactionAware` that passes every call on to a Java TransactionAware.

    `java_object` lives in `jvm`, which has Tephra on its classpath: that of a
    `TephraCoordinator`, for example. An exception of Tephra's becomes our error of the
    same kind. Any other exception in Java becomes `ParticipantFailed`.
    """

    def __init__(self, java_object: Any, jvm: Jvm) -> None:
        self._java = java_object
        self._jvm = jvm
        self._codec = jvm.view.org.apache.tephra.TransactionCodec()
        self._new_list = jvm.view.java.util.ArrayList

    @property
    def transaction_aware_name(self) -> str:  # type: ignore[override]
        """The name that the Java object has for itself."""
        return str(self._ask(self._java.getTransactionAwareName))

    def start_tx(self, tx: Transaction) -> None:
        """Tells the Java object that a transaction begins."""
        self._ask(self._java.startTx, self._as_java(tx))

    def update_tx(self, tx: Transaction) -> None:
        """Tells the Java object that the transaction has a new write pointer."""
        self._ask(self._java.updateTx, self._as_java(tx))

    def get_tx_changes(self) -> list[bytes]:
        """Returns the keys changed so far."""
        changes = self._ask(self._java.getTxChanges)
        if changes is None:
            return []
        listed = self._ask(self._new_list, changes)
        return [bytes(self._ask(listed.get, i)) for i in range(len(listed))]

    def commit_tx(self) -> bool:
        """Has the Java object write its changes."""
        return bool(self._ask(self._java.commitTx))

    def post_tx_commit(self) -> None:
        """Tells the Java object that the transaction is committed."""
        self._ask(self._java.postTxCommit)

    def rollback_tx(self) -> bool:
        """Has the Java object undo its writes."""
        return bool(self._ask(self._java.rollbackTx))

    def _as_java(self, tx: Transaction) -> Any:
        return self._ask(self._codec.decode, codec.encode(tx))

    def _ask(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return self._jvm.call(
            method, *arguments, kinds=TEPHRA_KINDS, otherwise=ParticipantFailed
        )
