"""Publishes what could not be handled to another topic, with the position's commit."""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress

import attrs

from coordinator.tracked_write import TrackedWrite
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, NotAuthorized, TopicExists, TopicNotFound
from txaware.interfaces import MessagingService
from txaware.messages import MessageId, PublishResponse

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
