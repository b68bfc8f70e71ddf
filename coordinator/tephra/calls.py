"""Tephra's own calls as a port: over py4j, or over its Thrift service."""

from collections.abc import Iterable
from typing import Protocol

import attrs

from coordinator.errors import (
    BadRequest,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionTooLarge,
    TruncateRefused,
    TxAwareError,
    Unavailable,
)
from coordinator.pointers import NO_POINTERS
from coordinator.transaction import Transaction


class TephraCalls(Protocol):
    """The calls of Tephra's TransactionManager, with nothing added.

    Any number of threads may call. Each call is sent once and raises the errors of
    this package; `Unavailable` leaves open whether it was done. `TephraRules` makes a
    `Coordinator` of it, and is the only caller.
    """

    def start_short(self, timeout_s: int | None) -> Transaction:
        """Begins a short transaction; None stands for Tephra's own default."""

    def start_long(self) -> Transaction: ...

    def can_commit(self, transaction_id: int, keys: frozenset[bytes]) -> None: ...

    def commit(self, transaction_id: int) -> None: ...

    def abort(self, tx: Transaction) -> None:
        """Ends `tx`, of which only the id, the type and the checkpoints count."""

    def invalidate(self, transaction_id: int) -> bool: ...

    def checkpoint(self, tx: Transaction) -> Transaction:
        """Returns `tx` with all checkpoints, and otherwise as it was sent."""

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool: ...

    def truncate_invalid_tx_before(self, time_ms: int) -> bool: ...

    def invalid_size(self) -> int: ...

    def status(self) -> str: ...


def stripped(tx: Transaction) -> Transaction:
    """Returns `tx` without the lists (up to 400 KB) that abort and checkpoint skip."""
    return attrs.evolve(tx, invalids=NO_POINTERS, in_progress=NO_POINTERS)


# The Thrift service turns the others into those that begin with TT and TI.
TEPHRA_KINDS: dict[str, type[TxAwareError]] = {
    "TransactionConflictException": TransactionConflict,
    "TTransactionConflictException": TransactionConflict,
    "TransactionNotInProgressException": TransactionNotInProgress,
    "TTransactionNotInProgressException": TransactionNotInProgress,
    "TransactionSizeException": TransactionTooLarge,
    "InvalidTruncateTimeException": TruncateRefused,
    "TInvalidTruncateTimeException": TruncateRefused,
    "IllegalArgumentException": BadRequest,
    "IllegalStateException": Unavailable,  # the manager is not running
}


def kind_of(java_class: str) -> type[TxAwareError]:
    """Returns our class for a Java class of any package; `Unavailable` if unknown."""
    return TEPHRA_KINDS.get(java_class.rpartition(".")[2], Unavailable)
