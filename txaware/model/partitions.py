"""Partitions: the one that a key goes to, and the names of all."""

import re
import zlib
from functools import cached_property
from typing import ClassVar

import attrs

from txaware.errors import BadRequest
from txaware.model.topics import DEFAULT_NAMESPACE, TopicName

MOST_PARTITIONS = 65_535
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


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
    if not isinstance(text, str) or "." not in text:
        return TopicName.parse(text), None
    topic, _, number = text.rpartition(".")
    if not _NUMBER.fullmatch(number):
        raise BadRequest(
            f"{text!r:.100} is no topic name; letters, digits, - and _ make one, and "
            f"a partition is named as in orders.3"
        )
    return TopicName.parse(topic), int(number)


def checked_partitions(partitions: object) -> int:
    """Reads a number of partitions from a whole number or its text."""
    number = partitions
    if isinstance(partitions, str) and _WHOLE.fullmatch(partitions):
        number = int(partitions)
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadRequest(f"partitions are a whole number, not {partitions!r:.100}")
    if not 1 <= number <= MOST_PARTITIONS:
        raise BadRequest(
            f"a topic has from 1 to {MOST_PARTITIONS} partitions, not {number}"
        )
    return number


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


def name_of_rows(topic: TopicName, number: int) -> TopicName:
    """Returns the name by which the rows of a partition are kept."""
    return PartitionName(topic.name, topic.namespace, number) if number else topic
