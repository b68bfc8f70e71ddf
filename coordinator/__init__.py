"""Gives out transaction snapshots, decides commits, and takes participants through."""

from coordinator.context import (
    Status,
    TransactionContext,
    current_transaction,
    transaction,
)
from coordinator.embedded import EmbeddedCoordinator
from coordinator.interfaces import Coordinator, TransactionAware
from coordinator.retry import retry_on_conflict
from coordinator.transaction import Transaction, TransactionType, VisibilityLevel

__all__ = [
    "Coordinator",
    "EmbeddedCoordinator",
    "Status",
    "Transaction",
    "TransactionAware",
    "TransactionContext",
    "TransactionType",
    "VisibilityLevel",
    "current_transaction",
    "retry_on_conflict",
    "transaction",
]
