"""Change your data and tell others about it in one transaction: both or neither."""

import logging

from coordinator import TransactionAware, TransactionContext, retry_on_conflict
from txaware.config import Settings
from txaware.consume import Consumer, Subscriber
from txaware.errors import (
    BadRequest,
    KeeperMissing,
    MisusedTransaction,
    NotAuthenticated,
    NotAuthorized,
    ParticipantFailed,
    QueueFull,
    RequestTooLarge,
    StoreCorrupted,
    TopicExists,
    TopicNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.http.client.aio import AsyncMessaging, connect_async
from txaware.messages import (
    Message,
    MessageId,
    Outgoing,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.messaging import Messaging, connect
from txaware.moving import copy
from txaware.publish import Publisher
from txaware.topics import Topic

__all__ = [
    "AsyncMessaging",
    "BadRequest",
    "Consumer",
    "KeeperMissing",
    "Message",
    "MessageId",
    "Messaging",
    "MisusedTransaction",
    "NotAuthenticated",
    "NotAuthorized",
    "Outgoing",
    "Page",
    "ParticipantFailed",
    "PublishResponse",
    "Publisher",
    "QueueFull",
    "Receipt",
    "RequestTooLarge",
    "Settings",
    "StoreCorrupted",
    "Subscriber",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "TransactionAware",
    "TransactionConflict",
    "TransactionContext",
    "TransactionNotInProgress",
    "TransactionOutcomeUnknown",
    "TransactionRefused",
    "TxAwareError",
    "Unavailable",
    "connect",
    "connect_async",
    "copy",
    "retry_on_conflict",
]

# What is logged is the program's to show; without this Python prints warnings itself.
logging.getLogger(__name__).addHandler(logging.NullHandler())
