"""Change your data and tell others about it in one transaction: both or neither."""

from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ParticipantFailed,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.messaging import Messaging, connect

__all__ = [
    "BadRequest",
    "Messaging",
    "MisusedTransaction",
    "ParticipantFailed",
    "TransactionConflict",
    "TransactionNotInProgress",
    "TransactionOutcomeUnknown",
    "TransactionRefused",
    "TxAwareError",
    "Unavailable",
    "connect",
]
