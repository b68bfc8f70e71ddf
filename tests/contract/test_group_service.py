"""Groups that share topics: members, heartbeats, moves and fences, on every service."""

import threading
from typing import Any

import pytest

from tests.support.messagings import Site, commit
from txaware.errors import (
    BadRequest,
    GroupFull,
    GroupInUse,
    GroupNotFound,
    MemberFenced,
    TopicNotFound,
    TransactionConflict,
)
from txaware.messaging import Messaging
from txaware.model.group_service import GroupService
from txaware.model.groups import GroupStart, Joined, NamedPartition, PartitionPosition
from txaware.model.messages import MessageId
from txaware.model.metrics import GroupShare
from txaware.model.start_places import BEGINNING

ORDERS = NamedPartition("orders", 0)


@pytest.fixture
def groups(site: Site) -> GroupService:
    """The groups of a store with two topics."""
    site.messaging.create_topic("orders")
    site.messaging.create_topic("audit")
    return site.messaging._parts.groups


def join(groups: GroupService, name: str, *topics: str) -> Joined:
    return groups.join_group("billing", name, topics=topics or ["orders"])


def test_a_member_gets_what_nobody_has_and_the_group_is_there(
    groups: GroupService,
) -> None:
    joined = join(groups, "a", "audit", "orders")
    assert joined.member == "a"
    assert joined.generation == 1
    assert joined.heartbeat_ms == 3333
    assert joined.partitions == [
        PartitionPosition("audit", 0, BEGINNING),
        PartitionPosition("orders", 0, BEGINNING),
    ]
    found = groups.group("billing")
    assert (found.session_ms, found.ephemeral, found.assignment) == (
        *(10_000, False),
        "sticky",
    )
    assert found.topics == {"audit": 1, "orders": 1}
    [member] = found.members
    assert member.partitions == [NamedPartition("audit", 0), ORDERS]
    assert (member.member, member.incarnation) == ("a", joined.incarnation)
    assert groups.groups() == [found]


def test_a_partition_goes_to_the_second_when_the_first_lets_it_go(
    groups: GroupService,
) -> None:
    first = join(groups, "a", "audit", "orders")
    second = join(groups, "b", "audit", "orders")
    assert second.partitions == []
    held = [NamedPartition("audit", 0), ORDERS]
    beat = groups.heartbeat(
        "billing",
        *("a",),
        incarnation=first.incarnation,
        generation=first.generation,
        owned=held,
    )
    [left] = beat.revoke
    waiting = groups.heartbeat(
        "billing",
        *("b",),
        incarnation=second.incarnation,
        generation=second.generation,
    )
    assert waiting.assign == []
    kept = [one for one in held if one != left]
    groups.heartbeat(
        "billing",
        *("a",),
        incarnation=first.incarnation,
        generation=beat.generation,
        owned=kept,
    )
    beat = groups.heartbeat(
        "billing",
        *("b",),
        incarnation=second.incarnation,
        generation=second.generation,
    )
    assert [(one.topic, one.partition) for one in beat.assign] == [left.pair]
    assert beat.generation == second.generation + 1


def test_a_session_that_ends_gives_all_to_the_others(
    site: Site, groups: GroupService
) -> None:
    first, second = join(groups, "a"), join(groups, "b")
    site.clock.advance_s(6)
    beat = groups.heartbeat(
        "billing", "b", incarnation=second.incarnation, generation=second.generation
    )
    assert beat.assign == []
    site.clock.advance_s(6)
    beat = groups.heartbeat(
        "billing", "b", incarnation=second.incarnation, generation=beat.generation
    )
    assert beat.assign == [PartitionPosition("orders", 0, BEGINNING)]
    with pytest.raises(MemberFenced, match="join again"):
        groups.heartbeat(
            "billing", "a", incarnation=first.incarnation, generation=beat.generation
        )
    assert [one.member for one in groups.group("billing").members] == ["b"]
    assert "the session of a ended" in groups.group("billing").why


def test_a_heartbeat_waits_until_something_changes(groups: GroupService) -> None:
    first = join(groups, "a")
    joined: list[Joined] = []
    other = threading.Timer(0.1, lambda: joined.append(join(groups, "b")))
    other.start()
    beat = groups.heartbeat(
        "billing",
        *("a",),
        incarnation=first.incarnation,
        generation=first.generation,
        owned=[ORDERS],
        wait_s=30,
    )
    other.join()
    assert beat.generation == joined[0].generation == 2


def test_who_joins_again_keeps_what_it_has_and_fences_who_it_was(
    groups: GroupService,
) -> None:
    first = groups.join_group("billing", "a", static=True, topics=["orders"])
    again = groups.join_group("billing", "a", static=True, topics=["orders"])
    assert again.incarnation > first.incarnation
    assert again.generation == first.generation
    assert again.partitions == first.partitions
    for call in (
        lambda: groups.heartbeat(
            "billing", "a", incarnation=first.incarnation, generation=1
        ),
        lambda: groups.member_positions(
            "billing", "a", incarnation=first.incarnation, partitions=[ORDERS]
        ),
        lambda: groups.leave_group("billing", "a", incarnation=first.incarnation),
    ):
        with pytest.raises(MemberFenced, match="incarnation"):
            call()


def test_a_commit_of_who_lost_the_partition_conflicts(
    site: Site, groups: GroupService
) -> None:
    messaging = site.messaging
    first = join(groups, "a")
    join(groups, "b")
    tx = messaging.coordinator.start_short()
    [place] = groups.member_positions(
        "billing",
        *("a",),
        incarnation=first.incarnation,
        partitions=[ORDERS],
        transaction=tx,
    )
    assert place.position == BEGINNING
    groups.leave_group("billing", "a")  # as if its session had ended
    assert groups.group("billing").members[0].partitions == [ORDERS]
    messaging.save_position("billing", "orders", MessageId.of(5), transaction=tx)
    with pytest.raises(TransactionConflict):
        messaging.coordinator.can_commit(tx, [b"position:billing:default:orders:"])
    messaging.coordinator.invalidate(tx)
    with pytest.raises(MemberFenced):
        groups.member_positions(
            "billing", "a", incarnation=first.incarnation, partitions=[ORDERS]
        )


def test_the_one_that_has_it_now_goes_on_from_what_was_committed(
    site: Site, groups: GroupService
) -> None:
    messaging = site.messaging
    join(groups, "a")
    tx = messaging.coordinator.start_short()
    messaging.save_position("billing", "orders", MessageId.of(5), transaction=tx)
    commit(messaging, tx)
    second = join(groups, "b")
    groups.leave_group("billing", "a")
    beat = groups.heartbeat(
        "billing", "b", incarnation=second.incarnation, generation=2
    )
    assert beat.assign == [PartitionPosition("orders", 0, MessageId.of(5))]


def test_a_rewind_moves_the_position_and_its_owner_hears_of_it_once(
    site: Site, groups: GroupService
) -> None:
    first = join(groups, "a")
    site.messaging.publish("orders", [b"one", b"two"])
    _, two = [message.id for message in site.messaging.poll("orders")]
    moved = groups.rewind_group("billing", "orders", to=two)
    assert moved == [PartitionPosition("orders", 0, two.before())]
    ask = {"incarnation": first.incarnation, "generation": 1, "owned": [ORDERS]}
    beat = groups.heartbeat("billing", "a", **ask, wait_s=30)  # type: ignore[arg-type]
    assert beat.rewound == moved
    beat = groups.heartbeat("billing", "a", **ask)  # type: ignore[arg-type]
    assert beat.rewound == []
    assert beat.generation == 1
    assert groups.rewind_group("billing", "orders", to={"0": "first"}) == [
        PartitionPosition("orders", 0, BEGINNING)
    ]
    with pytest.raises(TopicNotFound, match="it has 1"):
        groups.rewind_group("billing", "orders", to={"3": "first"})


def test_a_rewind_of_what_is_not_taken_up_yet_is_heard_once_it_is(
    groups: GroupService,
) -> None:
    first = join(groups, "a")
    moved = groups.rewind_group("billing", "orders", to="first")
    ask: dict[str, Any] = {"incarnation": first.incarnation, "generation": 1}
    beat = groups.heartbeat("billing", "a", **ask)
    assert (beat.assign, beat.rewound) == (moved, [])
    beat = groups.heartbeat("billing", "a", **ask, owned=[ORDERS])
    assert (beat.assign, beat.rewound) == ([], moved)
    beat = groups.heartbeat("billing", "a", **ask, owned=[ORDERS])
    assert beat.rewound == []


def test_an_application_says_who_has_what(groups: GroupService) -> None:
    join(groups, "a")
    second = join(groups, "b")
    groups.assign_group("billing", {"b": {"orders": [0]}})
    assert groups.group("billing").assignment == "own"
    beat = groups.heartbeat(
        "billing",
        "a",
        incarnation=groups.group("billing").members[0].incarnation,
        generation=2,
        owned=[ORDERS],
    )
    assert beat.revoke == [ORDERS]
    groups.heartbeat(
        "billing",
        "a",
        incarnation=groups.group("billing").members[0].incarnation,
        generation=beat.generation,
        owned=[],
    )
    beat = groups.heartbeat(
        "billing", "b", incarnation=second.incarnation, generation=2
    )
    assert [one.pair for one in beat.assign] == [("orders", 0)]


def test_an_ephemeral_group_goes_with_its_last_member(
    site: Site, groups: GroupService
) -> None:
    groups.create_group("billing", ephemeral=True, session_s=3)
    first = join(groups, "a")
    groups.leave_group("billing", "a", incarnation=first.incarnation)
    with pytest.raises(GroupNotFound):
        groups.group("billing")
    groups.create_group("billing", ephemeral=True, session_s=3)
    join(groups, "a")
    site.clock.advance_s(4)
    assert groups.groups() == []
    with pytest.raises(GroupNotFound):
        groups.heartbeat("billing", "a", incarnation=first.incarnation, generation=1)


def test_a_group_with_members_is_not_deleted(groups: GroupService) -> None:
    first = join(groups, "a")
    with pytest.raises(GroupInUse, match="1 members"):
        groups.delete_group("billing")
    groups.leave_group("billing", "a", incarnation=first.incarnation)
    groups.delete_group("billing")
    for call in (groups.group, groups.delete_group):
        with pytest.raises(GroupNotFound):
            call("billing")
    again = join(groups, "a")
    assert again.generation == 1
    assert again.incarnation > first.incarnation


def test_settings_are_changed_as_named(groups: GroupService) -> None:
    groups.create_group("billing", session_s=6)
    found = groups.create_group("billing", heartbeat_s=1, assignment="range")
    assert (found.session_ms, found.heartbeat_ms, found.assignment) == (
        *(6_000, 1_000),
        "range",
    )
    joined = groups.join_group("billing", "a", topics=["orders"], session_s=20)
    assert joined.heartbeat_ms == 1_000
    assert groups.group("billing").members[0].session_ms == 20_000


def test_a_member_that_changes_what_it_reads_keeps_the_rest(
    groups: GroupService,
) -> None:
    first = join(groups, "a")
    again = groups.join_group(
        "billing", "a", topics=["orders"], partitions=[NamedPartition("audit", 0)]
    )
    assert again.generation == first.generation + 1
    assert [one.pair for one in again.partitions] == [("audit", 0), ("orders", 0)]


@pytest.mark.parametrize(
    ("start", "expected"), [("first", 0), ("last", 2), ("next", 3), (None, 0)]
)
def test_a_group_begins_where_its_first_member_says(
    site: Site, groups: GroupService, start: GroupStart | None, expected: int
) -> None:
    site.messaging.publish("orders", [b"0", b"1", b"2"])
    joined = groups.join_group("billing", "a", topics=["orders"], start=start)
    position = joined.partitions[0].position
    page = site.messaging.poll("orders", start=position, inclusive=False)
    assert [int(message.payload) for message in page] == [*range(expected, 3)]


def test_partitions_are_shared_and_those_added_begin_at_their_first_message(
    site: Site, groups: GroupService
) -> None:
    messaging = site.messaging
    messaging.create_topic("calls", partitions=3)
    messaging.publish("calls.2", [b"old"])
    first = groups.join_group("billing", "a", topics=["calls"], start="next")
    assert [one.partition for one in first.partitions] == [0, 1, 2]
    page = messaging.poll(
        "calls.2", start=first.partitions[2].position, inclusive=False
    )
    assert list(page) == []
    messaging.update_topic("calls", partitions=5)
    messaging.publish("calls.4", [b"new"])
    number = first.incarnation
    beat = groups.heartbeat(
        "billing",
        *("a",),
        incarnation=number,
        generation=1,
        owned=[NamedPartition("calls", n) for n in range(3)],
    )
    assert beat.assign == [
        PartitionPosition("calls", 3, BEGINNING),
        PartitionPosition("calls", 4, BEGINNING),
    ]
    assert messaging.position("billing", "calls.4") == BEGINNING
    assert messaging.position("billing", "calls.0") is not None


@pytest.mark.parametrize("is_left_by_all", [True, False])
def test_partitions_that_are_added_while_nobody_is_there_begin_at_their_first_message(
    site: Site, groups: GroupService, *, is_left_by_all: bool
) -> None:
    messaging = site.messaging
    messaging.create_topic("calls", partitions=2)
    messaging.publish("calls.1", [b"old"])
    if not is_left_by_all:
        join(groups, "other", "audit")
    groups.join_group("billing", "a", topics=["calls"], start="next")
    groups.leave_group("billing", "a")
    assert "calls" not in groups.group("billing").topics
    messaging.update_topic("calls", partitions=3)
    messaging.publish("calls.2", [b"new"])
    join(groups, "other", "audit")
    groups.leave_group("billing", "other")
    joined = groups.join_group("billing", "a", topics=["calls"], start="next")
    assert joined.partitions[2] == PartitionPosition("calls", 2, BEGINNING)
    groups.leave_group("billing", "a")
    messaging.delete_topic("calls")
    groups.join_group("billing", "other", topics=["audit"])
    messaging.create_topic("calls", partitions=2)
    messaging.publish("calls.1", [b"of another topic"])
    joined = groups.join_group("billing", "a", topics=["calls"], start="next")
    page = messaging.poll("calls.1", start=joined.partitions[1].position)
    assert len(page) == 1  # the one before the next


def test_a_topic_that_goes_and_comes_is_followed(
    site: Site, groups: GroupService
) -> None:
    first = join(groups, "a")
    site.messaging.delete_topic("orders")
    number = first.incarnation
    beat = groups.heartbeat(
        "billing", "a", incarnation=number, generation=1, owned=[ORDERS]
    )
    assert beat.revoke == [ORDERS]
    assert groups.group("billing").topics == {"orders": 0}
    site.messaging.create_topic("orders")
    beat = groups.heartbeat("billing", "a", incarnation=number, generation=1)
    assert [one.pair for one in beat.assign] == [("orders", 0)]


def test_a_restart_knows_the_members_and_gives_them_full_sessions(
    site: Site, groups: GroupService
) -> None:
    """In the process that was restarted, static members come again, and no others."""
    if site.kind == "memory":
        pytest.skip("what is kept in memory is gone")
    first = groups.join_group("billing", "a", topics=["orders"], static=True)
    other = groups.join_group("audits", "b", topics=["orders"])
    site.clock.advance_s(9)
    groups = site.open()._parts.groups
    site.clock.advance_s(9)
    beat = groups.heartbeat(
        "billing",
        "a",
        incarnation=first.incarnation,
        generation=first.generation,
        owned=[ORDERS],
    )
    assert (beat.assign, beat.revoke, beat.generation) == ([], [], 1)
    # It may not have heard of a rewind before the restart.
    assert [one.pair for one in beat.rewound] == [ORDERS.pair]
    is_elsewhere = site.embedded is not site.messaging
    assert len(groups.group("audits").members) == is_elsewhere
    if is_elsewhere:
        groups.leave_group("audits", "b", incarnation=other.incarnation)


def test_groups_of_namespaces_have_topics_of_theirs(
    site: Site, groups: GroupService
) -> None:
    site.messaging.create_topic("shop:orders")
    groups.join_group("shop:billing", "a", topics=["orders"])
    assert site.messaging.position("billing", "shop:orders") == BEGINNING
    assert site.messaging.position("billing", "orders") is None
    assert [one.group for one in groups.groups("shop")] == ["billing"]
    assert groups.groups() == []


@pytest.mark.parametrize("name", ["", "..", "a b", "ä", "x" * 256, 5])
def test_a_member_has_a_name_of_letters(groups: GroupService, name: str) -> None:
    with pytest.raises(BadRequest, match="no name of a member"):
        groups.join_group("billing", name, topics=["orders"])


def test_what_is_not_there_or_too_much_is_refused(
    site: Site, groups: GroupService
) -> None:
    with pytest.raises(TopicNotFound):
        join(groups, "a", "nothing")
    with pytest.raises(TopicNotFound, match="no partition 3; it has 1"):
        groups.join_group("billing", "a", partitions=[NamedPartition("orders", 3)])
    with pytest.raises(BadRequest, match=r"0\.1 to 3600"):
        groups.join_group("billing", "a", topics=["orders"], session_s=0.01)
    with pytest.raises(BadRequest, match="namespace"):
        join(groups, "a", "shop:orders")
    with pytest.raises(GroupNotFound):
        groups.group("billing")
    with pytest.raises(BadRequest, match="first, last, next"):
        groups.rewind_group("billing", "orders", to="middle")  # type: ignore[arg-type]


def test_a_group_has_as_many_members_as_it_may_have(site: Site) -> None:
    site.open(max_members_per_group=2, max_groups_per_namespace=1)
    site.messaging.create_topic("orders", exist_ok=True)
    groups = site.messaging._parts.groups
    join(groups, "a")
    join(groups, "b")
    with pytest.raises(GroupFull, match="2 members"):
        join(groups, "c")
    join(groups, "b")
    with pytest.raises(GroupFull, match="max_groups_per_namespace"):
        groups.create_group("shipping")


def test_check_and_clean_up_know_groups(site: Site, groups: GroupService) -> None:
    for _ in range(40):
        join(groups, "a")
    report = site.messaging.check()
    assert report.problems == ()
    assert report.counts["groups"] < 40
    site.messaging.clean_up()
    assert groups.group("billing").members[0].member == "a"
    assert site.messaging.check().counts["groups"] == 1


def test_a_member_without_a_name_gets_one(messaging: Messaging) -> None:
    messaging.create_topic("orders")
    groups = messaging._parts.groups
    names = {groups.join_group("g", topics=["orders"]).member for _ in range(3)}
    assert len(names) == 3


def test_members_are_counted_by_topic_as_long_as_they_are_heard_of(
    site: Site, groups: GroupService
) -> None:
    site.messaging.create_topic("calls", partitions=3)
    groups.join_group("desk", "a", topics=["calls", "orders"], session_s=3)
    groups.join_group("desk", "b", topics=["calls"], session_s=60)
    shares = site.embedded._parts.served.groups.shares()  # type: ignore[union-attr]
    assert shares["desk", "calls"] == GroupShare(2, 1, 0, 2)
    assert shares["desk", "orders"] == GroupShare(1, 0, 0, 2)
    site.clock.advance_s(4)  # nobody has asked since
    shares = site.embedded._parts.served.groups.shares()  # type: ignore[union-attr]
    assert shares["desk", "calls"] == GroupShare(1, 1, 3, 2)
    assert shares["desk", "orders"].unowned == 1
