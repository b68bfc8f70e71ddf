"""Everything that publishes: with a transaction, at once, and in the background."""

from txaware.publish.asynchronous import AsyncPublisher
from txaware.publish.at_most_once import AtMostOncePublisher
from txaware.publish.by_hand import WrittenByHand, written_by_hand
from txaware.publish.publisher import (
    DirectPublisher,
    KnownTopics,
    Publisher,
    publisher_key,
)
from txaware.publish.transactional import TransactionPublisher

__all__ = [
    "AsyncPublisher",
    "AtMostOncePublisher",
    "DirectPublisher",
    "KnownTopics",
    "Publisher",
    "TransactionPublisher",
    "WrittenByHand",
    "publisher_key",
    "written_by_hand",
]
