"""The port of groups that share topics, for members and for operators."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from coordinator.transaction import Transaction
from txaware.model.groups import (
    Assignment,
    Beat,
    GroupDescription,
    GroupStart,
    Joined,
    NamedPartition,
    PartitionPosition,
)
from txaware.model.signatures import PortVerb


class GroupService(Protocol):
    """The service that keeps groups: who is a member, and who has which partition.

    The calls are the same embedded, over HTTP and on HBase. Any number of threads may
    call. A group is `name` or `namespace:name`, and its topics are named without their
    namespace, which is that of the group.

    A partition has one owner. It moves to another one in one transaction with the
    position of its group, after its owner let it go or its session ended. So what the
    former owner still has under way can no longer be committed.
    """

    def create_group(
        self,
        group: str,
        *,
        session_s: float | None = None,
        heartbeat_s: float | None = None,
        ephemeral: bool | None = None,
        assignment: Assignment | None = None,
    ) -> GroupDescription:
        """Creates a group, or changes what is named of one that exists."""

    def group(self, group: str) -> GroupDescription:
        """Describes a group, its members, and what these have."""

    def groups(self, namespace: str = "default") -> list[GroupDescription]:
        """Describes the groups of a namespace, in order of their names."""

    def delete_group(self, group: str) -> None:
        """Deletes a group that has no members; its positions stay."""

    def join_group(
        self,
        group: str,
        member: str | None = None,
        *,
        static: bool = False,
        topics: Sequence[str] = (),
        partitions: Sequence[NamedPartition] = (),
        start: GroupStart | None = None,
        session_s: float | None = None,
        client: str | None = None,
        own_positions: bool = False,
    ) -> Joined:
        """Makes a member, which gets a share of `topics`, and the `partitions` named.

        Without a name it gets one. A name that is a member already is its next
        incarnation: it keeps what it has, and the one before is fenced. A partition
        that the group has never read begins at `start`. A group that does not exist
        is created. With `own_positions` no position is written for what it gets: it
        keeps them itself, as in a database of its own.
        """

    def heartbeat(
        self,
        group: str,
        member: str,
        *,
        incarnation: int,
        generation: int,
        owned: Sequence[NamedPartition] = (),
        wait_s: float = 0,
    ) -> Beat:
        """Keeps a member's session, and tells it what to take and what to leave.

        `generation` is the last that it has taken up, and `owned` is what it holds
        then: what it had and does not name, it has let go. The call waits until
        something changed, for `wait_s` at most.
        """

    def leave_group(
        self, group: str, member: str, *, incarnation: int | None = None
    ) -> None:
        """Ends a membership at once; without an incarnation, whichever it is."""

    def member_positions(
        self,
        group: str,
        member: str,
        *,
        incarnation: int,
        partitions: Sequence[NamedPartition],
        transaction: Transaction | None = None,
    ) -> list[PartitionPosition]:
        """Returns where partitions stand, as the transaction or a fresh snapshot sees.

        Raises `MemberFenced` unless that incarnation of the member has all of them.
        What it got after the transaction began is left out. A transaction that reads
        and moves these positions commits only if none of the partitions moved since it
        began.
        """

    def rewind_group(
        self, group: str, topic: str, *, to: GroupStart | Mapping[str, GroupStart]
    ) -> list[PartitionPosition]:
        """Moves a group in a topic, or in the partitions of it that `to` names.

        An id is what comes next. Members are told to go on from there.
        """

    def assign_group(
        self, group: str, members: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> GroupDescription:
        """Assigns partitions to members, by topic; the assignment becomes `own`."""


class GroupMethods:
    """The verbs of `GroupService` that programs call, but for those of members."""

    create_group = PortVerb(GroupService.create_group)
    group = PortVerb(GroupService.group)
    groups = PortVerb(GroupService.groups)
    delete_group = PortVerb(GroupService.delete_group)
    rewind_group = PortVerb(GroupService.rewind_group)
    assign_group = PortVerb(GroupService.assign_group)
