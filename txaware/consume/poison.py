"""One transaction of a subscriber: which messages it takes, and what became of them."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

import attrs

from coordinator.participants import TrackedWrite
from coordinator.transaction import Transaction
from txaware.consume.subscribe_options import Delivery
from txaware.errors import BadRequest, NotAuthorized, TopicExists, TopicNotFound
from txaware.interfaces import MessagingService
from txaware.messages import Message, MessageId, PublishResponse

ENDED_PROCESS = "the process ended in each of its tries"


class Suspects:
    """Messages that may be why a transaction failed; each is to be tried alone.

    A message is poison once it failed `tries` times on its own; never if that is None.
    """

    def __init__(self, tries: int | None) -> None:
        self._tries = tries
        self._failures: dict[MessageId, int] = {}
        self._errors: dict[MessageId, str] = {}

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self._failures

    def is_poison(self, message_id: MessageId) -> bool:
        """Whether it has failed often enough to be given up."""
        return self._tries is not None and self.failures(message_id) >= self._tries

    def failures(self, message_id: MessageId) -> int:
        """How often it failed on its own."""
        return self._failures.get(message_id, 0)

    def error(self, message_id: MessageId) -> str:
        """What it failed with at last."""
        return self._errors.get(message_id, ENDED_PROCESS)

    def count_from(self, first: MessageId) -> int:
        """How many suspects there are from that message on."""
        return sum(each >= first for each in self._failures)

    def inherit(self, message_ids: Sequence[MessageId], failures: int) -> None:
        """An earlier process ended in these, and failed so often in the first one."""
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)
        for first in message_ids[:1]:
            self._failures[first] = max(self._failures[first], failures)

    def failed(self, message_id: MessageId, error: str) -> None:
        """This one failed."""
        self._failures[message_id] = self._failures.get(message_id, 0) + 1
        self._errors[message_id] = error

    def failed_together(self, message_ids: list[MessageId], error: str) -> None:
        """One of these failed, and nobody knows which."""
        if len(message_ids) == 1:
            self.failed(message_ids[0], error)
            return
        for message_id in message_ids:
            self._failures.setdefault(message_id, 0)

    def passed(self, last: MessageId) -> None:
        """All up to this one are done, here or elsewhere."""
        for message_id in [each for each in self._failures if each <= last]:
            del self._failures[message_id]
            self._errors.pop(message_id, None)


logger = logging.getLogger(__name__)

PER_MS = 1 << 16
MOST_OF_AN_ERROR = 1000


@attrs.frozen
class Origin:
    """Where a dead letter comes from, and why it is one."""

    topic: str
    id: MessageId
    group: str | None
    tries: int
    error: str

    def to_bytes(self, letter: MessageId) -> bytes:
        """As it is published, in JSON; `letter` is the id of the dead letter."""
        return json.dumps(
            {
                "letter": str(letter),
                "topic": self.topic,
                "id": str(self.id),
                "group": self.group,
                "tries": self.tries,
                "error": self.error[:MOST_OF_AN_ERROR],
            }
        ).encode()


def origins_topic(topic: str) -> str:
    """Where the origins of a topic's dead letters are published."""
    return f"{topic}-origins"


def made_origins_topic(service: MessagingService, topic: str) -> str | None:
    """The topic of origins, made where there is none; None where that is refused."""
    name = origins_topic(topic)
    try:
        service.create_topic(name, ttl_s=service.topic(topic).ttl_s)
    except TopicExists:
        return name
    except (BadRequest, NotAuthorized, TopicNotFound) as error:
        logger.warning("nobody is told where dead letters come from: %s", error)
        return None
    return name


class DeadLetters:
    """Takes given-up payloads through one transaction, to be published last.

    `origins` is the topic that tells where they come from, a message for each.
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
        self._payloads: list[bytes] = []
        self._origins_topic = origins
        self._origins: dict[int, Origin] = {}
        self._writes = (TrackedWrite(), TrackedWrite())
        self._tx: Transaction | None = None
        self._responses: list[tuple[str, PublishResponse]] = []

    def add(self, payload: bytes, origin: Origin | None = None) -> None:
        """Publishes it if the transaction commits."""
        if origin is not None:
            self._origins[len(self._payloads)] = origin
        self._payloads.append(payload)

    def start_tx(self, tx: Transaction) -> None:
        """Remembers the pointer that messages carry."""
        self._tx = tx

    def update_tx(self, tx: Transaction) -> None:
        """Messages carry the first pointer, whatever checkpoints follow."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """Publishing conflicts with nobody."""
        return ()

    def commit_tx(self) -> bool:
        """Publishes in one piece."""
        if self._payloads:
            self._writes[0].do(lambda: self._publish(self._topic, self._payloads))
        if self._origins and self._origins_topic is not None:
            self._tell_origins(self._origins_topic)
        return True

    def post_tx_commit(self) -> None:
        """They are visible now."""

    def rollback_tx(self) -> bool:
        """Takes them back; False where nobody knows whether they were published."""
        undone = [write.undo(self._take_back) for write in self._writes]
        return all(undone)

    def _publish(self, topic: str, payloads: list[bytes]) -> None:
        response = self._service.publish(topic, payloads, transaction=self._tx)
        if response is not None:
            self._responses.append((topic, response))

    def _tell_origins(self, topic: str) -> None:
        """A topic that takes none of them keeps no letter from its place."""
        (_, response), *_ = self._responses
        told = [
            origin.to_bytes(_id_in(response, number))
            for number, origin in self._origins.items()
        ]
        try:
            self._writes[1].do(lambda: self._publish(topic, told))
        except (BadRequest, NotAuthorized, TopicNotFound) as error:
            logger.warning("%s: %s", self.transaction_aware_name, error)

    def _take_back(self) -> None:
        while self._responses:
            with suppress(TopicNotFound):  # and its messages with it
                self._service.rollback(*self._responses[-1])
            self._responses.pop()


def _id_in(response: PublishResponse, number: int) -> MessageId:
    """The id of a message by its place in the request: their keys follow each other."""
    more_ms, sequence = divmod(response.start_sequence_id + number, PER_MS)
    return MessageId.of(response.start_timestamp + more_ms, sequence)


T = TypeVar("T")


class Decoded(NamedTuple, Generic[T]):
    """A message as its handler gets it, the payload decoded."""

    id: MessageId
    payload: T


@attrs.frozen
class Item:
    """A message, with what the handler gets, or with why it gets nothing."""

    message: Message
    value: Any = None
    unreadable: Exception | None = None


@attrs.define
class Step:
    """What one transaction has done so far."""

    done: list[Item] = attrs.field(factory=list)
    handled: list[Any] = attrs.field(factory=list)
    given_up: list[Item] = attrs.field(factory=list)
    trying: Item | None = None

    def choose(
        self, messages: Iterable[Message], delivery: Delivery, suspects: Suspects
    ) -> list[Item]:
        """Those of a page that it takes: up to one that has to be alone."""
        group: list[Item] = []
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
        """Its transaction failed: whose fault may that be?"""
        if self.trying is not None:
            suspects.failed(self.trying.message.id, error)
        else:
            suspects.failed_together([item.message.id for item in self.done], error)


def items(
    messages: Iterable[Message], decode: Callable[[bytes], Any] | None
) -> Iterator[Item]:
    """Decodes, one after the other, as they are asked for."""
    for message in messages:
        if decode is None:
            yield Item(message, message)
            continue
        try:
            yield Item(message, Decoded(message.id, decode(message.payload)))
        except Exception as error:
            yield Item(message, unreadable=error)


def _is_alone(item: Item, delivery: Delivery, suspects: Suspects) -> bool:
    if item.message.id in suspects:
        return True
    if item.unreadable is not None or delivery.alone is None:
        return False
    return delivery.alone(item.value)
