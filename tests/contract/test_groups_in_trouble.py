"""Groups in trouble: storms of joins, one name twice, rewinds within a move."""

import logging

import attrs
import pytest

from tests.support.concurrency import in_threads
from tests.support.messagings import Site
from txaware.errors import TransactionConflict
from txaware.messaging import Messaging
from txaware.model.group_service import GroupService
from txaware.model.groups import NamedPartition, Partition
from txaware.model.messages import MessageId
from txaware.model.start_places import BEGINNING

THREADS, JOINS = 4, 4
TURNS = 200


@pytest.fixture
def groups(site: Site) -> GroupService:
    """The groups of a store with a topic of three partitions, and one of one."""
    site.messaging.create_topic("orders", partitions=3)
    site.messaging.create_topic("audit")
    return site.messaging._parts.groups


@attrs.define
class Member:
    """A member that does in each heartbeat what the last one told it."""

    groups: GroupService
    name: str
    incarnation: int
    generation: int
    held: dict[Partition, MessageId | None]

    @classmethod
    def join(cls, groups: GroupService, name: str) -> "Member":
        joined = groups.join_group("billing", name, topics=["orders"])
        held = {one.pair: one.position for one in joined.partitions}
        return cls(groups, name, joined.incarnation, joined.generation, held)

    def beat(self) -> None:
        beat = self.groups.heartbeat(
            "billing",
            self.name,
            incarnation=self.incarnation,
            generation=self.generation,
            owned=[NamedPartition(*pair) for pair in self.held],
        )
        self.generation = beat.generation
        for left in beat.revoke:
            del self.held[left.pair]
        for got in (*beat.assign, *beat.rewound):
            self.held[got.pair] = got.position

    def leave(self) -> None:
        self.groups.leave_group("billing", self.name, incarnation=self.incarnation)


def settle(*members: Member, partitions: int) -> None:
    """Has members beat in turns until they share; nothing is held by two meanwhile."""
    for _ in range(TURNS):
        for one in members:
            one.beat()
            held = [pair for each in members for pair in each.held]
            assert len(held) == len({*held})
        counts = [len(one.held) for one in members]
        if sum(counts) == partitions and max(counts) - min(counts) <= 1:
            return
    raise AssertionError([one.held for one in members])


def test_a_storm_of_joins_and_leaves_leaves_nothing_behind(
    groups: GroupService,
) -> None:
    stays, errors = Member.join(groups, "stays"), list[BaseException]()

    def storm(number: int) -> None:
        try:
            for turn in range(JOINS):
                one = Member.join(groups, f"m{number}-{turn}")
                one.beat()
                one.leave()
        except BaseException as error:
            errors.append(error)
            raise

    in_threads(storm, range(THREADS))
    assert errors == []
    settle(stays, partitions=3)
    [member] = groups.group("billing").members
    assert member.member == "stays"
    assert len(member.partitions) == 3


def test_of_two_with_one_name_the_first_commits_nothing_once_the_second_has_joined(
    site: Site, groups: GroupService
) -> None:
    """Its partitions stay with the name, and so does nothing that it had begun."""
    messaging, first = site.messaging, Member.join(groups, "same")
    tx = messaging.coordinator.start_short()
    places = groups.member_positions(
        "billing",
        "same",
        incarnation=first.incarnation,
        partitions=[NamedPartition("orders", 0)],
        transaction=tx,
    )
    assert [one.position for one in places] == [BEGINNING]
    second = Member.join(groups, "same")
    assert second.held.keys() == first.held.keys()
    messaging.save_position("billing", "orders.0", MessageId.of(5), transaction=tx)
    with pytest.raises(TransactionConflict):
        messaging.coordinator.can_commit(tx, [b"position:billing:default:orders:"])
    messaging.coordinator.invalidate(tx)


def test_a_rewind_while_a_partition_moves_is_where_its_next_owner_begins(
    groups: GroupService,
) -> None:
    first = Member.join(groups, "a")
    second = Member.join(groups, "b")
    before = {*first.held}
    first.beat()  # it is told to leave one, and lets that go with the next
    [moving] = before - {*first.held}
    to = {str(moving[1]): MessageId.of(7)}
    [rewound] = groups.rewind_group("billing", "orders", to=to)
    settle(first, second, partitions=3)
    assert second.held == {moving: rewound.position}


def test_partitions_that_are_added_while_others_move_are_shared_as_well(
    site: Site, groups: GroupService
) -> None:
    first, second = Member.join(groups, "a"), Member.join(groups, "b")
    first.beat()
    site.messaging.update_topic("orders", partitions=7)
    third = Member.join(groups, "c")
    settle(first, second, third, partitions=7)


def test_a_topic_that_goes_under_a_member_leaves_it_the_others(site: Site) -> None:
    messaging: Messaging = site.messaging
    messaging.create_topic("orders", partitions=3)
    messaging.create_topic("audit")
    messaging.publish("orders.1", [b"one"])
    with messaging.member("billing", topics=["orders", "audit"]) as member:
        assert [one.payload for one in member.poll()] == [b"one"]
        member.commit()
        messaging.delete_topic("orders")
        messaging.publish("audit", [b"two"])
        found = []
        for _ in range(TURNS):
            found += [one.payload for one in member.poll(timeout_s=0.02)]
            if found and member.assignment == {"audit": [0]}:
                break
        assert found == [b"two"]
        assert member.assignment == {"audit": [0]}
        member.commit()


def test_the_log_says_who_got_what_of_whom_and_why(
    groups: GroupService, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="txaware.service.groups"):
        first, second = Member.join(groups, "a"), Member.join(groups, "b")
        settle(first, second, partitions=3)
        [(_, moved)] = second.held
        first.leave()
    said = caplog.text
    assert f"b has partition {moved} of orders, which a had" in said
    assert "a left, with 2 partitions" in said
    assert groups.group("billing").why == "a left"
