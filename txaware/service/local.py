"""The messaging service in this process: checks what is asked, and names the steps."""

import logging
from collections.abc import Iterable, Mapping

from coordinator.gate import Gate
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.clock import ClockMs, system_clock_ms
from txaware.config import Settings
from txaware.errors import BadRequest, TopicExists
from txaware.interfaces import UNCOMMITTED, OrderedTable
from txaware.messages import Bounds, MessageId, Page, PublishResponse, Receipt
from txaware.metrics import TopicCounters, TopicMetrics
from txaware.requests import (
    Payload,
    Payloads,
    Pointer,
    Start,
    checked_attempt,
    checked_limit,
    checked_payloads,
    checked_pointer,
    checked_start,
)
from txaware.service.positions import Positions
from txaware.service.publishing import Place, Publishing, waits_for_commit
from txaware.service.reading import Ask, Reading, checked_isolation
from txaware.service.references import References
from txaware.service.scan_cache import ScanCache
from txaware.service.signals import Endings
from txaware.service.topic_writer import TopicWriter
from txaware.tables.payload_table import PayloadTable
from txaware.tables.topic_table import TopicTable
from txaware.topics import (
    Topic,
    TopicName,
    checked_group,
    checked_namespace,
    checked_properties,
    checked_ttl_s,
    expand_names,
    valid_names,
)

log = logging.getLogger(__name__)


class LocalService:
    """`MessagingService` over one table and one coordinator.

    `gate` is given where that is an embedded coordinator of this process which keeps
    its journal in the same table (or, as the table, in memory).
    """

    def __init__(
        self,
        table: OrderedTable,
        coordinator: Coordinator,
        *,
        gate: Gate | None,
        settings: Settings,
        clock_ms: ClockMs = system_clock_ms,
    ) -> None:
        self._table = table
        self._settings = settings
        self._endings = Endings()
        self.cache = ScanCache(settings.cache_bytes)
        self.references = References(table, PayloadTable(table))
        self.topic_table = TopicTable(table)
        self._positions = Positions(table)
        self._publishing = Publishing(
            table,
            self.references,
            self.cache,
            self._endings,
            gate,
            settings,
            clock_ms,
        )
        self._reading = Reading(
            table, self.cache, coordinator, gate, settings, clock_ms
        )
        self._writers: dict[TopicName, TopicWriter] = {}
        self._counters: dict[TopicName, TopicCounters] = {}
        self._names: dict[str, TopicName] = {}
        self._create_from_settings()

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""
        return self.topic_table.create(self._described(topic, ttl_s, properties))

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Replaces all properties; a ttl that is not named falls to the default."""
        return self.topic_table.update(self._described(topic, ttl_s, properties))

    def topic(self, topic: str) -> Topic:
        """The topic as it stands."""
        return self.topic_table.get(self._name(topic))

    def topics(self, namespace: str = "default") -> list[str]:
        """The names of a namespace's topics, in the order of their keys."""
        return self.topic_table.names(checked_namespace(namespace))

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""
        name = self._name(topic)
        self.cache.drop(self.topic_table.get(name).prefix)
        self.topic_table.delete(name)
        if name in self._writers:
            self._writers[name].signal.tell()

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction answers what `rollback` takes."""
        place, payloads = self.place(topic), self._payloads(messages)
        if transaction is None:
            if not len(payloads) or receipts is not None:
                raise BadRequest(
                    "a publish without a transaction has messages, and no receipts"
                )
            self._publishing.plain(place, payloads)
            return None
        pointer = checked_pointer(transaction)
        if not len(payloads):
            return self._publishing.reference(place, pointer, receipts)
        if receipts is not None:
            raise BadRequest("a publish has messages or receipts, not both")
        return self._publishing.transactional(place, payloads, pointer)

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""
        place, payloads = self.place(topic), self._payloads(messages)
        pointer = checked_pointer(transaction)
        if not len(payloads):
            raise BadRequest("a store has messages")
        return self._publishing.store(
            place, payloads, pointer, checked_attempt(attempt)
        )

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all who poll in a transaction."""
        place = self.place(topic)
        if not isinstance(response, PublishResponse):
            raise BadRequest(
                f"rollback takes the answer of a transactional publish, not "
                f"{response!r}"
            )
        checked_pointer(response.transaction_write_pointer)
        self._publishing.roll_back(place, response)

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: str = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Page:
        """Messages from `start` on: an id, a time in ms, or None for the beginning."""
        ask = Ask(
            checked_start(start),
            inclusive,
            checked_limit(limit),
            transaction,
            checked_isolation(isolation, transaction),
        )
        if wait_s and transaction is not None:
            raise BadRequest(
                "a poll in a transaction cannot wait: its snapshot sees nothing that "
                "commits later; wait before the transaction begins"
            )
        return self._reading.poll(lambda: self.place(topic), ask, wait_s)

    def wait(
        self,
        topic: str,
        *,
        start: Start,
        inclusive: bool = True,
        isolation: str = "committed",
        timeout_s: float,
    ) -> bool:
        """Waits until something is there to poll; False after the time-out."""
        return bool(
            self.poll(
                topic,
                start=start,
                inclusive=inclusive,
                limit=1,
                isolation=isolation,
                wait_s=timeout_s,
            )
        )

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """How far a group has come, as the transaction or a fresh snapshot sees it."""
        name = self.topic(topic).topic
        if not self._positions.has_any(checked_group(group), name):
            return None
        judge = self._reading.judge(transaction)
        return self._positions.position(group, name, judge)

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what this one had saved."""
        name, pointer = self.topic(topic).topic, checked_pointer(transaction)
        if position is None:
            with self._publishing.undoing(pointer):
                self._positions.take_back(checked_group(group), name, pointer)
            return
        if not isinstance(position, MessageId):
            raise BadRequest(f"a position is a MessageId, not {position!r}")
        entry = self._publishing.enter(pointer)
        try:
            self._positions.save(
                checked_group(group),
                name,
                pointer,
                position,
                held=waits_for_commit(entry),
            )
        finally:
            self._publishing.leave(entry)

    def bounds(self, topic: str) -> Bounds:
        """The first and the last id, committed or not, and where the next goes."""
        return self._reading.bounds(self.place(topic))

    def ended(self, pointers: Iterable[int]) -> None:
        """Transactions have ended: wakes who waits, and forgets what they stored."""
        self._endings.ended(pointers)
        self.references.ended(pointers)

    def place(self, topic: str) -> Place:
        """A topic, who writes to it, and who counts that."""
        name = self._name(topic)
        found = self.topic_table.get(name)
        writer = self._writers.get(name)
        if writer is None:
            self._counters.setdefault(name, TopicCounters())
            writer = self._writers.setdefault(name, TopicWriter(self._table))
        return Place(found, writer, self._counters[name])

    def topic_metrics(self) -> dict[str, TopicMetrics]:
        """What was counted, by topic."""
        return {
            str(name): counters.snapshot()
            for name, counters in list(self._counters.items())
        }

    def close(self) -> None:
        """Nobody waits here any more."""
        self._reading.close()
        for writer in list(self._writers.values()):
            writer.signal.tell()

    def _name(self, topic: str) -> TopicName:
        """Parsed once: the same few names come again and again."""
        name = self._names.get(topic) if isinstance(topic, str) else None
        if name is None:
            name = TopicName.parse(topic)
            if len(self._names) < 100_000:
                self._names[topic] = name
        return name

    def _payloads(self, messages: Iterable[Payload]) -> Payloads:
        return checked_payloads(
            messages, limit_bytes=self._settings.message_limit_bytes
        )

    def _described(
        self,
        topic: str,
        ttl_s: int | str | None,
        properties: Mapping[str, str] | None,
    ) -> Topic:
        ttl = self._settings.default_ttl_s if ttl_s is None else checked_ttl_s(ttl_s)
        return Topic(TopicName.parse(topic), 1, ttl, checked_properties(properties))

    def _create_from_settings(self) -> None:
        names = list(expand_names(self._settings.topics))
        valid = list(valid_names(names))
        for name in set(names) - set(valid):
            log.warning("%r in the setting topics is no topic name", name)
        for name in valid:
            try:
                self.create_topic(name)
            except TopicExists:
                log.debug("topic %s exists already", name)
