"""The rows of groups: settings, generation, members, and who has which partition."""

import json
from collections.abc import Mapping
from typing import Any, Self

import attrs

from txaware.model.groups import (
    GroupSettings,
    GroupStart,
    Partition,
    checked_group_start,
)
from txaware.model.messages import MessageId


@attrs.frozen
class MemberRow:
    """A member: what it joined, and by which incarnation it is known.

    Of each topic in `topics` it gets a share, and all of `partitions`, which it names.
    One with `own_positions` keeps its positions elsewhere. One with a `process` is in
    the process that has the store open, and ends with it.
    """

    name: str
    incarnation: int
    topics: tuple[str, ...]
    partitions: tuple[Partition, ...]
    start: GroupStart
    session_ms: int
    is_static: bool
    since_ms: int
    client: str | None = None
    own_positions: bool = False
    process: str | None = None

    @property
    def all_topics(self) -> set[str]:
        """The topics of which it may get partitions."""
        return {*self.topics, *(topic for topic, _ in self.partitions)}

    @property
    def joined(self) -> tuple[object, ...]:
        """The topics and partitions that it joined, to be compared."""
        return self.topics, self.partitions


@attrs.frozen
class Owner:
    """The member that has a partition, and the generation in which it got it."""

    member: str
    since: int


@attrs.frozen
class GroupRow:
    """A group as it is kept; `topics` tells how many partitions of each it knows.

    `left` tells it of topics that all members have left: partitions that are added
    meanwhile are new to the group. `own` are the partitions of members as an
    application assigned them.
    """

    settings: GroupSettings = attrs.field(factory=GroupSettings)
    generation: int = 0
    began_ms: int = 0
    why: str = ""
    members: Mapping[str, MemberRow] = attrs.field(factory=dict)
    topics: Mapping[str, int] = attrs.field(factory=dict)
    owners: Mapping[Partition, Owner] = attrs.field(factory=dict)
    own: Mapping[str, Mapping[str, list[int]]] = attrs.field(factory=dict)
    left: Mapping[str, int] = attrs.field(factory=dict)

    def knows(self, topic: str, number: int) -> bool:
        """Tells whether a partition was there when the group had the topic last.

        Of a topic that it never had it knows all.
        """
        count = self.topics.get(topic) or self.left.get(topic) or number + 1
        return number < count

    def owned_by(self, member: str) -> list[Partition]:
        """Returns the partitions of a member, in order."""
        return sorted(p for p, owner in self.owners.items() if owner.member == member)

    def to_bytes(self) -> bytes:
        """Writes the row as JSON."""
        owners: dict[str, dict[str, dict[str, list[int]]]] = {}
        for (topic, number), owner in sorted(self.owners.items()):
            of_member = owners.setdefault(topic, {}).setdefault(owner.member, {})
            of_member.setdefault(str(owner.since), []).append(number)
        row = {
            "settings": attrs.asdict(self.settings),
            "generation": self.generation,
            "began": self.began_ms,
            "why": self.why,
            "members": {
                name: _member_fields(self.members[name])
                for name in sorted(self.members)
            },
            "topics": dict(sorted(self.topics.items())),
            "owners": owners,
            "own": {name: dict(topics) for name, topics in sorted(self.own.items())},
            **({"left": dict(sorted(self.left.items()))} if self.left else {}),
        }
        return json.dumps(row, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads what `to_bytes` wrote; a `ValueError` says what is wrong."""
        try:
            row: dict[str, Any] = json.loads(data)
            return cls(
                settings=GroupSettings(**row["settings"]),
                generation=row["generation"],
                began_ms=row["began"],
                why=row["why"],
                members={
                    name: _member(name, fields)
                    for name, fields in row["members"].items()
                },
                topics=row["topics"],
                owners={
                    (topic, number): Owner(member, int(since))
                    for topic, by_member in row["owners"].items()
                    for member, by_since in by_member.items()
                    for since, numbers in by_since.items()
                    for number in numbers
                },
                own=row["own"],
                left=row.get("left", {}),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"no group can be read: {error!r}") from error


def _member_fields(row: MemberRow) -> dict[str, Any]:
    is_id = isinstance(row.start, MessageId)
    return {
        "incarnation": row.incarnation,
        "topics": row.topics,
        "partitions": row.partitions,
        "start": str(row.start) if is_id else row.start,
        "session": row.session_ms,
        "static": row.is_static,
        "since": row.since_ms,
        "client": row.client,
        **({"positions": "own"} if row.own_positions else {}),
        **({} if row.process is None else {"process": row.process}),
    }


def _member(name: str, fields: Mapping[str, Any]) -> MemberRow:
    return MemberRow(
        name=name,
        incarnation=fields["incarnation"],
        topics=tuple(fields["topics"]),
        partitions=tuple((topic, number) for topic, number in fields["partitions"]),
        start=checked_group_start(fields["start"]),
        session_ms=fields["session"],
        is_static=fields["static"],
        since_ms=fields["since"],
        client=fields["client"],
        own_positions="positions" in fields,
        process=fields.get("process"),
    )
