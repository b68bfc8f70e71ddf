"""Tephra's exceptions as ours, by the bare names of their Java classes."""

from coordinator.errors import (
    BadRequest,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionTooLarge,
    TruncateRefused,
    TxAwareError,
    Unavailable,
)

# Those that begin with TT and TI are what the Thrift service makes of the others.
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
    """Our class for a Java class of any package; `Unavailable` for an unknown one."""
    return TEPHRA_KINDS.get(java_class.rpartition(".")[2], Unavailable)
