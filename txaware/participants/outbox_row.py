"""A message as a row in the outbox of a user's database, and the port of such a one."""

import os
from collections.abc import Iterable
from typing import Protocol

import attrs

from txaware.interfaces import Payload
from txaware.labels import packed, unpacked
from txaware.messages import MessageId, Outgoing
from txaware.publish.publisher import OVERHEAD_BYTES

TOKEN_BYTES = 8
# A batch stays below the buffer of a transaction.
MOST_BYTES = 6 << 20

# Topic, payload, key, headers, the seconds after which it expires, and a token: two
# rows may have had one place in an outbox after each other.
Columns = tuple[str, bytes, bytes | None, bytes | None, float | None, bytes]
# The place of a row, and its columns.
Row = tuple[int, str, bytes, bytes | None, bytes | None, float | None, bytes]


def columns_of(topic: str, message: Payload) -> Columns:
    """Returns the columns of a checked message, with a new token."""
    token = os.urandom(TOKEN_BYTES)
    if not isinstance(message, Outgoing):
        return topic, bytes(message), None, None, None, token
    headers = packed(message.headers) if message.headers else None
    key = None if message.key is None else bytes(message.key)
    expire_after_s = message.expire_after_s
    return topic, bytes(message.payload), key, headers, expire_after_s, token


@attrs.define
class Batch:
    """Messages for the relay by topic, in order; `rows` has each place and token."""

    messages: dict[str, list[Payload]] = attrs.field(factory=dict)
    rows: list[tuple[int, bytes]] = attrs.field(factory=list)
    size_bytes: int = 0

    @classmethod
    def of(cls, found: Iterable[Row]) -> "Batch":
        """Takes rows in their order, until they are enough for one batch."""
        batch = cls()
        for place, topic, payload, key, headers, expire_after_s, token in found:
            message: Payload = payload
            if key is not None or headers is not None or expire_after_s is not None:
                named = None if headers is None else unpacked(headers)
                message = Outgoing(payload, key, named, expire_after_s)
            if topic in batch.messages:
                batch.messages[topic].append(message)
            else:
                batch.messages[topic] = [message]
            batch.rows.append((place, token))
            batch.size_bytes += len(payload) + OVERHEAD_BYTES
            if batch.size_bytes >= MOST_BYTES:
                break
        return batch


class OutboxRows(Protocol):
    """The outbox and inbox tables of a database, over a connection of their own.

    The relay calls from one thread at a time; `position` may come from another one.
    """

    @property
    def outbox_id(self) -> str:
        """The id of this outbox, which no other has."""

    def has_rows(self) -> bool:
        """Tells whether a row is there, carried over or not."""

    def take(self, carried: bytes, *, limit: int) -> Batch:
        """Removes the batch of which `carried` are the marks; returns the next one.

        When it returns, the removal is on disk, and so is all that it returns. A batch
        that is not there any more, or rows of others in its places, stay as they are.
        """

    def marks(self, batch: Batch) -> bytes:
        """Returns bytes by which `take` knows a batch again."""

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""

    def close(self) -> None:
        """Closes the connection."""
