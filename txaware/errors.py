"""The errors of this project, those of the coordinator among them.

`TxAwareError` is the root; the tree is drawn in `coordinator/errors.py`.
"""

from coordinator.errors import (
    BadRequest,
    JournalCorrupted,
    MalformedTransaction,
    MissingExtra,
    MisusedTransaction,
    NotWritten,
    ParticipantFailed,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
    TransactionTooLarge,
    TruncateRefused,
    TxAwareError,
    Unavailable,
)

__all__ = [
    "BadRequest",
    "JournalCorrupted",
    "MalformedTransaction",
    "MissingExtra",
    "MisusedTransaction",
    "NotWritten",
    "ParticipantFailed",
    "TransactionConflict",
    "TransactionNotInProgress",
    "TransactionOutcomeUnknown",
    "TransactionRefused",
    "TransactionTooLarge",
    "TruncateRefused",
    "TxAwareError",
    "Unavailable",
]
