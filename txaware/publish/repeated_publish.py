"""A publish that is tried again and again, and stored once: for loops that retry."""

import secrets
from collections.abc import Callable
from typing import Any, Protocol

from txaware.errors import OutOfOrderSequence, ProducerFenced, changed_nothing
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.messages import MessageId
from txaware.model.producers import MAX_PRODUCER_ID, SEQUENCES, ProducerIdentity


class PublishesOnce(Protocol):
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


class RepeatedPublish:
    """Publishes batches to one topic, each until it is stored or given up.

    One thread uses it. A batch that is given up may be stored; then the next one comes
    from a new producer. A service that knows no producers, as one of a caller's own,
    gets plain publishes.
    """

    def __init__(self, service: PublishesOnce | MessagingService, topic: str) -> None:
        self._service: Any = service
        self._knows_producers = hasattr(service, "publish_once")
        self._topic = topic
        self._producer = OwnProducer()

    def publish(self, messages: list[Payload], retrying: Callable[..., object]) -> None:
        """Publishes a batch; `retrying` calls what it is given, and its arguments."""
        try:
            try:
                retrying(self._publish, messages)
            except (ProducerFenced, OutOfOrderSequence):
                if self._producer.is_new:
                    raise
                # It was idle for too long; nothing of this batch is stored.
                self._producer = OwnProducer()
                retrying(self._publish, messages)
        except BaseException as error:
            if not changed_nothing(error):
                self._producer = OwnProducer()
            raise
        self._producer.stored(self._topic, len(messages))

    def _publish(self, messages: list[Payload]) -> None:
        if not self._knows_producers:
            self._service.publish(self._topic, messages)
            return
        self._service.publish_once(
            self._topic,
            messages,
            producer=self._producer.identity,
            sequence=self._producer.next(self._topic),
        )
