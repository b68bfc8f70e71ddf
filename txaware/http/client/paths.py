"""The paths of topics and positions, and what goes into their JSON."""

import base64
import struct

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.messages import MessageId
from txaware.requests import Start
from txaware.topics import TopicName, checked_group

# The same few names come again and again; so many are kept.
KNOWN_NAMES = 100_000


class Paths:
    """Checks names; what is one needs no quoting, but for dots alone."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def topic(self, topic: str) -> str:
        """The path of a topic, given as `name` or `namespace:name`."""
        path = self._known.get(topic) if isinstance(topic, str) else None
        if path is None:
            parsed = TopicName.parse(topic)
            path = f"/v1/namespaces/{parsed.namespace}/topics/{parsed.name}"
            if len(self._known) < KNOWN_NAMES:
                self._known[topic] = path
        return path

    def position(self, group: str, topic: str) -> str:
        """The path of a group's position in a topic."""
        parsed, name = TopicName.parse(topic), checked_group(group)
        if not name.strip("."):
            name = name.replace(".", "%2E")  # or somebody takes it for a directory
        return (
            f"/v1/namespaces/{parsed.namespace}/groups/{name}/positions/{parsed.name}"
        )


def encoded_transaction(transaction: Transaction) -> str:
    """Tephra's bytes of a transaction, in base64."""
    try:
        return base64.b64encode(codec.encode(transaction)).decode("ascii")
    except (struct.error, OverflowError) as error:
        raise BadRequest(f"the transaction has odd numbers: {error}") from error


def start_field(start: Start) -> str | int | None:
    """An id as 40 hex digits, a time as a number."""
    return str(start) if isinstance(start, MessageId) else start
