"""Partitions: the one that a key goes to, and the names of all."""

import re
import zlib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import ClassVar

import attrs

from txaware.errors import BadRequest, PartitionNeeded, TopicNotFound
from txaware.model.topics import DEFAULT_NAMESPACE, Topic, TopicName

_PARTITION = re.compile(r"(.*[A-Za-z0-9_-])\.(0|[1-9][0-9]{0,8})", re.ASCII)


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the number of the partition that a key goes to."""
    return zlib.crc32(key) % partitions


def partition_name(topic: str | TopicName, number: int) -> str:
    """Returns the name of a partition, as `orders.3`."""
    return f"{topic}.{number}"


def named_partition(text: object) -> tuple[TopicName, int | None]:
    """Reads the name of a topic, or of one partition; else a `BadRequest`.

    The number is None where the name is that of a topic.
    """
    return _named(text) if isinstance(text, str) else (TopicName.parse(text), None)


@lru_cache(maxsize=1000)  # a request may name its topic each time
def _named(text: str) -> tuple[TopicName, int | None]:
    if found := _PARTITION.fullmatch(text):
        topic, number = found[1], int(found[2])
        if "." not in topic:
            return TopicName.parse(topic), number
    return TopicName.parse(text), None


@attrs.frozen(cache_hash=True)
class PartitionName(TopicName):
    """The name by which the rows of a partition are kept, from number 1 on.

    The rows of partition 0 are kept by the name of the topic itself.
    """

    kind: ClassVar[str] = "partition"

    number: int = 1

    @cached_property
    def key(self) -> bytes:
        """The beginning of the keys of its rows, before anything else in them."""
        return f"{self.namespace}:{self.name}.{self.number}:".encode("ascii")

    def __str__(self) -> str:
        if self.namespace == DEFAULT_NAMESPACE:
            return f"{self.name}.{self.number}"
        return f"{self.namespace}:{self.name}.{self.number}"


def checked_partition(topic: str, number: object) -> str:
    """Returns the name of a partition of a topic, which is checked."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise BadRequest(f"a partition is a whole number, not {number!r:.100}")
    return partition_name(TopicName.parse(topic), number)


def full_name(text: object) -> str:
    """Returns the name of a topic or a partition, checked, as it is written."""
    name, number = named_partition(text)
    return str(name) if number is None else partition_name(name, number)


def parsed_rows(text: object) -> TopicName:
    """Reads the name by which rows are kept: that of a topic, or of a partition."""
    name, number = named_partition(text)
    return name_of_rows(name, number or 0)


def stored_rows(namespace: str, name: str) -> TopicName:
    """Returns the name by which rows are kept, as a key has it."""
    topic, _, number = name.rpartition(".")
    if not topic:  # perhaps that of a queue, which begins with the dot
        return TopicName(name, namespace)
    return PartitionName(topic, namespace, int(number))


def parent_of(name: TopicName) -> TopicName:
    """Returns the topic that rows are kept for under a name."""
    if isinstance(name, PartitionName):
        return TopicName(name.name, name.namespace)
    return name


def number_of(name: TopicName) -> int:
    """Returns the number of the partition whose rows are kept under a name."""
    return name.number if isinstance(name, PartitionName) else 0


def partition_in(topic: Topic, number: int) -> Topic:
    """Returns a partition as the topic that its rows are written to.

    One that only earlier generations had is a deleted topic.
    """
    if not number:
        return topic
    generation = topic.generation
    if number >= topic.partitions:
        generation = -abs(generation)
    name = name_of_rows(topic.topic, number)
    return attrs.evolve(topic, topic=name, generation=generation)


def row_topics(topic: Topic) -> Iterator[Topic]:
    """Yields each partition, also a former one, as its rows are written."""
    yield topic
    for number in range(1, max(topic.partitions, topic.former_partitions)):
        yield partition_in(topic, number)


def shown_partitions(topic: Topic) -> Iterator[tuple[str, Topic]]:
    """Yields what operators see of a topic: itself, or each of its partitions."""
    if topic.partitions == 1:
        yield str(topic.topic), topic
        return
    for number in range(topic.partitions):
        yield partition_name(topic.topic, number), partition_in(topic, number)


def no_partition(topic: Topic, number: int) -> TopicNotFound:
    """Returns the error of a partition that a topic does not have."""
    name, most = partition_name(topic.topic, number), topic.partitions
    if most == 1:
        return TopicNotFound(
            f"{name} does not exist: topic {topic.topic} has 1 partition, "
            f"{partition_name(topic.topic, 0)}"
        )
    return TopicNotFound(
        f"{name} does not exist: topic {topic.topic} has {most} partitions, "
        f"{partition_name(topic.topic, 0)} to {partition_name(topic.topic, most - 1)}"
    )


def partition_needed(topic: Topic) -> PartitionNeeded:
    """Returns the error of a call that is for one partition, and names none."""
    return PartitionNeeded(
        f"topic {topic.topic} has {topic.partitions} partitions; name one of them, as "
        f"{partition_name(topic.topic, 0)}"
    )


def name_of_rows(topic: TopicName, number: int) -> TopicName:
    """Returns the name by which the rows of a partition are kept."""
    return PartitionName(topic.name, topic.namespace, number) if number else topic


# The same few topics come again and again.
KNOWN_NAMES = 20_000


@lru_cache(KNOWN_NAMES)
def parsed_topic(name: str) -> TopicName:
    """Returns the name of a topic, also for one of its partitions, which it remembers.

    The rights of a partition are those of its topic.
    """
    return named_partition(name)[0]
