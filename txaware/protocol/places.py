"""Names in the path of a verb: topics, groups, queues, tables, and others."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote

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

T = TypeVar("T")


@attrs.frozen
class Place:
    """A field that stands in the path, as one word of it or two.

    `words` checks what a program names and returns the words of the path by their
    names; `name` returns the field of a path's words, which are checked with the right.
    `sent` returns both for the field as a frame has it, with the words decoded.
    """

    words: Callable[[Any], dict[str, str]]
    name: Callable[[Params], Any]
    sent: Callable[[Any], tuple[dict[str, str], Any]] = attrs.field(kw_only=True)

    @sent.default
    def _default_sent(self) -> Callable[[Any], tuple[dict[str, str], Any]]:
        return self._sent

    def _sent(self, field: Any) -> tuple[dict[str, str], Any]:
        words = {key: unquote(word) for key, word in self.words(field).items()}
        return words, self.name(words)


def _of_known(
    words: Callable[[Any], dict[str, str]], name: Callable[[Params], Any]
) -> Place:
    """Returns a place that remembers names: the same few come again and again."""
    place = Place(_remembered(words), name)
    return attrs.evolve(place, sent=_remembered(place.sent))


def in_path(name: str) -> str:
    """Returns a checked name as part of a path; only dots need quoting."""
    # Or somebody takes it for a directory.
    return name if name.strip(".") else name.replace(".", "%2E")


def _remembered(made: Callable[[Any], T]) -> Callable[[Any], T]:
    """Returns what remembers what is made of a name."""
    known = lru_cache(KNOWN_NAMES)(made)
    # What is no name may have no hash, and is refused.
    return lambda name: known(name) if name.__class__ is str else made(name)


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
QUEUE = _of_known(_queue_words, lambda words: str(queue_in(words)))
TOPIC = _of_known(_topic_words, lambda words: f"{words['namespace']}:{words['topic']}")
TABLE = _of_known(_table_words, lambda words: f"{words['namespace']}:{words['table']}")
GROUP = _of_known(
    lambda group: {"group": in_path(checked_group(group))}, lambda words: words["group"]
)
GROUP_NAME = _of_known(
    _group_words, lambda words: f"{words['namespace']}:{words['group']}"
)
MEMBER = _of_known(
    lambda member: {"member": in_path(checked_member(member))},
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
