"""Groups that share topics: their settings, their members, and what these hear."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Literal, Self, get_args

import attrs

from txaware.errors import BadRequest
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.topics import (
    DEFAULT_NAMESPACE,
    LONGEST_ID,
    NamespacedName,
    TopicName,
    checked_group,
    checked_id,
    checked_namespace,
)

SESSION_MS = 10_000
LEAST_SESSION_MS, MOST_SESSION_MS = 100, 3_600_000
# A member heartbeats so often in a session, unless its group says otherwise.
HEARTBEATS = 3
MOST_PARTITION = 65_534
LATEST_MS = 2**63 - 1
# A member joins so many topics, and names so many partitions, at most.
MOST_TOPICS, MOST_NAMED = 1_000, 10_000

Assignment = Literal["sticky", "range", "roundrobin", "own"]
ASSIGNMENTS: tuple[Assignment, ...] = get_args(Assignment)

# A topic by its name within the namespace of the group, and the number of a partition.
Partition = tuple[str, int]
# The place where a group begins to read a partition: a word, a time in ms, or an id.
GroupStart = MessageId | int | Literal["first", "last", "next"]
# Partitions by topic.
Owned = Mapping[str, Sequence[int]]


@attrs.frozen(cache_hash=True)
class GroupName(NamespacedName):
    """A group's name in the namespace of its topics; `str` leaves out `default`."""

    kind: ClassVar[str] = "group"

    @classmethod
    def parse(cls, text: object) -> Self:
        """Reads `name` or `namespace:name`; `BadRequest` for anything else."""
        if not isinstance(text, str):
            raise BadRequest(f"a group is named by a str, not {text!r:.100}")
        namespace, colon, name = text.rpartition(":")
        if not colon:
            namespace = DEFAULT_NAMESPACE
        return cls(checked_group(name), checked_namespace(namespace))


def group_name(text: object) -> GroupName:
    """Returns what `GroupName.parse` reads, which it remembers: the same come again."""
    return _known_group(text) if text.__class__ is str else GroupName.parse(text)


_known_group = lru_cache(10_000)(GroupName.parse)


@attrs.frozen
class GroupSettings:
    """The settings of a group; `heartbeat_ms` is None for a third of a session.

    `session_ms` is for members that name none. An `ephemeral` group goes with its last
    member.
    """

    session_ms: int = SESSION_MS
    heartbeat_ms: int | None = None
    ephemeral: bool = False
    assignment: Assignment = "sticky"

    def heartbeat_of(self, session_ms: int) -> int:
        """Returns the time between two heartbeats of a member with that session."""
        return self.heartbeat_ms or max(1, session_ms // HEARTBEATS)


@attrs.frozen
class NamedPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def pair(self) -> Partition:
        """The topic and the number."""
        return self.topic, self.partition


@attrs.frozen
class PartitionPosition:
    """A partition, with the id up to which its group has read it."""

    topic: str
    partition: int
    position: MessageId | None = None

    @property
    def pair(self) -> Partition:
        """The topic and the number."""
        return self.topic, self.partition


@attrs.frozen
class Joined:
    """The answer to a member that has joined: who it is, and what it has by now."""

    member: str
    incarnation: int
    generation: int
    heartbeat_ms: int
    partitions: list[PartitionPosition]


@attrs.frozen
class Beat:
    """The answer to a heartbeat: what to take, what to leave, what was rewound."""

    generation: int
    assign: list[PartitionPosition]
    revoke: list[NamedPartition]
    rewound: list[PartitionPosition]


@attrs.frozen
class GroupMember:
    """A member, as an operator sees it; `since_ms` is when it joined."""

    member: str
    incarnation: int
    static: bool
    since_ms: int
    session_ms: int
    topics: list[str]
    partitions: list[NamedPartition]
    client: str | None = None


@attrs.frozen
class GroupDescription:
    """A group, as an operator sees it; `why` says how the generation began."""

    group: str
    session_ms: int
    heartbeat_ms: int
    ephemeral: bool
    assignment: str
    generation: int
    generation_ms: int
    why: str
    topics: dict[str, int]
    members: list[GroupMember]


def position_change_key(group: str, topic: TopicName) -> bytes:
    """Returns the key on which two transactions conflict that both move a group."""
    return b"position:" + group.encode("ascii") + b":" + topic.key


def checked_member(name: object) -> str:
    """Returns the name of a member if valid; raises `BadRequest` otherwise."""
    return checked_id(name, "name of a member")


def checked_session_s(seconds: object, *, what: str = "session_s") -> float:
    """Returns the time of a session, or between heartbeats; else a `BadRequest`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadRequest(f"{what} is a number of seconds, not {seconds!r:.100}")
    if not LEAST_SESSION_MS <= seconds * 1000 <= MOST_SESSION_MS:
        raise BadRequest(
            f"{what} is from {LEAST_SESSION_MS / 1000} to {MOST_SESSION_MS // 1000} "
            f"seconds, not {seconds}"
        )
    return seconds


def checked_assignment(assignment: object) -> Assignment:
    """Returns the way of assignment if there is one of that name."""
    for one in ASSIGNMENTS:
        if assignment == one:
            return one
    raise BadRequest(
        f"assignment is one of {', '.join(ASSIGNMENTS)}, not {assignment!r:.100}"
    )


def checked_member_topics(topics: object) -> tuple[str, ...]:
    """Returns the topics that a member joins, each once and in order."""
    if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
        raise BadRequest(f"topics are a list of names, not {topics!r:.100}")
    names = sorted({checked_group_topic(one) for one in topics})
    if len(names) > MOST_TOPICS:
        raise BadRequest(
            f"a member joins {MOST_TOPICS:,} topics at most, not {len(names):,}"
        )
    return tuple(names)


def checked_named(partitions: object) -> tuple[Partition, ...]:
    """Returns the partitions that a member names, each once and in order."""
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise BadRequest(
            f"partitions are a list, each with a topic and a number, not "
            f"{partitions!r:.100}"
        )
    named = sorted({_partition(one) for one in partitions})
    if len(named) > MOST_NAMED:
        raise BadRequest(
            f"a member names {MOST_NAMED:,} partitions at most, not {len(named):,}"
        )
    return tuple(named)


def checked_map(assignment: object) -> dict[str, dict[str, list[int]]]:
    """Returns the partitions of each member, as an application assigns them."""
    if not isinstance(assignment, Mapping):
        raise BadRequest(
            f"an assignment is a map from members to topics and the numbers of their "
            f"partitions, not {assignment!r:.100}"
        )
    seen: dict[Partition, str] = {}
    checked: dict[str, dict[str, list[int]]] = {}
    for member, owned in assignment.items():
        named = checked.setdefault(checked_member(member), {})
        if not isinstance(owned, Mapping):
            raise BadRequest(
                f"the partitions of {member} are a map from topics to numbers, not "
                f"{owned!r:.100}"
            )
        for topic, numbers in owned.items():
            named[checked_group_topic(topic)] = _numbers(topic, numbers)
            for number in named[topic]:
                other = seen.setdefault((topic, number), member)
                if other != member:
                    raise BadRequest(
                        f"partition {number} of {topic} is assigned to {other} and to "
                        f"{member}"
                    )
    return checked


def checked_group_start(start: object) -> GroupStart:
    """Returns the place where a group begins; without one it is its first message."""
    return "first" if start is None else checked_group_place(start)


def checked_group_place(start: object) -> GroupStart:
    """Returns a place to go to; raises `BadRequest` for others, and for none."""
    if isinstance(start, MessageId) and len(start) == ID_BYTES:
        return start
    if start in ("first", "last", "next"):
        return start
    if isinstance(start, str) and len(start) == 2 * ID_BYTES:
        return MessageId.parse(start)
    if (
        isinstance(start, bool)
        or not isinstance(start, int)
        or not 0 <= start <= LATEST_MS
    ):
        raise BadRequest(
            f"start is first, last, next, a time in ms or an id, not {start!r:.100}"
        )
    return start


def checked_counter(number: object, *, what: str) -> int:
    """Returns an incarnation or a generation; raises `BadRequest` for others."""
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 0 <= number <= LATEST_MS
    ):
        raise BadRequest(
            f"{what} is a whole number from 0 to 2^63-1, not {number!r:.100}"
        )
    return number


def checked_client(name: object) -> str | None:
    """Returns the name of a client; raises `BadRequest` for what is none."""
    if name is not None and (not isinstance(name, str) or len(name) > LONGEST_ID):
        raise BadRequest(
            f"the name of a client has {LONGEST_ID} characters at most, and "
            f"{name!r:.100} is none"
        )
    return name


def checked_group_topic(name: object) -> str:
    """Returns the name of a topic, which lies in the namespace of the group."""
    if not isinstance(name, str) or ":" in name:
        raise BadRequest(
            f"{name!r:.100} is no topic of the group's namespace; its name alone is"
        )
    return TopicName.parse(name).name


def owned_by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Returns partitions by topic, the numbers in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _partition(one: object) -> Partition:
    if not isinstance(one, NamedPartition | PartitionPosition):
        raise BadRequest(f"a partition has a topic and a number, not {one!r:.100}")
    return checked_group_topic(one.topic), _number(one.topic, one.partition)


def _number(topic: str, number: object) -> int:
    if (
        isinstance(number, bool)
        or not isinstance(number, int)
        or not 0 <= number <= MOST_PARTITION
    ):
        raise BadRequest(
            f"a partition of {topic} is from 0 to {MOST_PARTITION}, not {number!r:.100}"
        )
    return number


def _numbers(topic: str, numbers: object) -> list[int]:
    if isinstance(numbers, str | bytes) or not isinstance(numbers, Iterable):
        raise BadRequest(
            f"the partitions of {topic} are a list of numbers, not {numbers!r:.100}"
        )
    return sorted({_number(topic, one) for one in numbers})
