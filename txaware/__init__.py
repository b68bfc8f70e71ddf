"""Change your data and tell others about it in one transaction: both or neither."""

import importlib
import logging
import typing

from coordinator import (
    Coordinator,
    Participant,
    Status,
    Transaction,
    TransactionAware,
    TransactionContext,
    retry_on_conflict,
)
from coordinator.prepared_transactions import PreparedTransaction
from txaware.auth import AuditLog, Tokens
from txaware.consume import Consumer, Delivery, Member, Subscriber, SubscriberMetrics
from txaware.errors import (
    BadRequest,
    DuplicateSequence,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    InvalidTransactionTimeout,
    KeeperMissing,
    LeaseLost,
    MemberFenced,
    MisusedTransaction,
    NotAuthenticated,
    NotAuthorized,
    OutOfOrderSequence,
    ParticipantFailed,
    PartitionNeeded,
    ProducerFenced,
    ProducerNotFound,
    QueueExists,
    QueueFull,
    QueueNotFound,
    RequestTooLarge,
    SequenceAhead,
    ShardAway,
    ShardMissing,
    StoreCorrupted,
    TooManyPipes,
    TopicExists,
    TopicNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.messaging import Messaging, MessagingTransaction, connect
from txaware.messaging.broadcast import BroadcastConsumer, Instance
from txaware.messaging.parts import Reach
from txaware.messaging.processor import Processor
from txaware.messaging.store_copy import copy
from txaware.messaging.typed_topic import TypedTopic
from txaware.model.encoding import from_json, from_json_as, to_json
from txaware.model.groups import (
    GroupDescription,
    GroupMember,
    NamedPartition,
    PartitionPosition,
)
from txaware.model.interfaces import OperatorService
from txaware.model.keeper import Keeper, KeepsRows
from txaware.model.latest import Latest, LatestPage
from txaware.model.messages import (
    BlockedBy,
    Bounds,
    Message,
    MessageId,
    MessageOptions,
    Outgoing,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.model.metrics import Metrics
from txaware.model.producers import (
    KnownProducer,
    ProducedTopic,
    ProducerIdentity,
    ProducerOpened,
)
from txaware.model.queues import QueueDescriptor, QueueItem, QueueStats, Waiting
from txaware.model.reports import (
    CleanUp,
    MessagingStatus,
    Peeked,
    Pruned,
    Report,
    SearchPage,
    TopicReport,
)
from txaware.model.settings import Settings
from txaware.model.shards import Shard
from txaware.model.topics import Topic, TopicName
from txaware.publish import (
    AsyncPublisher,
    AtMostOncePublisher,
    DirectPublisher,
    EncodingPublisher,
    Producer,
    Publisher,
    Sender,
    SenderLimits,
    SenderMetrics,
    SenderOptions,
    Sent,
    SentFuture,
)
from txaware.publish.transactional_producer import TransactionalProducer
from txaware.queue import Job, Popper, Pusher, Queue, Worker, WorkerMetrics
from txaware.service.administration import Administration
from txaware.service.transfer.backup import Backup
from txaware.service.transfer.copying import Copied
from txaware.tables import Table

if typing.TYPE_CHECKING:
    from txaware.app.app import App
    from txaware.client import ClientSettings, HttpAdministration, ServerInfo
    from txaware.client.aio.async_broadcast import AsyncBroadcastConsumer
    from txaware.client.aio.async_consumer import TopicConsumer
    from txaware.client.aio.async_loops import (
        AsyncProcessor,
        AsyncSubscriber,
        AsyncWorker,
    )
    from txaware.client.aio.async_member import AsyncMember
    from txaware.client.aio.async_messaging import AsyncMessaging, connect_async
    from txaware.client.aio.async_producer import (
        AsyncProducer,
        AsyncTransactionalProducer,
    )
    from txaware.client.aio.async_publisher import TopicPublisher
    from txaware.client.aio.async_queue import (
        AsyncJob,
        AsyncPopper,
        AsyncPusher,
        AsyncQueue,
    )
    from txaware.client.aio.async_sender import AsyncSender
    from txaware.client.aio.async_table import AsyncTable
    from txaware.client.aio.async_transaction import AsyncTransaction
    from txaware.client.aio.async_typed_topic import AsyncTypedTopic
    from txaware.participants.outbox_writer import (
        AsyncOutbox,
        Outbox,
        outbox,
        outbox_async,
    )
    from txaware.server.server import HttpServer

__all__ = [
    "Administration",
    "App",
    "AsyncBroadcastConsumer",
    "AsyncJob",
    "AsyncMember",
    "AsyncMessaging",
    "AsyncOutbox",
    "AsyncPopper",
    "AsyncProcessor",
    "AsyncProducer",
    "AsyncPublisher",
    "AsyncPusher",
    "AsyncQueue",
    "AsyncSender",
    "AsyncSubscriber",
    "AsyncTable",
    "AsyncTransaction",
    "AsyncTransactionalProducer",
    "AsyncTypedTopic",
    "AsyncWorker",
    "AtMostOncePublisher",
    "AuditLog",
    "Backup",
    "BadRequest",
    "BlockedBy",
    "Bounds",
    "BroadcastConsumer",
    "CleanUp",
    "ClientSettings",
    "Consumer",
    "Coordinator",
    "Copied",
    "Delivery",
    "DirectPublisher",
    "DuplicateSequence",
    "EncodingPublisher",
    "GroupDescription",
    "GroupFull",
    "GroupInUse",
    "GroupMember",
    "GroupNotFound",
    "HttpAdministration",
    "HttpServer",
    "Instance",
    "InvalidTransactionTimeout",
    "Job",
    "Keeper",
    "KeeperMissing",
    "KeepsRows",
    "KnownProducer",
    "Latest",
    "LatestPage",
    "LeaseLost",
    "Member",
    "MemberFenced",
    "Message",
    "MessageId",
    "MessageOptions",
    "Messaging",
    "MessagingStatus",
    "MessagingTransaction",
    "Metrics",
    "MisusedTransaction",
    "NamedPartition",
    "NotAuthenticated",
    "NotAuthorized",
    "OperatorService",
    "OutOfOrderSequence",
    "Outbox",
    "Outgoing",
    "Page",
    "Participant",
    "ParticipantFailed",
    "PartitionNeeded",
    "PartitionPosition",
    "Peeked",
    "Popper",
    "PreparedTransaction",
    "Processor",
    "ProducedTopic",
    "Producer",
    "ProducerFenced",
    "ProducerIdentity",
    "ProducerNotFound",
    "ProducerOpened",
    "Pruned",
    "PublishResponse",
    "Publisher",
    "Pusher",
    "Queue",
    "QueueDescriptor",
    "QueueExists",
    "QueueFull",
    "QueueItem",
    "QueueNotFound",
    "QueueStats",
    "Reach",
    "Receipt",
    "Report",
    "RequestTooLarge",
    "SearchPage",
    "Sender",
    "SenderLimits",
    "SenderMetrics",
    "SenderOptions",
    "Sent",
    "SentFuture",
    "SequenceAhead",
    "ServerInfo",
    "Settings",
    "Shard",
    "ShardAway",
    "ShardMissing",
    "Status",
    "StoreCorrupted",
    "Subscriber",
    "SubscriberMetrics",
    "Table",
    "Tokens",
    "TooManyPipes",
    "Topic",
    "TopicConsumer",
    "TopicExists",
    "TopicName",
    "TopicNotFound",
    "TopicPublisher",
    "TopicReport",
    "Transaction",
    "TransactionAware",
    "TransactionConflict",
    "TransactionContext",
    "TransactionNotInProgress",
    "TransactionOutcomeUnknown",
    "TransactionRefused",
    "TransactionalProducer",
    "TxAwareError",
    "TypedTopic",
    "Unavailable",
    "Waiting",
    "Worker",
    "WorkerMetrics",
    "connect",
    "connect_async",
    "copy",
    "from_json",
    "from_json_as",
    "outbox",
    "outbox_async",
    "retry_on_conflict",
    "to_json",
]

# These are imported when they are first asked for: a server, a client and an event loop
# take long to import, and many programs have none of them.
_WHERE = {
    "App": "txaware.app.app",
    "AsyncBroadcastConsumer": "txaware.client.aio.async_broadcast",
    "AsyncJob": "txaware.client.aio.async_queue",
    "AsyncMessaging": "txaware.client.aio.async_messaging",
    "AsyncOutbox": "txaware.participants.outbox_writer",
    "AsyncPopper": "txaware.client.aio.async_queue",
    "AsyncProcessor": "txaware.client.aio.async_loops",
    "AsyncMember": "txaware.client.aio.async_member",
    "AsyncProducer": "txaware.client.aio.async_producer",
    "AsyncPusher": "txaware.client.aio.async_queue",
    "AsyncQueue": "txaware.client.aio.async_queue",
    "AsyncSender": "txaware.client.aio.async_sender",
    "AsyncSubscriber": "txaware.client.aio.async_loops",
    "AsyncTable": "txaware.client.aio.async_table",
    "AsyncTransaction": "txaware.client.aio.async_transaction",
    "AsyncTransactionalProducer": "txaware.client.aio.async_producer",
    "AsyncTypedTopic": "txaware.client.aio.async_typed_topic",
    "AsyncWorker": "txaware.client.aio.async_loops",
    "ClientSettings": "txaware.client",
    "HttpAdministration": "txaware.client",
    "HttpServer": "txaware.server.server",
    "Outbox": "txaware.participants.outbox_writer",
    "ServerInfo": "txaware.client",
    "TopicConsumer": "txaware.client.aio.async_consumer",
    "TopicPublisher": "txaware.client.aio.async_publisher",
    "connect_async": "txaware.client.aio.async_messaging",
    "outbox": "txaware.participants.outbox_writer",
    "outbox_async": "txaware.participants.outbox_writer",
}


if not typing.TYPE_CHECKING:  # a type checker would take any name for one of these

    def __getattr__(name: str) -> object:
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__


# The program decides what it shows of the log; without this Python prints warnings.
logging.getLogger(__name__).addHandler(logging.NullHandler())
