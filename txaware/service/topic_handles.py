"""Finds what belongs to a topic: its row, its writer, its counters."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import ClassVar, final

import attrs

from txaware.errors import TopicExists
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import MessageId
from txaware.model.metrics import Latencies, TopicCounters, TopicMetrics
from txaware.model.partitions import (
    named_partition,
    no_partition,
    number_of,
    parent_of,
    partition_in,
    partition_name,
    partition_needed,
)
from txaware.model.queues import pipe_of
from txaware.model.requests import Payloads, Start, check_places, place_in
from txaware.model.settings import Settings
from txaware.model.shards import Shards
from txaware.model.topics import (
    Topic,
    TopicName,
    checked_changes,
    checked_properties,
    checked_ttl_s,
    expand_names,
    valid_names,
    with_partitions,
)
from txaware.service.wakeups import Signal
from txaware.service.write.topic_writer import TopicWriter
from txaware.store.interfaces import numbered_stores, stores_of, table_of
from txaware.store.keys import MESSAGE
from txaware.store.topic_table import TopicTable

log = logging.getLogger(__name__)

# The same few names come again and again; at most so many are kept parsed.
KNOWN_NAMES = 100_000


@final
@attrs.frozen
class TopicHandle:
    """A topic as it stands, with its writer and its counters.

    `prefix` begins the keys of its rows behind their tag, and `message_prefix` those of
    its message rows. `number` is that of the partition that it is. Rows of one that
    lies in another `shard` than the coordinator's journal go to disk before the commit.
    """

    topic: Topic
    writer: TopicWriter
    counters: TopicCounters
    publishing: str = attrs.field(init=False)
    prefix: bytes = attrs.field(init=False)
    message_prefix: bytes = attrs.field(init=False)
    number: int = attrs.field(init=False)
    shard: int = attrs.field(init=False)
    signal: Signal = attrs.field(init=False)

    @publishing.default
    def _publishing(self) -> str:
        return self.topic.publishing

    @prefix.default
    def _prefix(self) -> bytes:
        return self.topic.prefix

    @message_prefix.default
    def _message_prefix(self) -> bytes:
        return MESSAGE + self.prefix

    @number.default
    def _number(self) -> int:
        return number_of(self.topic.topic)

    @shard.default
    def _shard(self) -> int:
        return self.topic.shard_of(self.number)

    @signal.default
    def _signal(self) -> Signal:
        return self.writer.signal

    def start_in(self, start: Start) -> MessageId | int | None:
        """Returns the start in this partition, which places may name among others."""
        if isinstance(start, dict):
            check_places(start, most=self.topic.partitions)
        return place_in(start, self.number)


@final
@attrs.frozen
class PartitionedTopic:
    """A topic of several partitions as it stands, for who names none of them.

    `signal` tells what happens in any of them.
    """

    topic: Topic
    signal: Signal
    _turns: "PartitionTurns"
    _handles: "TopicHandles" = attrs.field(repr=False)
    _known: dict[int, TopicHandle] = attrs.field(factory=dict, repr=False, init=False)
    partitions: int = attrs.field(init=False)

    number: ClassVar[int] = 0

    @partitions.default
    def _partitions(self) -> int:
        return self.topic.partitions

    @property
    def counters(self) -> TopicCounters:
        """The counters of what names no partition: those of the first one."""
        return self.at(0).counters

    def at(self, number: int) -> TopicHandle:
        """Returns a partition, with its writer and its counters."""
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._handles.place(self.topic, number)
        return known

    def handles(self) -> Iterator[TopicHandle]:
        """Returns all partitions, by their numbers."""
        return map(self.at, range(self.partitions))

    def split(
        self, payloads: Payloads, turn: Callable[[], int] | None = None
    ) -> list[tuple[TopicHandle, Payloads]]:
        """Returns the payloads of each partition that gets any, by its number.

        What has no key goes whole to one partition: the next one in turn, or that of
        `turn`.
        """
        next_one = partial(self._turns.next, self.partitions)
        parts = payloads.by_partition(self.partitions, turn or next_one)
        return [(self.at(number), part) for number, part in parts.items()]


class PartitionTurns:
    """Goes round the partitions of a topic."""

    def __init__(self) -> None:
        self._count = count()

    def next(self, partitions: int) -> int:
        """Returns the partition whose turn it is."""
        return next(self._count) % partitions


Place = TopicHandle | PartitionedTopic


class TopicHandles:
    """The topics of a store; writers and counters live through all generations."""

    def __init__(self, table: OrderedTable, settings: Settings) -> None:
        self.topics = TopicTable(table)
        self.latencies = Latencies()
        self._table = table
        self._settings = settings
        self._names: dict[str, TopicName] = {}
        self._writers: dict[TopicName, TopicWriter] = {}
        self._counters: dict[TopicName, TopicCounters] = {}
        # Each with the count of changes to topics at which it was read.
        self._current: dict[str, tuple[int, Place]] = {}
        self._whole: dict[TopicName, tuple[Signal, PartitionTurns]] = {}
        self._spread: dict[TopicName, PartitionedTopic] = {}
        # Finds the pipes of queues, which are written to like topics.
        self.pipes: Callable[[str], TopicHandle | None] = _no_pipe

    @property
    def shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are here."""
        return tuple(number for number, _ in numbered_stores(self._table))

    def name(self, topic: str) -> TopicName:
        """Returns a name, parsed."""
        name = self._names.get(topic) if isinstance(topic, str) else None
        if name is None:
            name = TopicName.parse(topic)
            if len(self._names) < KNOWN_NAMES:
                self._names[topic] = name
        return name

    def at(self, topic: str) -> TopicHandle:
        """Returns a topic with its writer, or a partition of one.

        Raises `TopicNotFound` if there is none, and `PartitionNeeded` for the name of a
        topic of several partitions.
        """
        place = self.find(topic)
        if isinstance(place, PartitionedTopic):
            raise partition_needed(place.topic)
        return place

    def find(self, topic: str) -> Place:
        """Returns a topic or a partition, or a whole topic of several partitions."""
        known = self.known(topic)
        if known is not None:
            return known
        if (pipe := self.pipes(topic)) is not None:
            return pipe
        name, number = self._named(topic)
        version, found = self.topics.version(), self.topics.get(name)
        place: Place
        if number is None and found.partitions > 1:
            place = self._whole_of(found)
        else:
            place = self.place(found, number or 0)
        if (
            version is not None
            and version == self.topics.version()
            and self.topics.remembered(name) is found
            and len(self._current) < KNOWN_NAMES
        ):
            self._current[topic] = (version, place)
        return place

    def known(self, topic: str) -> Place | None:
        """Returns what that name was found to be, if no topic has changed since."""
        known = self._current.get(topic) if topic.__class__ is str else None
        if known is not None and known[0] == self.topics.changes:
            return known[1]
        return None

    def _whole_of(self, found: Topic) -> PartitionedTopic:
        known = self._spread.get(found.topic)
        if known is not None and known.topic is found:
            return known
        signal, turns = self._whole.setdefault(
            found.topic, (Signal(), PartitionTurns())
        )
        made = self._spread[found.topic] = PartitionedTopic(found, signal, turns, self)
        return made

    def find_at_once(self, topic: str) -> Place | None:
        """Returns what an event loop finds; None where it would wait for a network."""
        known = self.known(topic)
        if known is not None:
            return known
        if not self._table.reads_wait:
            return self.find(topic)
        if pipe_of(topic) is not None:
            return None
        name, number = self._named(topic)
        found = self.topics.remembered(name)
        if found is None or found.generation < 0:
            return None
        if number is None and found.partitions > 1:
            return self._whole_of(found)
        return self.place(found, number or 0)

    def topic(self, topic: str) -> Topic:
        """Returns a topic as it stands; for a partition the topic that has it."""
        name, number = self._named(topic)
        found = self.topics.get(name)
        self._partition(found, number or 0)
        return found

    def rows_name(self, topic: str) -> TopicName:
        """Returns the name by which the rows of what exists are kept."""
        name, number = self._named(topic)
        found = self.topics.get(name)
        if number is None and found.partitions > 1:
            raise partition_needed(found)
        return self._partition(found, number or 0).topic

    def _named(self, topic: str) -> tuple[TopicName, int | None]:
        if topic.__class__ is str and "." in topic:
            return named_partition(topic)
        return self.name(topic), None

    def _partition(self, found: Topic, number: int) -> Topic:
        if number >= found.partitions:
            raise no_partition(found, number)
        return partition_in(found, number)

    def place(self, found: Topic, number: int) -> TopicHandle:
        """Returns a partition of a topic, with its writer and its counters."""
        topic = self._partition(found, number)
        name = topic.topic
        writer = self._writers.get(name)
        if writer is None:
            table = table_of(self._table, found.shard_of(number))
            self._counters.setdefault(name, TopicCounters(self.latencies))
            writer = self._writers.setdefault(name, TopicWriter(table))
        if found.partitions > 1:
            writer.signal.also = self._whole_of(found).signal
        return TopicHandle(topic, writer, self._counters[name])

    def forget(self) -> None:
        """Forgets partitions whose rows are not here, or were not, and all topics."""
        here = stores_of(self._table)
        for name, writer in [*self._writers.items()]:
            if not any(writer.table is one for one in here):
                del self._writers[name]
                writer.signal.notify()
        self._spread = {}
        self.topics.forget_all()

    def described(
        self,
        topic: str,
        ttl_s: int | None,
        properties: Mapping[str, str] | None,
        compact: bool | None = None,
        partitions: int | None = None,
        shards: Shards = None,
    ) -> Topic:
        """Returns a topic as the caller describes it, checked."""
        ttl = self._settings.default_ttl_s if ttl_s is None else checked_ttl_s(ttl_s)
        properties = with_partitions(properties, partitions, shards)
        named = checked_properties(properties, compact)
        return Topic(TopicName.parse(topic), 1, ttl, named)

    def change(
        self,
        topic: str,
        ttl_s: int | None,
        properties: Mapping[str, str | None] | None,
        compact: bool | None = None,
        partitions: int | None = None,
    ) -> Callable[[Topic], Topic]:
        """Returns the checked change that turns a topic into the updated one."""
        TopicName.parse(topic)
        properties = with_partitions(properties, partitions)
        ttl = None if ttl_s is None else checked_ttl_s(ttl_s)
        changes = checked_changes(properties, compact)

        def changed(found: Topic) -> Topic:
            return found.changed(ttl, changes)

        return changed

    def create_from_settings(self) -> None:
        """Creates the topics that the settings name; they exist from the start."""
        names = list(expand_names(self._settings.topics))
        valid = list(valid_names(names))
        for name in set(names) - set(valid):
            log.warning("%r in the setting topics is no topic name", name)
        for name in valid:
            try:
                self.topics.create(self.described(name, None, None))
            except TopicExists:
                log.debug("topic %s exists already", name)

    def metrics(self) -> dict[str, TopicMetrics]:
        """Returns the counts of each topic, and of each partition of one of several."""
        return {
            self._shown(name): counters.snapshot()
            for name, counters in list(self._counters.items())
        }

    def _shown(self, name: TopicName) -> str:
        return partition_name(name, 0) if name in self._whole else str(name)

    def wake(self, name: TopicName | None = None) -> None:
        """Wakes the readers that wait in a topic, or in all; they look again."""
        for found, writer in list(self._writers.items()):
            if name is None or name == parent_of(found):
                writer.signal.notify()


def _no_pipe(_: str) -> None:
    """Returns None: there are no queues."""
