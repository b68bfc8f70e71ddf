"""The producer, whose publishes store nothing twice, however often they are tried."""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from threading import get_ident
from typing import Self, Unpack

from coordinator.brief_errors import briefly
from coordinator.fork_guard import guard
from coordinator.tracing import Headers
from txaware.errors import BadRequest, PartitionNeeded, PublisherClosed
from txaware.model.interfaces import Payload
from txaware.model.messages import (
    MessageId,
    MessageOptions,
    Outgoing,
    given,
    outgoing,
)
from txaware.model.partitions import full_name, parsed_rows
from txaware.model.producers import (
    ProducerIdentity,
    ProducerOpened,
    ProducerService,
    checked_sequence,
)
from txaware.model.signatures import unpacked
from txaware.model.traced_messages import all_carrying, sending
from txaware.publish.partition_publishes import PartitionPublishes
from txaware.publish.publisher import checked_many, checked_sizes_bytes
from txaware.publish.topic_sequence import SequenceCall, TopicSequence


def one_or_many(
    payloads: Payload | Iterable[Payload], options: MessageOptions
) -> Iterable[Payload]:
    """Returns many payloads as they are, and one in a list, with its options."""
    if isinstance(payloads, bytes | Outgoing):
        return [outgoing(payloads, options)]
    if options and given(options):
        raise BadRequest(
            "key, headers and expire_after_s are of one message: publish(topic, "
            "b'...', key=...); of many, each has its own in an Outgoing"
        )
    return payloads


class Producer:
    """A producer: a publish that is repeated stores nothing twice, in any topic.

    Any number of threads may share it; their calls to one topic go out in the order in
    which they came. After `Unavailable` nobody knows whether the messages are stored.
    The next call to that topic finds out first, and stores them if they are not. If it
    is a call of the same thread with the same messages, it is that call again: it
    returns the ids, and stores nothing else.
    """

    def __init__(
        self,
        service: ProducerService,
        *,
        message_limit_bytes: int,
        opened: ProducerOpened | None = None,
        partitions: Callable[[str], int],
    ) -> None:
        self._service = service
        self._spread = PartitionPublishes(partitions)
        self._message_limit_bytes = message_limit_bytes
        self._identity = (opened or service.open_producer()).identity
        self._lock = threading.Lock()
        self._sequences: dict[str, TopicSequence] = {}
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

    @property
    def identity(self) -> ProducerIdentity:
        """The id and the epoch, as `publish_once` takes them."""
        return self._identity

    @unpacked
    @briefly
    def publish(
        self,
        topic: str,
        payloads: Payload | Iterable[Payload],
        sequence: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> list[MessageId]:
        """Publishes in one piece, and returns the ids; a repeat returns the same ones.

        `payloads` are many, or one: the options are of one, as those of an `Outgoing`.
        `sequence` is the number of the first message, counted in messages for each
        topic, from 0; by default it is the next one. Messages that are all among the
        last five requests are a repeat. A gap ends the producer: every later publish
        raises `OutOfOrderSequence` too.

        To a topic of several partitions it is a piece for each that gets any, and each
        has sequences of its own.
        """
        many = one_or_many(payloads, options)
        line, messages = self._checked(topic, many, sequence)
        with sending("publish", full_name(topic), messages) as context:
            try:
                if not self._spread.has(topic):
                    ids = None
                    if context is None:
                        ids = line.publish_alone(messages, sequence)
                    if ids is not None:
                        return ids
                    return line.publish(self._call(messages, sequence, context=context))
            except PartitionNeeded:
                self._forget(topic)
            caller = get_ident()
            return self._publish_spread(topic, messages, sequence, caller, context)

    def _publish_spread(
        self,
        topic: str,
        messages: list[Payload],
        sequence: int | None,
        caller: object,
        context: Headers | None,
    ) -> list[MessageId]:
        def publish(name: str, part: list[Payload]) -> list[MessageId]:
            call = self._call(part, None, caller, context=context)
            return self._sequence(name).publish(call)

        name = full_name(topic)
        return self._spread.publish(
            name, messages, publish, caller=caller, sequence=sequence
        )

    def _forget(self, topic: str) -> None:
        """Forgets the sequence of a whole topic, which has one in each partition."""
        with self._lock:
            self._sequences.pop(topic, None)
            self._sequences.pop(str(parsed_rows(topic)), None)

    def take(
        self,
        topic: str,
        payloads: Iterable[Payload],
        sequence: int | None = None,
        *,
        caller: object = None,
        context: Headers | None = None,
    ) -> Callable[[], list[MessageId]]:
        """Takes a publish behind all before it; returns the function that finishes it.

        Nothing waits until that is called, which it has to be. `caller` is a task, for
        callers that are no threads. `context` are headers that are not the caller's.
        """
        line, messages = self._checked(topic, payloads, sequence)
        call = self._call(messages, sequence, caller, context=context)
        spread = partial(
            self._publish_spread, topic, messages, sequence, call.caller, context
        )
        if self._spread.has(topic):
            return spread
        line.take(call)

        def finish() -> list[MessageId]:
            try:
                return line.finish(call)
            except PartitionNeeded:
                self._forget(topic)
            return spread()

        return finish

    def _checked(
        self, topic: str, payloads: Iterable[Payload], sequence: int | None
    ) -> tuple[TopicSequence, list[Payload]]:
        if self._closed:
            raise PublisherClosed("the producer is closed, and took nothing")
        line = self._sequence(topic)
        messages = list(checked_many(payloads, call="publish"))
        if not messages:
            raise BadRequest("a publish of a producer has messages")
        if sequence is not None:
            checked_sequence(sequence)
        return line, messages

    def _call(
        self,
        messages: list[Payload],
        sequence: int | None,
        caller: object = None,
        *,
        context: Headers | None = None,
    ) -> SequenceCall:
        """Returns a call that may go out with others, once its messages are checked."""
        carried = messages if context is None else all_carrying(messages, context)
        size_bytes = checked_sizes_bytes(carried, self._message_limit_bytes)
        return SequenceCall(
            messages, size_bytes, sequence, caller=caller, carried=carried
        )

    def _sequence(self, topic: str) -> TopicSequence:
        found = self._sequences.get(topic) if isinstance(topic, str) else None
        if found is not None:  # by the name as it is said, without reading it again
            return found
        name = full_name(topic)
        with self._lock:
            made = TopicSequence(partial(self._send, name))
            # The first partition is that of the topic alone, by either name.
            found = self._sequences.setdefault(str(parsed_rows(topic)), made)
            self._sequences[topic] = found
        return found

    def _send(
        self, topic: str, sequence: int, messages: list[Payload]
    ) -> list[MessageId]:
        return self._service.publish_once(
            topic, messages, producer=self._identity, sequence=sequence
        )

    def close(self) -> None:
        """Takes no more messages; a second close does nothing."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.producer_id}>"
