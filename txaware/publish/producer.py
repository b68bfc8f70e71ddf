"""The producer, whose publishes store nothing twice, however often they are tried."""

from collections.abc import Iterable
from typing import Self

from coordinator.fork_guard import guard
from txaware.errors import BadRequest, PublisherClosed
from txaware.interfaces import Payload, ProducerService
from txaware.messages import MessageId
from txaware.producers import (
    SEQUENCES,
    ProducerIdentity,
    ProducerOpened,
    checked_sequence,
)
from txaware.publish.publisher import checked_many
from txaware.topics import TopicName


class Producer:
    """A producer: a publish that is repeated stores nothing twice, in any topic.

    Any number of threads may share it. Each topic has a sequence of its own.
    """

    def __init__(
        self,
        service: ProducerService,
        *,
        message_limit_bytes: int,
        opened: ProducerOpened | None = None,
    ) -> None:
        self._service = service
        self._message_limit_bytes = message_limit_bytes
        opened = service.open_producer() if opened is None else opened
        self._identity: ProducerIdentity = opened.identity
        self._next: dict[str, int] = {}
        self._closed = False
        guard(self)

    @property
    def producer_id(self) -> int:
        """The id by which the store knows this producer."""
        return self._identity.producer_id

    @property
    def epoch(self) -> int:
        """The epoch of this producer."""
        return self._identity.epoch

    def publish(
        self, topic: str, payloads: Iterable[Payload], sequence: int | None = None
    ) -> list[MessageId]:
        """Publishes in one piece, and returns the ids; a repeat returns the same ones.

        `sequence` is the number of the first message, counted in messages for each
        topic, from 0; by default it is the next one. A gap ends the producer.
        """
        if self._closed:
            raise PublisherClosed("the producer is closed, and took nothing")
        name, messages = str(TopicName.parse(topic)), list(checked_many(payloads))
        if not messages:
            raise BadRequest("a publish of a producer has messages")
        base = self._next.get(name, 0) if sequence is None else sequence
        ids = self._service.publish_once(
            name, messages, producer=self._identity, sequence=checked_sequence(base)
        )
        self._next[name] = (base + len(messages)) % SEQUENCES
        return ids

    def close(self) -> None:
        """Takes no more messages; a second close does nothing."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.producer_id}>"
