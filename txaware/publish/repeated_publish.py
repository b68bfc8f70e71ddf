"""A publish that is tried again and again, and stored once: for loops that retry."""

import secrets
from typing import Protocol, runtime_checkable

from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId
from txaware.model.producers import MAX_PRODUCER_ID, SEQUENCES, ProducerIdentity


@runtime_checkable
class KnowsRepeats(Protocol):
    """A service that knows the repeat of a publish again; see `ProducerService`."""

    def publish_once(
        self,
        topic: str,
        messages: list[Payload],
        *,
        producer: ProducerIdentity,
        sequence: int,
    ) -> list[MessageId]:
        """Publishes in one piece, unless it did already."""


class OwnProducer:
    """A producer that its client draws by itself, and that its first publish opens.

    It has one request under way at a time. `next` says the sequence for each topic.
    """

    def __init__(self) -> None:
        self.identity = ProducerIdentity(
            secrets.randbelow(MAX_PRODUCER_ID) + 1, by_client=True
        )
        self._next: dict[str, int] = {}

    @property
    def is_new(self) -> bool:
        """True until a publish of it was stored."""
        return not self._next

    def next(self, topic: str) -> int:
        """Returns the sequence of the next message for a topic."""
        return self._next.get(topic, 0)

    def stored(self, topic: str, count: int) -> None:
        """Notes that the next so many messages are stored."""
        self._next[topic] = (self.next(topic) + count) % SEQUENCES
