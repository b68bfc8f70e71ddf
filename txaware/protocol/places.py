"""Names in the path of a verb: topics, groups, queues, tables, and others."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

import attrs
import msgspec

from coordinator.outcome import checked_written
from coordinator.remote.named_transactions import checked_id
from txaware.model.groups import GroupName, checked_member
from txaware.model.partitions import KNOWN_NAMES, named_partition, partition_name
from txaware.model.queues import pipe_of
from txaware.model.topics import (
    QueueName,
    TableName,
    checked_group,
    checked_namespace,
    checked_transactional_id,
)
from txaware.protocol.rights import Params, queue_in


@attrs.frozen
class Place:
    """A field that stands in the path, as one word of it or two.

    `words` checks what a program names and returns the words of the path by their
    names; `name` returns the field of a path's words, which are checked with the right.
    """

    words: Callable[[Any], dict[str, str]]
    name: Callable[[Params], Any]


def in_path(name: str) -> str:
    """Returns a checked name as part of a path; only dots need quoting."""
    # Or somebody takes it for a directory.
    return name if name.strip(".") else name.replace(".", "%2E")


def _remembered(
    words: Callable[[Any], dict[str, str]],
) -> Callable[[Any], dict[str, str]]:
    """Returns what remembers the words of names: the same few come again and again."""
    known = lru_cache(KNOWN_NAMES)(words)
    # What is no name may have no hash, and is refused.
    return lambda name: known(name) if name.__class__ is str else words(name)


def _topic_words(topic: str) -> dict[str, str]:
    if (pipe := pipe_of(topic)) is not None:
        return {"namespace": pipe.namespace, "topic": pipe.in_namespace}
    parsed, number = named_partition(topic)
    name = parsed.name if number is None else partition_name(parsed.name, number)
    return {"namespace": parsed.namespace, "topic": name}


def _group_words(group: str) -> dict[str, str]:
    name = GroupName.parse(group)
    return {"namespace": name.namespace, "group": in_path(name.name)}


def _queue_words(name: str) -> dict[str, str]:
    queue = QueueName.parse(name)
    return {"namespace": queue.namespace, "queue": queue.name}


def _table_words(name: str) -> dict[str, str]:
    table = TableName.parse(name)
    return {"namespace": table.namespace, "table": table.name}


TRANSACTIONAL_ID = Place(
    lambda name: {"transactional_id": in_path(checked_transactional_id(name))},
    lambda words: words["transactional_id"],
)
NAMESPACE = Place(
    lambda name: {"namespace": checked_namespace(name)},
    lambda words: words["namespace"],
)
QUEUE = Place(_remembered(_queue_words), lambda words: str(queue_in(words)))
TOPIC = Place(
    _remembered(_topic_words), lambda words: f"{words['namespace']}:{words['topic']}"
)
TABLE = Place(
    _remembered(_table_words), lambda words: f"{words['namespace']}:{words['table']}"
)
GROUP = Place(
    _remembered(lambda group: {"group": in_path(checked_group(group))}),
    lambda words: words["group"],
)
GROUP_NAME = Place(
    _remembered(_group_words), lambda words: f"{words['namespace']}:{words['group']}"
)
MEMBER = Place(
    _remembered(lambda member: {"member": in_path(checked_member(member))}),
    lambda words: checked_member(words["member"]),
)
TRANSACTION = Place(
    lambda pointer: {"transaction": str(checked_id(pointer))},
    lambda words: checked_id(int(words["transaction"])),
)
# What a coordinator that was put back from a copy never gave out is one as well.
WRITTEN_POINTER = Place(
    lambda pointer: {"transaction": str(checked_written(pointer))},
    lambda words: checked_written(int(words["transaction"])),
)


class InNamespace(msgspec.Struct):
    """Names a namespace."""

    namespace: Annotated[str, NAMESPACE] = "default"


_OF_A_TOPIC = "/v1/namespaces/{namespace}/topics/{topic}/"


def is_of_partition(path: str) -> bool:
    """Tells whether what has this path is about the messages of a topic, or of a part.

    It is done where these messages are. What else there is of a topic is in one place.
    """
    return path.startswith(_OF_A_TOPIC) and not path.endswith("/properties")
