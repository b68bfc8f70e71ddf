"""Gives out transaction snapshots, decides commits, and takes participants through."""

from coordinator.address import open_coordinator
from coordinator.context import (
    TransactionContext,
    current_transaction,
    transaction,
)
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator, Participant, TransactionAware
from coordinator.java.participant import JavaParticipant
from coordinator.outcome import Outcome
from coordinator.retry import retry_on_conflict
from coordinator.tephra import TephraCoordinator, ThriftCoordinator
from coordinator.transaction import (
    Status,
    Transaction,
    TransactionType,
    VisibilityLevel,
)

__all__ = [
    "Coordinator",
    "EmbeddedCoordinator",
    "JavaParticipant",
    "Outcome",
    "Participant",
    "Status",
    "TephraCoordinator",
    "ThriftCoordinator",
    "Transaction",
    "TransactionAware",
    "TransactionContext",
    "TransactionType",
    "VisibilityLevel",
    "current_transaction",
    "open_coordinator",
    "retry_on_conflict",
    "transaction",
]
