"""What the commit of a transaction carries to a server, as parts of its body."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.interfaces import Coordinator, Loading
from coordinator.transaction import Transaction
from txaware.client.calls.table_calls import json_bytes
from txaware.client.server_info import ServerInfo
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import checked_payloads
from txaware.model.rows import RowChange
from txaware.protocol.formats import (
    MAX_MESSAGES,
    MSGPACK,
    PublishRequest,
    encode_publish,
)
from txaware.protocol.tables import change_fields
from txaware.protocol.transactional_ids import instance_fields

Part = tuple[str, dict[str, Any]]
# Of so many transactions it is known how much their commits carry already.
REMEMBERED = 1000


class CarriedParts:
    """The rows of one participant, as the commit sends them."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts

    def loading(self) -> Loading:
        """Yields the parts; the server gives their rows an order."""
        yield self._parts, _tell_nobody

    def count(self) -> None:
        """Does nothing: the server counts."""


class Carrier:
    """Makes the parts that the commits of a server's own coordinator carry.

    Each answers None where the rows go before the commit: the server is of before, its
    coordinator writes to another store, or they are too many. What is too many counts
    for all parts of a commit together: they are one request.
    """

    def __init__(self, info: Callable[[], ServerInfo]) -> None:
        self.coordinator: Coordinator | None = None
        self._info = info
        self._left_bytes: dict[int, int] = {}
        self._lock = threading.Lock()

    def cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        messages: Iterable[tuple[str, Iterable[Payload]]],
    ) -> CarriedParts | None:
        """Returns the messages for some topics."""
        info = self._info_for(coordinator)
        if info is None:
            return None
        size_bytes, parts = 0, list[Part]()
        for topic, listed in messages:
            payloads = checked_payloads(listed, limit_bytes=info.message_bytes)
            most_bytes = info.carried_bytes - size_bytes
            if payloads.size_bytes > most_bytes or len(payloads) > MAX_MESSAGES:
                return None
            body = encode_publish(PublishRequest(None, payloads))
            size_bytes += len(body)
            sent = {
                "topic": topic,
                "contentType": MSGPACK.media_type,
                "body": body,
            }
            parts += (("publishes", sent),)
        return self._if_fits(tx, info, size_bytes, parts)

    def position_cargo(
        self,
        coordinator: Coordinator,
        _: Transaction,
        group: str,
        topic: str,
        position: MessageId | None,
    ) -> CarriedParts | None:
        """Returns the move of a group; None for a position is that it did not move."""
        if self._info_for(coordinator) is None:
            return None
        if position is None:
            return CarriedParts()
        moved = {"group": group, "topic": topic, "position": str(position)}
        return CarriedParts(("positions", moved))

    def row_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        tables: Iterable[tuple[str, Iterable[RowChange]]],
    ) -> CarriedParts | None:
        """Returns checked changes of tables."""
        info = self._info_for(coordinator)
        if info is None:
            return None
        size_bytes, parts = 0, list[Part]()
        for table, changes in tables:
            listed = list(changes)
            size_bytes += sum(map(json_bytes, listed))
            if size_bytes > info.carried_bytes or len(listed) > MAX_MESSAGES:
                return None
            sent = [*map(change_fields, listed)]
            parts += (("tables", {"table": table, "changes": sent}),)
        return self._if_fits(tx, info, size_bytes, parts)

    def producer_cargo(
        self,
        coordinator: Coordinator,
        transactional_id: str,
        producer: ProducerIdentity,
        _: Transaction,
        *,
        key: str | None = None,
    ) -> CarriedParts | None:
        """Returns the count of a transactional id's commits, and a key of it."""
        if self._info_for(coordinator) is None:
            return None
        named = {
            "transactionalId": transactional_id,
            "producer": instance_fields(producer),
            "key": key,
        }
        return CarriedParts(("producers", named))

    def _if_fits(
        self, tx: Transaction, info: ServerInfo, size_bytes: int, parts: list[Part]
    ) -> CarriedParts | None:
        """Returns the parts; None with those that the commit of `tx` has already."""
        pointer = tx.transaction_id
        with self._lock:
            left_bytes = self._left_bytes.pop(pointer, info.carried_bytes)
            fits = size_bytes <= left_bytes
            self._left_bytes[pointer] = left_bytes - size_bytes if fits else left_bytes
            if len(self._left_bytes) > REMEMBERED:
                del self._left_bytes[next(iter(self._left_bytes))]
        return CarriedParts(*parts) if fits else None

    def _info_for(self, coordinator: Coordinator) -> ServerInfo | None:
        if coordinator is not self.coordinator:
            return None
        info = self._info()
        return info if info.carried_bytes else None


def _tell_nobody(_: object) -> None:
    """Does nothing: who waits for rows is told at the server."""
