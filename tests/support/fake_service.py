"""A messaging service that writes down its calls, and fails when told to."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from coordinator.transaction import Transaction
from txaware.errors import TopicNotFound, TransactionRefused
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId, Outgoing, PublishResponse, Receipt
from txaware.model.producers import ProducerIdentity
from txaware.model.topics import Topic, TopicName


@attrs.frozen
class Call:
    """One call: which, to which topic, with what."""

    name: str
    topic: str
    messages: list[Payload] = attrs.field(factory=list)
    pointer: int | None = None
    receipts: list[Receipt] | None = None
    response: PublishResponse | None = None


class FakeService:
    """Publishes to lists. `instead["publish"] = f` has `f(call)` run in its place.

    `call()` does what was asked for; `failing` and `lost` of `tests.support.doubles`
    fit here.
    With `keeps=False` it throws payloads away.
    """

    carrier = None

    def __init__(self, *topics: str, keeps: bool = True) -> None:
        self.calls: list[Call] = []
        self.instead: dict[str, Callable[[Callable[[], Any]], Any]] = {}
        self.deleted: set[str] = set()
        self.properties: dict[str, str] = {}
        self._topics = set(topics)
        self._keeps = keeps
        self._lock = threading.Lock()
        self._stored: dict[tuple[str, int, bytes], list[Payload]] = {}
        self._once: set[tuple[ProducerIdentity, str, int]] = set()
        self._rows: list[tuple[str, int | None, list[Payload]]] = []
        self._rolled_back: set[tuple[str, int]] = set()

    def names(self) -> list[str]:
        return [f"{call.name} {call.topic}" for call in self.calls]

    def published(self, topic: str) -> list[Payload]:
        """What a reader would get, once all transactions have ended."""
        return [
            message
            for name, pointer, messages in self._rows
            if name == topic
            and (pointer is None or (name, pointer) not in self._rolled_back)
            for message in messages
        ]

    def topic(self, topic: str) -> Topic:
        call = Call("topic", topic)
        return self._run(call, lambda: self._found(topic))  # type: ignore[no-any-return]

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Transaction | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        listed = list(messages)
        named = None if receipts is None else list(receipts)
        pointer = transaction.transaction_id if transaction else None
        call = Call("publish", topic, self._kept(listed), pointer, named)

        def write() -> PublishResponse | None:
            self._found(topic)
            rows = [*self._kept(listed), *self._expanded(topic, pointer, named)]
            self._rows.append((topic, pointer, rows))
            if pointer is None:
                return None
            return PublishResponse(pointer, len(self._rows), 0, len(self._rows), 0)

        return self._run(call, write)  # type: ignore[no-any-return]

    def publish_once(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        producer: ProducerIdentity,
        sequence: int,
    ) -> list[MessageId]:
        listed, key = list(messages), (producer, topic, sequence)
        call = Call("publish", topic, self._kept(listed), None, None)

        def write() -> list[MessageId]:
            self._found(topic)
            if key not in self._once:
                self._rows.append((topic, None, self._kept(listed)))
                self._once.add(key)
            return []

        return self._run(call, write)  # type: ignore[no-any-return]

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Transaction,
        attempt: bytes | None = None,
    ) -> Receipt:
        listed, pointer = list(messages), transaction.transaction_id
        call = Call("store", topic, self._kept(listed), pointer)

        def write() -> Receipt:
            self._found(topic)
            key = (topic, pointer, attempt or b"")
            self._stored.setdefault(key, []).extend(self._kept(listed))
            return Receipt(pointer, topic, attempt or b"", len(listed))

        return self._run(call, write)  # type: ignore[no-any-return]

    def rollback(self, topic: str, response: PublishResponse) -> None:
        def write() -> None:
            self._found(topic)
            self._rolled_back.add((topic, response.transaction_write_pointer))

        self._run(Call("rollback", topic, response=response), write)

    def _run(self, call: Call, write: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append(call)
        replaced = self.instead.get(call.name)
        return write() if replaced is None else replaced(write)

    def _kept(self, messages: list[Payload]) -> list[Payload]:
        return messages if self._keeps else []

    def _found(self, topic: str) -> Topic:
        if topic not in self._topics or topic in self.deleted:
            raise TopicNotFound(f"there is no topic {topic}")
        return Topic(TopicName.parse(topic), 1, properties=self.properties)

    def _expanded(
        self, topic: str, pointer: int | None, receipts: list[Receipt] | None
    ) -> list[Payload]:
        found: list[Payload] = []
        for receipt in receipts or []:
            rows = self._stored.get((topic, pointer or 0, receipt.attempt), [])
            if self._keeps and len(rows) != receipt.count:
                raise TransactionRefused("rows of the reference are not all there")
            found += rows
        return found


def data(payload: Payload) -> bytes:
    return payload.payload if isinstance(payload, Outgoing) else payload
