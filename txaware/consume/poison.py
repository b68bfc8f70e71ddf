"""Poison: messages that fail again and again, and the dead letters made of them.

`Suspects` counts failures, `DeadLetters` publishes the messages that are given up, and
`HandlingStep` is one transaction of a subscriber: its messages, and their outcome.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import attrs

from coordinator.interfaces import Participant
from coordinator.participants import TrackedWrite
from coordinator.transaction import Transaction
from txaware.consume.subscribe_options import Delivery
from txaware.errors import (
    BadRequest,
    NotAuthorized,
    TopicExists,
    TopicNotFound,
    error_text,
)
from txaware.model.interfaces import MessagingService
from txaware.model.labels import MAX_HEADERS_BYTES, packed_bytes
from txaware.model.messages import Message, MessageId, Outgoing, PublishResponse
from txaware.model.requests import Payload

ENDED_PROCESS = "the process ended in each of its tries"


class Suspects:
    """Messages that may have made a transaction fail; each is tried alone.

    A message is poison once it has failed `tries` times alone; never if that is None.
    """

    def __init__(self, tries: int | None) -> None:
        self._tries = tries
        self._failures: dict[MessageId, int] = {}
        self._errors: dict[MessageId, str] = {}

    def __bool__(self) -> bool:
        """True while there are any."""
        return bool(self._failures)

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self._failures

    def is_poison(self, message_id: MessageId) -> bool:
        """Tells whether a message has failed often enough to be given up."""
        return self._tries is not None and self.failures(message_id) >= self._tries

    def failures(self, message_id: MessageId) -> int:
        """Returns how often a message failed alone."""
        return self._failures.get(message_id, 0)

    def error(self, message_id: MessageId) -> str:
        """Returns the last error of a message."""
        return self._errors.get(message_id, ENDED_PROCESS)

    def count_from(self, first: MessageId) -> int:
        """Counts the suspects from a message on."""
        return sum(each >= first for each in self._failures)

    def inherit(self, message_ids: Sequence[MessageId], failures: int) -> None:
        """Suspects messages in which an earlier process ended.

        `failures` is how often the first one of them had failed.
        """
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)
        for first in message_ids[:1]:
            self._failures[first] = max(self._failures[first], failures)

    def failed(self, message_id: MessageId, error: str) -> None:
        """Counts a failure of a message that was tried alone."""
        self._failures[message_id] = self._failures.get(message_id, 0) + 1
        self._errors[message_id] = error

    def failed_together(self, message_ids: list[MessageId], error: str) -> None:
        """Suspects all messages of a batch; one failed, and nobody knows which."""
        if len(message_ids) == 1:
            self.failed(message_ids[0], error)
            return
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)

    def passed(self, last: MessageId) -> None:
        """Forgets all suspects up to a message: they are done, here or elsewhere."""
        for message_id in [each for each in self._failures if each <= last]:
            del self._failures[message_id]
            self._errors.pop(message_id, None)


logger = logging.getLogger(__name__)

# Publishes messages to a topic with the open block.
Publish = Callable[[str, list[Payload]], None]
PER_MS = 1 << 16
MOST_OF_AN_ERROR = 1000
# The header of a dead letter that says what kept it from being read.
ERROR = "error"


@attrs.frozen
class Origin:
    """The origin of a dead letter: its topic and id, and why it was given up."""

    topic: str
    id: MessageId
    group: str | None
    tries: int
    error: str

    def to_bytes(self, letter: MessageId | None) -> bytes:
        """Writes the origin as JSON; `letter` is the id of the dead letter.

        It is None where a relay carries the letter over, and ids come with that.
        """
        return json.dumps(
            {
                "letter": None if letter is None else str(letter),
                "topic": self.topic,
                "id": str(self.id),
                "group": self.group,
                "tries": self.tries,
                "error": self.error[:MOST_OF_AN_ERROR],
            }
        ).encode()


def origins_topic(topic: str) -> str:
    """Names the topic for the origins of the dead letters in a topic."""
    return f"{topic}-origins"


def made_origins_topic(service: MessagingService, topic: str) -> str | None:
    """Makes the topic of origins if it is missing; None where that is refused."""
    name = origins_topic(topic)
    try:
        service.create_topic(name, ttl_s=service.topic(topic).ttl_s)
    except TopicExists:
        return name
    except (BadRequest, NotAuthorized, TopicNotFound) as error:
        logger.warning("nobody is told where dead letters come from: %s", error)
        return None
    return name


class DeadLetters(Participant):
    """The participant that publishes given-up payloads, last in its transaction.

    `origins` is the topic that gets a message on the origin of each.
    """

    flushes_last = True

    def __init__(
        self,
        service: MessagingService,
        topic: str,
        *,
        origins: str | None = None,
        shares_journal: bool = False,
    ) -> None:
        self.shares_journal = shares_journal
        self.transaction_aware_name = f"dead letters to {topic}"
        self._service = service
        self._topic = topic
        self._messages: list[Payload] = []
        self._origins_topic = origins
        self._origins: dict[int, Origin] = {}
        self._writes = (TrackedWrite(), TrackedWrite())
        self._tx: Transaction | None = None
        self._responses: list[tuple[str, PublishResponse]] = []

    def add(self, message: Payload, origin: Origin | None = None) -> None:
        """Adds a message, which is published if the transaction commits."""
        if origin is not None:
            self._origins[len(self._messages)] = origin
        self._messages.append(message)

    def start_tx(self, tx: Transaction) -> None:
        """Remembers the pointer that messages carry."""
        self._tx = tx

    def commit_tx(self) -> bool:
        """Publishes all messages in one call, then their origins."""
        if self._messages:
            self._writes[0].do(lambda: self._publish(self._topic, self._messages))
        if self._origins and self._origins_topic is not None:
            self._tell_origins(self._origins_topic)
        return True

    def post_tx_prepare(self) -> None:
        """Does nothing: the messages are written."""

    def rollback_tx(self) -> bool:
        """Takes the messages back; False where they may be left."""
        undone = [write.undo(self._take_back) for write in self._writes]
        return all(undone)

    def _publish(self, topic: str, messages: Sequence[Payload]) -> None:
        response = self._service.publish(topic, messages, transaction=self._tx)
        if response is not None:
            self._responses.append((topic, response))

    def _tell_origins(self, topic: str) -> None:
        """Publishes the origins; a topic that refuses them holds up no dead letter."""
        (_, response), *_ = self._responses
        origins = [
            origin.to_bytes(_id_in(response, number))
            for number, origin in self._origins.items()
        ]
        try:
            self._writes[1].do(lambda: self._publish(topic, origins))
        except (BadRequest, NotAuthorized, TopicNotFound) as error:
            logger.warning("%s: %s", self.transaction_aware_name, error)

    def _take_back(self) -> None:
        while self._responses:
            with suppress(TopicNotFound):  # and its messages with it
                self._service.rollback(*self._responses[-1])
            self._responses.pop()


class CarriedLetters:
    """Publishes given-up payloads by way of the outbox that the block publishes to."""

    def __init__(self, publish: Publish, topic: str, origins: str | None) -> None:
        self._publish = publish
        self._topic = topic
        self._origins = origins

    def add(self, message: Payload, origin: Origin | None = None) -> None:
        """Publishes a message with the block, and its origin."""
        self._publish(self._topic, [message])
        if origin is not None and self._origins is not None:
            self._publish(self._origins, [origin.to_bytes(None)])


def letter_of(
    message: Message, unreadable: Exception | None, limit_bytes: int
) -> Payload:
    """Returns a given-up message as it is published, with its key and headers.

    Where a class of values was not to be read from it, the header `error` says why, as
    far as the limits of headers and of a message of `limit_bytes` have room for it.
    """
    headers = message.headers
    if isinstance(unreadable, BadRequest):
        headers = _with_error(headers, error_text(unreadable))
        more = packed_bytes(headers) - len(message.packed_headers)
        if message.size_bytes + more > limit_bytes:
            headers = message.headers
    beside = message.more or None
    if message.key is None and not headers and beside is None:
        return message.payload
    return Outgoing(message.payload, message.key, headers, more=beside)


def _with_error(headers: dict[str, bytes], error: str) -> dict[str, bytes]:
    """Returns headers with an error; those without room for it stay as they are.

    An error that is there already is of an earlier letter, and is replaced.
    """
    room = MAX_HEADERS_BYTES - packed_bytes({**headers, ERROR: b""})
    if room <= 0:
        return headers
    text = error.encode(errors="replace")[: min(room, MOST_OF_AN_ERROR)]
    return {**headers, ERROR: text}


def _id_in(response: PublishResponse, number: int) -> MessageId:
    """Returns the id of a message by its place in the request: keys rise by one."""
    more_ms, sequence = divmod(response.start_sequence_id + number, PER_MS)
    return MessageId.of(response.start_timestamp + more_ms, sequence)


@attrs.frozen
class DecodedMessage:
    """A message, with the value for the handler, or the error that kept it unread."""

    message: Message
    value: Any = None
    unreadable: Exception | None = None


@attrs.define
class HandlingStep:
    """The messages of one transaction: done, handled, given up, and being tried."""

    done: list[DecodedMessage] = attrs.field(factory=list)
    handled: list[Any] = attrs.field(factory=list)
    given_up: list[DecodedMessage] = attrs.field(factory=list)
    trying: DecodedMessage | None = None

    def choose(
        self, messages: Iterable[Message], delivery: Delivery, suspects: Suspects
    ) -> list[DecodedMessage]:
        """Returns the messages of a page to take, up to one that has to be alone."""
        group: list[DecodedMessage] = []
        for self.trying in items(messages, delivery.decode):
            alone = _is_alone(self.trying, delivery, suspects)
            if alone and group:
                break
            group.append(self.trying)
            if alone:
                break
        self.trying = None
        return group

    def blame(self, suspects: Suspects, error: str) -> None:
        """Suspects the message that was being tried when it failed, or all of them."""
        if self.trying is not None:
            suspects.failed(self.trying.message.id, error)
        else:
            suspects.failed_together([item.message.id for item in self.done], error)


def items(
    messages: Iterable[Message], decode: Callable[[bytes], Any] | None
) -> Iterator[DecodedMessage]:
    """Decodes messages one after the other, as they are asked for."""
    for message in messages:
        if decode is None:
            yield DecodedMessage(message, message)
            continue
        try:
            yield DecodedMessage(message, message.decoded(decode))
        except Exception as error:
            yield DecodedMessage(message, unreadable=error)


def _is_alone(item: DecodedMessage, delivery: Delivery, suspects: Suspects) -> bool:
    if item.message.id in suspects:
        return True
    if item.unreadable is not None or delivery.alone is None:
        return False
    return delivery.alone(item.value)
