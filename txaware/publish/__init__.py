"""Publishers: with a transaction, at once, and in the background."""

from txaware.publish.background_publishers import AsyncPublisher, AtMostOncePublisher
from txaware.publish.outbox import TakesItems, TransactionPublisher
from txaware.publish.producer import Producer
from txaware.publish.publisher import (
    DirectPublisher,
    EncodingPublisher,
    KnownTopics,
    Publisher,
    publisher_key,
)
from txaware.publish.send_batch import Sent, SentFuture
from txaware.publish.sender import Sender, SenderLimits, SenderMetrics, SenderOptions
from txaware.publish.tracked_calls import WrittenByHand, written_by_hand

__all__ = [
    "AsyncPublisher",
    "AtMostOncePublisher",
    "DirectPublisher",
    "EncodingPublisher",
    "KnownTopics",
    "Producer",
    "Publisher",
    "Sender",
    "SenderLimits",
    "SenderMetrics",
    "SenderOptions",
    "Sent",
    "SentFuture",
    "TakesItems",
    "TransactionPublisher",
    "WrittenByHand",
    "publisher_key",
    "written_by_hand",
]
