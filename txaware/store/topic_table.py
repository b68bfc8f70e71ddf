"""The topic table: the settings of every topic, deleted ones included."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol, TypeVar

import attrs

from coordinator.threads import try_lock
from txaware.errors import BadRequest, TopicExists, TopicNotFound, TxAwareError
from txaware.model.interfaces import OrderedTable
from txaware.model.partitions import row_topics
from txaware.model.queues import is_queue
from txaware.model.shards import HOME, checked_shards
from txaware.model.topics import SHARDS, Topic, TopicName
from txaware.store.interfaces import pieces
from txaware.store.keys import TOPIC, topic_key

T = TypeVar("T")
Change = Callable[[Topic | None], Topic]


class Placement(Protocol):
    """The place of each partition, and the copies of a topic's row where it lies."""

    def placed(self, found: Topic | None, topic: Topic) -> Topic:
        """Returns what follows `found`, with the shard of each partition.

        A topic that names shards, and had none, is spread over those.
        """

    def copy(self, topic: Topic) -> None:
        """Has each shard that serves the topic, or did, keep a copy of its row."""


class OneShard:
    """The placement of a store that has no other shards."""

    def placed(self, found: Topic | None, topic: Topic) -> Topic:
        """Returns the topic, which may name no shard but this one."""
        named = topic.properties.get(SHARDS)
        if named is None or (found is not None and found.properties.get(SHARDS)):
            return topic
        for number in checked_shards(named) or ():
            if number != HOME:
                raise no_shard(number, (HOME,))
        return attrs.evolve(topic, properties=_without(topic.properties, SHARDS))

    def copy(self, topic: Topic) -> None:
        """Does nothing: all that lies elsewhere is nothing."""


def no_shard(number: int, shards: tuple[int, ...]) -> BadRequest:
    """Returns the error for a shard that a store does not have."""
    return BadRequest(
        f"shard {number} is not there: this store has {', '.join(map(str, shards))}; "
        f"txaware shard add makes more"
    )


def _without(properties: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key != name}


class TopicTable:
    """The rows of all topics. A row survives its topic, and keeps count of generations.

    Topics that were read are remembered: only the process that owns the table changes
    them.
    """

    def __init__(self, table: OrderedTable) -> None:
        self._table = table
        self.placement: Placement = OneShard()
        self._changing = threading.Lock()  # so that the last change is remembered
        self.changes = 0
        # Are called after each change, and take no time.
        self.on_change: list[Callable[[], object]] = []
        self._in_doubt: set[TopicName] = set()
        self._known: dict[TopicName, Topic] = {}
        self._listed: tuple[int, Sequence[Topic]] | None = None

    def get(self, name: TopicName) -> Topic:
        """Returns a topic; raises `TopicNotFound` if there is none now."""
        topic = self._known.get(name) or self._read(name)
        if topic is None or topic.generation < 0:
            raise TopicNotFound(f"topic {name} does not exist")
        return topic

    def version(self) -> int | None:
        """Returns the count of changes to topics; None while one is under way.

        What was read between two looks that return the same number is as it was.
        """
        return None if self._changing.locked() else self.changes

    def remembered(self, name: TopicName) -> Topic | None:
        """Returns a remembered topic, also a deleted one; None without one."""
        return self._known.get(name)

    def create(self, topic: Topic) -> Topic:
        """Makes the next generation of a topic."""

        def created(found: Topic | None) -> Topic:
            if found is not None and found.generation > 0:
                raise TopicExists(f"topic {topic.topic} exists already")
            generation = abs(found.generation) + 1 if found is not None else 1
            return attrs.evolve((found or topic).followed(topic), generation=generation)

        return self._change(topic.topic, created)

    def update(self, name: TopicName, change: Callable[[Topic], Topic]) -> Topic:
        """Changes a topic in one step; the generation stays."""

        def updated(found: Topic | None) -> Topic:
            topic = _existing(name, found)
            changed = topic.followed(change(topic))
            return attrs.evolve(changed, generation=topic.generation)

        return self._change(name, updated)

    def renew(self, name: TopicName) -> Topic:
        """Makes the next generation of what exists, in one step: all rows are gone."""

        def renewed(found: Topic | None) -> Topic:
            topic = _existing(name, found)
            return attrs.evolve(topic, generation=topic.generation + 1)

        return self._change(name, renewed)

    def delete(self, name: TopicName) -> Topic:
        """Turns the generation negative; answers the topic as it was left."""

        def deleted(found: Topic | None) -> Topic:
            topic = _existing(name, found)
            return attrs.evolve(topic, generation=-topic.generation)

        return self._change(name, deleted)

    def keep(self, topic: Topic, table: OrderedTable | None = None) -> None:
        """Keeps a topic as it is elsewhere, of whose row this is a copy.

        `table` is the one of the shard, where this is that of several.
        """
        self._change(topic.topic, lambda _: topic, copy_in=table or self._table)

    def forget(self, name: TopicName) -> None:
        """Reads a topic anew: the copy of its row was changed."""
        with self._changing:
            self.changes += 1
            self._known.pop(name, None)
        for callback in self.on_change:
            callback()

    def forget_all(self) -> None:
        """Reads all topics anew: copies of their rows go elsewhere."""
        with self._changing:
            self.changes += 1
            self._known.clear()
        for callback in self.on_change:
            callback()

    def unchanged(self, act: Callable[[list[Topic]], T]) -> T:
        """Returns what `act` does with all topics, none of which changes meanwhile."""
        with self._changing:
            return act(list(self.all()))

    def names(self, namespace: str) -> list[str]:
        """Lists the existing topics of a namespace, in the order of their keys."""
        return [
            topic.name
            for topic in self.all(f"{namespace}:".encode("ascii"))
            if topic.generation > 0
        ]

    def queues(self, prefix: bytes = b"") -> Iterator[Topic]:
        """Reads the rows of all queues whose key begins with `prefix`, deleted too."""
        return (topic for topic in self._rows(prefix) if is_queue(topic.topic))

    def all(self, prefix: bytes = b"") -> Iterator[Topic]:
        """Reads all topics whose key begins with `prefix`, deleted ones included."""
        return (topic for topic in self._rows(prefix) if not is_queue(topic.topic))

    def listed(self) -> Sequence[Topic]:
        """Returns the rows of all topics and queues; reads them after a change only."""
        version = self.version()
        if self._listed is not None and self._listed[0] == version:
            return self._listed[1]
        found = tuple(self._rows(b""))
        if version is not None and not self._in_doubt:
            self._listed = version, found  # which a change meanwhile has outdated
        return found

    def all_partitions(self, prefix: bytes = b"") -> Iterator[Topic]:
        """Reads all topics, each followed by its partitions, as rows are kept."""
        return chain.from_iterable(map(row_topics, self.all(prefix)))

    def _rows(self, prefix: bytes) -> Iterator[Topic]:
        for rows in pieces(self._table, TOPIC + prefix):
            for key, value in rows:
                namespace, name, _ = (prefix + key).decode("ascii").split(":")
                yield Topic.from_bytes(TopicName(name, namespace), value)

    def _read(self, name: TopicName) -> Topic | None:
        # A change holds the lock while it is written to disk. A read does not wait for
        # it, as an event loop may call, and many may read at once from a remote disk.
        changes, is_changing = self.changes, self._changing.locked()
        topic = self._found(name)
        if topic is None or is_changing:
            return topic
        acquired: list[bool] = []
        try:
            unchanged = try_lock(self._changing, acquired) and self.changes == changes
            if unchanged and name not in self._in_doubt:
                self._known[name] = topic
            return topic
        finally:
            if True in acquired:
                self._changing.release()

    def _found(self, name: TopicName) -> Topic | None:
        value = self._table.get(topic_key(name))
        return None if value is None else Topic.from_bytes(name, value)

    def _change(
        self, name: TopicName, change: Change, *, copy_in: OrderedTable | None = None
    ) -> Topic:
        table, is_copy = copy_in or self._table, copy_in is not None
        with self._changing:
            self.changes += 1  # what is being read may be older
            # Until it is known how the change ended, nothing is remembered: what was
            # interrupted, or failed, may be written all the same.
            was_in_doubt = name in self._in_doubt
            self._in_doubt.add(name)
            self._known.pop(name, None)
            while True:
                old = table.get(topic_key(name))
                found = None if old is None else Topic.from_bytes(name, old)
                try:
                    topic = change(found)
                    if not (is_copy or is_queue(name)):
                        topic = self.placement.placed(found, topic)
                except TxAwareError:  # refused, and nothing is written
                    if not was_in_doubt:
                        self._in_doubt.discard(name)
                    raise
                if topic.partitions > 1:
                    while writes := table.partitioned_format():
                        table.submit(writes)()
                # Who finds a topic here finds it in its shards, too.
                if topic.generation > 0 and not is_copy:
                    self.placement.copy(topic)
                if table.compare_and_set(topic_key(name), old, topic.to_bytes()):
                    self._known[name] = topic
                    self._in_doubt.discard(name)
                    break
            if topic.generation < 0 and not is_copy:
                self.placement.copy(topic)
        for callback in self.on_change:
            callback()
        return topic


def _existing(name: TopicName, topic: Topic | None) -> Topic:
    if topic is None or topic.generation < 0:
        raise TopicNotFound(f"topic {name} does not exist")
    return topic
