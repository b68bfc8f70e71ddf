"""Finds what belongs to a topic: its row, its writer, its counters."""

import logging
from collections.abc import Callable, Mapping

import attrs

from txaware.errors import TopicExists
from txaware.model.interfaces import OrderedTable
from txaware.model.metrics import Latencies, TopicCounters, TopicMetrics
from txaware.model.queues import pipe_of
from txaware.model.settings import Settings
from txaware.model.topics import (
    Topic,
    TopicName,
    checked_changes,
    checked_properties,
    checked_ttl_s,
    expand_names,
    valid_names,
)
from txaware.service.write.topic_writer import TopicWriter
from txaware.store.keys import MESSAGE
from txaware.store.topic_table import TopicTable

log = logging.getLogger(__name__)

# The same few names come again and again; at most so many are kept parsed.
KNOWN_NAMES = 100_000


@attrs.frozen
class TopicHandle:
    """A topic as it stands, with its writer and its counters.

    `prefix` begins the keys of its rows behind their tag, and `message_prefix` those of
    its message rows.
    """

    topic: Topic
    writer: TopicWriter
    counters: TopicCounters
    publishing: str = attrs.field(init=False)
    prefix: bytes = attrs.field(init=False)
    message_prefix: bytes = attrs.field(init=False)

    @publishing.default
    def _publishing(self) -> str:
        return self.topic.publishing

    @prefix.default
    def _prefix(self) -> bytes:
        return self.topic.prefix

    @message_prefix.default
    def _message_prefix(self) -> bytes:
        return MESSAGE + self.prefix


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
        self._current: dict[str, tuple[int, TopicHandle]] = {}
        # Finds the pipes of queues, which are written to like topics.
        self.pipes: Callable[[str], TopicHandle | None] = _no_pipe

    def name(self, topic: str) -> TopicName:
        """Returns a name, parsed."""
        name = self._names.get(topic) if isinstance(topic, str) else None
        if name is None:
            name = TopicName.parse(topic)
            if len(self._names) < KNOWN_NAMES:
                self._names[topic] = name
        return name

    def at(self, topic: str) -> TopicHandle:
        """Returns a topic with its writer; raises `TopicNotFound` if there is none."""
        known = self._current.get(topic) if topic.__class__ is str else None
        if known is not None and known[0] == self.topics.changes:
            return known[1]
        if (pipe := self.pipes(topic)) is not None:
            return pipe
        name, version = self.name(topic), self.topics.version()
        place = self._place(name, self.topics.get(name))
        if (
            version is not None
            and version == self.topics.version()
            and self.topics.remembered(name) is place.topic
            and len(self._current) < KNOWN_NAMES
        ):
            self._current[topic] = (version, place)
        return place

    def at_once(self, topic: str) -> TopicHandle | None:
        """Returns a topic for an event loop; None where it would wait for a network."""
        if not self._table.reads_wait:
            return self.at(topic)
        if pipe_of(topic) is not None:
            return None
        name = self.name(topic)
        found = self.topics.remembered(name)
        if found is None or found.generation < 0:
            return None
        return self._place(name, found)

    def _place(self, name: TopicName, found: Topic) -> TopicHandle:
        writer = self._writers.get(name)
        if writer is None:
            self._counters.setdefault(name, TopicCounters(self.latencies))
            writer = self._writers.setdefault(name, TopicWriter(self._table))
        return TopicHandle(found, writer, self._counters[name])

    def described(
        self,
        topic: str,
        ttl_s: int | str | None,
        properties: Mapping[str, str] | None,
        compact: bool | None = None,
    ) -> Topic:
        """Returns a topic as the caller describes it, checked."""
        ttl = self._settings.default_ttl_s if ttl_s is None else checked_ttl_s(ttl_s)
        named = checked_properties(properties, compact)
        return Topic(TopicName.parse(topic), 1, ttl, named)

    def change(
        self,
        topic: str,
        ttl_s: int | str | None,
        properties: Mapping[str, str | None] | None,
        compact: bool | None = None,
    ) -> Callable[[Topic], Topic]:
        """Returns the checked change that turns a topic into the updated one."""
        TopicName.parse(topic)
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
        """Returns the counts of each topic."""
        return {
            str(name): counters.snapshot()
            for name, counters in list(self._counters.items())
        }

    def wake(self, name: TopicName | None = None) -> None:
        """Wakes the readers that wait in a topic, or in all; they look again."""
        for found, writer in list(self._writers.items()):
            if name in (None, found):
                writer.signal.tell()


def _no_pipe(_: str) -> None:
    """Returns None: there are no queues."""
