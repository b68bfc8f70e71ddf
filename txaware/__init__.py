"""Change your data and tell others about it in one transaction: both or neither."""

import logging

from txaware.config import Settings
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ParticipantFailed,
    QueueFull,
    RequestTooLarge,
    TopicExists,
    TopicNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.messages import Message, MessageId, Outgoing, Page
from txaware.messaging import Messaging, connect

__all__ = [
    "BadRequest",
    "Message",
    "MessageId",
    "Messaging",
    "MisusedTransaction",
    "Outgoing",
    "Page",
    "ParticipantFailed",
    "QueueFull",
    "RequestTooLarge",
    "Settings",
    "TopicExists",
    "TopicNotFound",
    "TransactionConflict",
    "TransactionNotInProgress",
    "TransactionOutcomeUnknown",
    "TransactionRefused",
    "TxAwareError",
    "Unavailable",
    "connect",
]

# What is logged is the program's to show; without this Python prints warnings itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())
