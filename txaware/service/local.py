"""The messaging service in this process: checks arguments, and calls the steps."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from coordinator.interfaces import Coordinator, OnWritten
from coordinator.transaction import Transaction
from txaware.errors import (
    BadRequest,
    TopicExists,
    TopicNotFound,
    Unavailable,
)
from txaware.model.interfaces import COMMITTED, UNCOMMITTED, Write
from txaware.model.latest import LatestPage
from txaware.model.messages import Bounds, MessageId, Page, PublishResponse, Receipt
from txaware.model.metrics import Latencies, TopicMetrics
from txaware.model.partitions import number_of, parent_of, partition_in, partition_name
from txaware.model.producers import ProducerService
from txaware.model.requests import (
    OffsetsAt,
    Payload,
    Payloads,
    Pointer,
    Start,
    check_plain,
    check_wait_of_poll,
    checked_attempt,
    checked_flag,
    checked_isolation,
    checked_limit,
    checked_offsets_at,
    checked_payloads,
    checked_pointer,
    checked_position,
    checked_receipts,
    checked_response,
    checked_snapshot,
    checked_start,
)
from txaware.model.shards import HOME, Shards
from txaware.model.signatures import passed_on
from txaware.model.topics import Topic, TopicName, checked_group, checked_namespace
from txaware.service.monitor.unread import Readers
from txaware.service.producers.producing import Producing
from txaware.service.producers.transactional_ids import TransactionalIds
from txaware.service.read.reading import AnyScan, Ask, Reading
from txaware.service.store_context import StoreContext, carrying
from txaware.service.topic_handles import (
    PartitionedTopic,
    Place,
    TopicHandle,
    TopicHandles,
)
from txaware.service.write.commits_in_slots import CommitSlots
from txaware.service.write.interfaces import PublishesTo
from txaware.service.write.message_cargo import (
    CarriedMessages,
    RowCargo,
    TopicCargo,
    TopicsCargo,
)
from txaware.service.write.publishing import OnPublished, Publishing
from txaware.service.write.spreading import Spreading
from txaware.store.kinds import POSITIONS
from txaware.store.versioned_rows import VersionedRows, without_pointer


class LocalService:
    """`MessagingService` over one table and one coordinator."""

    def __init__(self, store_context: StoreContext) -> None:
        self.cache = store_context.cache
        self.foreign_pointers = store_context.foreign_pointers
        self._reads_wait = store_context.table.reads_wait
        self._settings = store_context.settings
        self._endings = store_context.endings
        self._references = store_context.references
        self._sequences = store_context.sequences
        self._places = self.handles = TopicHandles(
            store_context.table, store_context.settings
        )
        self._rows = VersionedRows(store_context.table)
        self.readers = Readers(store_context.clock_ms)
        self._retention = store_context.versions
        self._writes = store_context.writes
        self._carried_messages = CarriedMessages(store_context)
        self._publishing = Publishing(store_context)
        self._spreading = Spreading(self._publishing, store_context)
        self._publishing_to: dict[type[Place], PublishesTo] = {
            TopicHandle: self._publishing,
            PartitionedTopic: self._spreading,
        }
        # A class derived from ours may replace any call.
        self._carrying = carrying(store_context) if type(self) is LocalService else None
        self._reading = Reading(store_context)
        ids = TransactionalIds(
            store_context, judge=self._reading.judge, carrying=self._carrying
        )
        self.carrier = self  # a commit of this process may carry its rows
        self.slots = CommitSlots(store_context, self._carrying)
        self.producing = Producing(store_context, self._places, self._publishing, ids)
        self._places.create_from_settings()

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | None = None,
        properties: Mapping[str, str] | None = None,
        compact: bool | None = None,
        partitions: int | None = None,
        shards: Shards = None,
        exist_ok: bool = False,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""
        described = self._places.described(
            topic, ttl_s, properties, compact, partitions, shards
        )
        if not checked_flag("exist_ok", exist_ok):
            return self._places.topics.create(described)
        named_ttl_s = None if ttl_s is None else described.ttl_s
        while True:  # until nobody else creates or deletes it in between
            with suppress(TopicNotFound):
                found = self._places.topics.get(described.topic)
                return found.agreeing(named_ttl_s, described.properties)
            with suppress(TopicExists):
                return self._places.topics.create(described)

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | None = None,
        properties: Mapping[str, str | None] | None = None,
        compact: bool | None = None,
        partitions: int | None = None,
    ) -> Topic:
        """Changes what is named and leaves the rest; removes a property set to None."""
        change = self._places.change(topic, ttl_s, properties, compact, partitions)
        return self._changed(self._places.name(topic), change)

    def replace_topic(
        self,
        topic: str,
        *,
        ttl_s: int | None = None,
        properties: Mapping[str, str] | None = None,
        compact: bool | None = None,
        partitions: int | None = None,
    ) -> Topic:
        """Replaces all properties; a ttl that is not named falls to the default.

        Partitions that are not named stay.
        """
        described = self._places.described(
            topic, ttl_s, properties, compact, partitions
        )
        return self._changed(described.topic, lambda found: found.replaced(described))

    def _changed(self, name: TopicName, change: Callable[[Topic], Topic]) -> Topic:
        topic = self._places.topics.update(name, change)
        if topic.partitions > 1:
            self._places.wake(name)  # who waits for any of them waits for the new ones
        return topic

    def topic(self, topic: str) -> Topic:
        """Returns a topic as it stands; for a partition the topic that has it."""
        return self._places.topic(topic)

    def topics(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's topics, in the order of their keys."""
        return self._places.topics.names(checked_namespace(namespace))

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""
        name = self._places.name(topic)
        found = self._places.topics.get(name)
        for number in range(found.partitions):
            self.cache.drop(partition_in(found, number).prefix)
        self._places.topics.delete(name)
        self._places.wake(name)

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction returns what `rollback` takes.

        To a topic of several partitions that is a piece for each that gets any.
        """
        place, payloads = self._places.find(topic), self._payloads(messages)
        receipts = None if receipts is None else checked_receipts(receipts)
        publishing = self._publishing_to[place.__class__]
        if transaction is None:
            check_plain(payloads, receipts)
            publishing.plain(place, payloads)
            return None
        pointer = self._writes.begun(transaction)
        if not len(payloads):
            return publishing.reference(place, pointer, receipts)
        if receipts is not None:
            raise BadRequest("a publish has messages or receipts, not both")
        return publishing.transactional(place, payloads, pointer)

    def stored_in(self, topic: str, pointer: int) -> dict[bytes, int]:
        """Returns what a transaction has stored in one partition, by attempt."""
        return self._spreading.stored_in(self._places.at(topic), pointer)

    def cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        messages: Iterable[tuple[str, Iterable[Payload]]],
    ) -> TopicCargo | TopicsCargo | None:
        """Returns messages as rows that the commit of `tx` carries.

        None where the coordinator cannot carry them, or where they are too many.
        """
        if coordinator is not self._carrying:
            return None
        loads: list[tuple[TopicHandle, Payloads]] = []
        for topic, listed in messages:
            payloads = checked_payloads(
                listed, limit_bytes=self._settings.message_limit_bytes
            )
            # Asked here too: each call counts in a transaction of one message.
            place = self._places.known(topic) or self._places.find(topic)
            if type(place) is PartitionedTopic:
                loads += place.split(payloads)
            else:
                loads += ((place, payloads),)
        for handle, _ in loads:
            if handle.shard:
                return None  # rows of another shard are on disk before the commit
        return self._carried_messages.cargo(loads, tx)

    def is_carried(self, topic: str) -> bool:
        """Returns False where messages for a topic go to disk before the commit.

        They do so where a partition lies in another shard than the journal.
        """
        place = self._places.find(topic)
        if isinstance(place, PartitionedTopic):
            return not any(place.topic.serving)
        return place.shard == HOME

    def carried_bytes(self, coordinator: Coordinator) -> int:
        """Returns how many bytes of rows a commit carries, about; 0 for none."""
        if coordinator is not self._carrying or not self._carried_messages.may_carry:
            return 0
        return self._settings.sync_limit_bytes

    def publish_soon(
        self, place: Place, messages: Iterable[Payload], on_written: OnWritten
    ) -> None:
        """Publishes without a transaction and does not wait for the disk.

        It serves an event loop: `on_written` is called in another thread, and must be
        quick.
        """
        payloads = self._payloads(messages)
        check_plain(payloads, None)
        self._publishing_to[place.__class__].plain_soon(place, payloads, on_written)

    def publish_in_soon(
        self,
        place: Place,
        messages: Iterable[Payload],
        pointer: int,
        on_published: OnPublished,
    ) -> bool:
        """Publishes in a transaction and does not wait for the disk.

        It serves an event loop: `on_published` is called in another thread with the
        response or an error, and must be quick. Returns False, and has done nothing,
        where a thread has to publish.
        """
        if isinstance(place, PartitionedTopic):
            return False
        payloads = self._payloads(messages)
        return len(payloads) > 0 and self._publishing.transactional_soon(
            place, payloads, checked_pointer(pointer), on_published
        )

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""
        place, payloads = self._places.find(topic), self._payloads(messages)
        pointer = self._writes.begun(transaction)
        if not len(payloads):
            raise BadRequest("a store has messages")
        checked = checked_attempt(attempt)
        return self._publishing_to[place.__class__].store(
            place, payloads, pointer, checked
        )

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides the rows of a publish from all who poll in a transaction."""
        place, checked = self._places.find(topic), checked_response(response)
        self._publishing_to[place.__class__].roll_back(place, checked)

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
        """Returns messages from an id, a time in ms or, with None, the beginning on."""
        ask = _checked_ask(
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
            isolation=isolation,
        )
        check_wait_of_poll(wait_s, transaction)
        return self._reading.poll(partial(self._places.find, topic), ask, wait_s)

    def latest_page(
        self,
        topic: str,
        *,
        start: MessageId | None = None,
        transaction: Transaction | None = None,
    ) -> LatestPage:
        """Returns the newest message of each key in the next piece of a topic."""
        checked_snapshot(transaction)
        behind = None if start is None else checked_position(start)
        return self._reading.latest(self._places.at(topic), behind, transaction)

    def wait(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        isolation: str = "committed",
        timeout_s: float,
    ) -> bool:
        """Waits until there is something to poll; returns False after the time-out."""
        ask = _checked_ask(
            start=start,
            inclusive=inclusive,
            limit=1,
            transaction=None,
            isolation=isolation,
        )
        return bool(
            self._reading.wait(partial(self._places.find, topic), ask, timeout_s)[0]
        )

    def begin_poll(
        self,
        place: Place,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: str = UNCOMMITTED,
        woken: bool = False,
    ) -> AnyScan:
        """Begins one look at a topic, to be read in pieces.

        Who was `woken` looks at something new.
        """
        ask = _checked_ask(
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
            isolation=isolation,
        )
        return self._reading.begin(place, ask, woken=woken)

    def pause_s(self, scan: AnyScan, last_s: float) -> float:
        """Returns how long to wait for a signal after a look that found nothing."""
        return self._reading.pause_s(scan, last_s)

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Returns a group's position, as the transaction or a new snapshot sees it."""
        position = self.position_seen(group, topic, transaction)
        if transaction is not None and position is not None:
            self.readers.saw(group, str(self._places.rows_name(topic)))
        return position

    def position_seen(
        self, group: str, topic: str, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Returns the position for an observer, who does not count as a reader."""
        checked_snapshot(transaction)
        name = self._places.rows_name(topic)
        checked_group(group)
        prefix = POSITIONS.prefix_of((group, name))
        if transaction is None and not self._rows.has_any(prefix):
            return None  # saves a snapshot, which costs the coordinator something
        version = self._retention.as_seen(
            transaction,
            self._reading.judge,
            lambda judge: self._rows.visible(prefix, judge),
        )
        return None if version is None else POSITIONS.read(version)

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back this transaction's move."""
        name, pointer = self._places.rows_name(topic), checked_pointer(transaction)
        place = checked_group(group), name
        if position is None:
            with self._writes.undoing(pointer):
                self._rows.take_back([POSITIONS.key_of(place, pointer)])
            return
        write = POSITIONS.write(place, pointer, checked_position(position))
        self._writes.write(transaction, [write])
        self._moved(group, name, write)

    def save_position_soon(
        self,
        group: str,
        topic: str,
        position: MessageId,
        *,
        transaction: int,
        post: Callable[[OnWritten, Unavailable | None], None],
        on_written: OnWritten,
    ) -> bool:
        """Moves a group with the commit and does not wait for the disk.

        It serves an event loop, to which `post` brings the outcome from another thread.
        Returns False, and has done nothing, where a thread has to save.
        """
        name = self._places.rows_name(topic)
        place = checked_group(group), name
        write = POSITIONS.write(place, transaction, checked_position(position))

        def on_disk(error: Unavailable | None) -> None:
            if error is None:
                self._moved(group, name, write)
            on_written(error)

        return self._writes.write_soon(transaction, [write], partial(post, on_disk))

    def _moved(self, group: str, name: TopicName, write: Write) -> None:
        """Counts a move that is on disk."""
        self.readers.saw(group, str(name))
        self._retention.wrote(POSITIONS, [without_pointer(write[0])])

    def position_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        group: str,
        topic: str,
        position: MessageId | None,
    ) -> RowCargo | None:
        """Returns a position as a row that the commit of `tx` carries.

        None for a position means that the group did not move. Returns None where the
        coordinator cannot carry rows.
        """
        if coordinator is not self._carrying:
            return None
        if position is None:
            return RowCargo([])
        name, pointer = self._places.rows_name(topic), tx.transaction_id

        write = POSITIONS.write((checked_group(group), name), pointer, position)
        return RowCargo([write], partial(self._moved, group, name, write))

    def bounds(
        self, topic: str, *, start: Start = None, isolation: str = UNCOMMITTED
    ) -> Bounds:
        """Returns the first and last id from `start` on, and the id of the next."""
        place, begin = self._places.at(topic), checked_start(start)
        if checked_isolation(isolation) == COMMITTED:
            return self._reading.committed_bounds(place, begin, None)
        return self._reading.bounds(place, begin)

    def offsets(
        self, topic: str, *, at: OffsetsAt = "last"
    ) -> dict[int, MessageId | None]:
        """Returns an id in each partition, by its number; None where there is none."""
        checked, place = checked_offsets_at(at), self._places.find(topic)
        snapshot = self._reading.snapshot() if checked == "stable" else None
        handles = place.handles() if isinstance(place, PartitionedTopic) else [place]
        return {
            handle.number: self._reading.offset(handle, checked, snapshot)
            for handle in handles
        }

    def bounds_seen(self, topic: str, snapshot: Transaction | None = None) -> Bounds:
        """Returns the bounds of what a snapshot, or a fresh one, sees as committed."""
        return self._reading.committed_bounds(self._places.at(topic), None, snapshot)

    publish_once = passed_on(ProducerService.publish_once, to="producing")
    producers = passed_on(ProducerService.producers, to="producing")
    describe_producer = passed_on(ProducerService.describe_producer, to="producing")
    forget_producer = passed_on(ProducerService.forget_producer, to="producing")

    def ended(self, pointers: Iterable[int]) -> None:
        """Wakes readers that wait for ended transactions, and forgets their stores."""
        if self._endings.signals:  # both are mostly empty, and this is called often
            self._endings.ended(pointers)
        if self._references.own_prefixes:
            self._references.ended(pointers)

    def place(self, topic: str) -> TopicHandle:
        """Returns a topic with its writer and its counters."""
        return self._places.at(topic)

    def found(self, topic: str) -> Place:
        """Returns a topic, a partition, or all partitions of a topic together."""
        return self._places.find(topic)

    def found_at_once(self, topic: str) -> Place | None:
        """Returns the same for an event loop; None where it would wait."""
        return self._places.find_at_once(topic)

    def shown_name(self, name: TopicName) -> str:
        """Returns the name of rows for operators, which says partition 0 of several."""
        try:
            partitions = self._places.topics.get(parent_of(name)).partitions
        except TopicNotFound:
            return str(name)
        is_first = partitions > 1 and not number_of(name)
        return partition_name(name, 0) if is_first else str(name)

    @property
    def reads_wait(self) -> bool:
        """True when reading rows may wait for a network."""
        return self._reads_wait

    def namespaces(self) -> list[str]:
        """Returns the namespaces that have a topic, in order."""
        return sorted({name.namespace for name in self.all_topics()})

    def all_topics(self) -> list[TopicName]:
        """Returns the names of all topics."""
        return [
            topic.topic for topic in self._places.topics.all() if topic.generation > 0
        ]

    @property
    def latencies(self) -> Latencies:
        """The times that publishes and polls took."""
        return self._places.latencies

    def topic_metrics(self) -> dict[str, TopicMetrics]:
        """Returns the counts of each topic."""
        return self._places.metrics()

    def forget(self) -> None:
        """Forgets what is known of rows, as a shard came or went."""
        self._places.forget()
        self.cache.clear()
        self._sequences.forget()
        self._references.forget()
        self._reading.forget()

    def close(self) -> None:
        """Ends all waits, and refuses later polls."""
        self._reading.close()
        self._places.wake()

    def _payloads(self, messages: Iterable[Payload]) -> Payloads:
        return checked_payloads(
            messages, limit_bytes=self._settings.message_limit_bytes
        )


def _checked_ask(
    *,
    start: Start,
    inclusive: bool,
    limit: int,
    transaction: Transaction | None,
    isolation: str,
) -> Ask:
    checked_snapshot(transaction)
    checked_flag("inclusive", inclusive)
    return Ask(
        checked_start(start),
        inclusive,
        checked_limit(limit),
        transaction,
        checked_isolation(isolation),
    )
