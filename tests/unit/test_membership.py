"""A group as it stands: one owner each, and none before the one before has let go."""

from collections import Counter
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from txaware.errors import MemberFenced
from txaware.model.groups import Assignment, GroupSettings, Partition
from txaware.service.groups.membership import Change, Membership
from txaware.store.group_table import GroupRow, MemberRow

SESSION_S = 10


def row_of(
    name: str,
    incarnation: int = 1,
    *,
    topics: tuple[str, ...] = ("orders",),
    partitions: tuple[Partition, ...] = (),
    session_s: int = SESSION_S,
) -> MemberRow:
    return MemberRow(
        name, incarnation, topics, partitions, "first", session_s * 1000, False, 0
    )


def state_of(*members: str, counts: dict[str, int]) -> Membership:
    state = Membership(GroupRow(), 0)
    for name in members:
        state.changed(state.joining(row_of(name), counts), 0)
    return state


def loads(row: GroupRow) -> Counter[str]:
    return Counter(owner.member for owner in row.owners.values())


def test_the_first_member_gets_everything() -> None:
    state = Membership(GroupRow(), 0)
    change = state.joining(row_of("a"), {"orders": 3})
    assert change.moved == (("orders", 0), ("orders", 1), ("orders", 2))
    assert change.row.generation == 1
    assert {owner.since for owner in change.row.owners.values()} == {1}


def test_a_group_that_is_made_without_members_says_so() -> None:
    state = Membership(GroupRow(), 0)
    change = state.setting(GroupSettings(ephemeral=True), {})
    assert (change.row.generation, change.row.why) == (1, "it was created")
    state.changed(change, 0)
    state.changed(state.joining(row_of("a"), {"orders": 1}), 0)
    change = state.setting(GroupSettings(assignment="own"), {"orders": 1})
    assert change.row.why == "a joined"  # nothing has moved yet


def test_the_second_member_gets_its_share_when_the_first_has_let_it_go() -> None:
    state = state_of("a", "b", counts={"orders": 2})
    assert loads(state.row) == {"a": 2}
    held = state.row.owned_by("a")
    [left] = state.to_revoke("a", held)
    assert state.to_assign("b", ()) == []
    state.holds("a", state.row.generation, held)
    assert not state.is_due
    state.holds("a", state.row.generation, [one for one in held if one != left])
    assert state.is_due
    change = state.settling({"orders": 2})
    assert change.moved == (left,)
    state.changed(change, 0)
    assert state.to_assign("b", ()) == [left]
    assert loads(state.row) == {"a": 1, "b": 1}


def test_what_a_member_has_not_heard_of_it_has_not_let_go() -> None:
    state = state_of("a", counts={"orders": 1})
    state.holds("a", 0, [])
    assert state.let_go == set()
    state.holds("a", 1, [])
    assert state.let_go == {("orders", 0)}
    assert not state.is_due
    assert state.to_assign("a", ()) == [("orders", 0)]


def test_a_session_ends_unless_its_member_is_heard() -> None:
    state = state_of("a", "b", counts={"orders": 2})
    state.heard("b", 5)
    assert state.next_end_s() == SESSION_S
    assert state.expired(9.9) == []
    assert state.expired(10) == ["a"]
    change = state.leaving(["a"], {"orders": 2}, why="its session ended")
    assert len(change.moved) == 2
    state.changed(change, 10)
    assert loads(state.row) == {"b": 2}
    with pytest.raises(MemberFenced, match="join again"):
        state.require("a", 1)


def test_the_next_end_is_the_earliest_of_all_after_any_heartbeats_and_losses() -> None:
    random = Random(33)
    names = [f"m{number}" for number in range(20)]
    state = state_of(*names, counts={"orders": 2})
    for now_s in range(1, 2_000):
        name = random.choice(names)
        if random.random() < 0.2:
            state.hurry(name, now_s + random.randrange(SESSION_S))
        else:
            state.heard(name, now_s)
        if random.random() < 0.01:
            row = row_of(name, now_s, session_s=random.randrange(1, 99))
            state.changed(state.joining(row, {"orders": 2}), now_s)
        ends_s = [state.ends_s(*member) for member in state.row.members.items()]
        assert state.next_end_s() == min(ends_s)


def test_a_look_at_one_of_many_members_does_not_walk_all() -> None:
    asked = 0

    class Counted(Membership):
        def ends_s(self, name: str, row: MemberRow) -> float:
            nonlocal asked
            asked += 1
            return super().ends_s(name, row)

    names = [f"m{number}" for number in range(200)]
    state = Counted(GroupRow(members={name: row_of(name) for name in names}), 0)
    asked, looks = 0, 2_000
    for number in range(looks):
        state.heard(names[number % len(names)], number / looks)
        state.next_end_s()
    assert asked <= 2 * looks


def test_a_member_that_joins_again_moves_nothing_and_fences_itself() -> None:
    state = state_of("a", counts={"orders": 2})
    before = state.row
    change = state.joining(row_of("a", 2), {"orders": 2})
    assert (change.moved, change.row.owners) == ((), before.owners)
    assert change.row.generation == before.generation
    assert change.touched == (("orders", 0), ("orders", 1))
    state.changed(change, 3)
    assert state.expired(12.9) == []
    with pytest.raises(MemberFenced, match="incarnation 1 is over"):
        state.require("a", 1)


def test_a_member_that_joins_again_holds_nothing_of_what_it_was_to_leave() -> None:
    state = state_of("a", "b", counts={"orders": 2})
    change = state.joining(row_of("a", 2), {"orders": 2})
    assert len(change.moved) == len(change.touched) == 1
    assert loads(change.row) == {"a": 1, "b": 1}


def test_partitions_of_a_topic_that_is_gone_have_no_owner() -> None:
    state = state_of("a", counts={"orders": 2})
    change = state.settling({})
    assert change.row.owners == {}
    assert change.row.generation == 2


def test_a_restart_knows_the_row_and_gives_full_sessions() -> None:
    state = state_of("a", "b", counts={"orders": 2})
    again = Membership(GroupRow.from_bytes(state.row.to_bytes()), 100)
    assert again.row == state.row
    assert again.next_end_s() == 100 + SESSION_S
    change = again.settling({"orders": 2})
    assert change.row == again.row
    assert Counter(change.target.values()) == {"a": 1, "b": 1}


class Client:
    """A member: what it holds, as far as it has heard."""

    def __init__(self, name: str, incarnation: int, generation: int) -> None:
        self.name, self.incarnation, self.generation = name, incarnation, generation
        self.held: set[Partition] = set()
        self.to_leave: set[Partition] = set()


class Rebalances(RuleBasedStateMachine):
    """Members that join, leave, die, are late, and start anew; a server that does."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"orders": 4}
        self.now_s = 0.0
        self.incarnations = 0
        self.state = Membership(GroupRow(), 0)
        self.clients: dict[str, Client] = {}

    @initialize(way=st.sampled_from(["sticky", "range", "roundrobin"]))
    def begin(self, way: Assignment) -> None:
        self.state = Membership(GroupRow(settings=GroupSettings(assignment=way)), 0)

    def keep(self, change: Change) -> None:
        for pair in change.moved:
            old = self.state.row.owners.get(pair)
            if old is not None and old.member in change.row.members:
                holder = self.clients[old.member]
                assert pair not in holder.held, f"{pair} moved while it was held"
        assert change.row.generation - self.state.row.generation in (0, 1)
        assert GroupRow.from_bytes(change.row.to_bytes()) == change.row
        self.state.changed(change, self.now_s)

    @rule(
        name=st.sampled_from("abcde"),
        topics=st.sampled_from([("orders",), ("audit", "orders"), ()]),
        named=st.sampled_from([(), (("orders", 1),)]),
    )
    def join(
        self, name: str, topics: tuple[str, ...], named: tuple[Partition, ...]
    ) -> None:
        self.incarnations += 1
        row = row_of(name, self.incarnations, topics=topics, partitions=named)
        # The process before it is gone, or fenced: it commits nothing more.
        self.clients[name] = Client(name, self.incarnations, -1)
        self.keep(self.state.joining(row, self.counts))
        client = self.clients[name]
        client.generation = self.state.row.generation
        client.held = set(self.state.to_assign(name, ()))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        del self.clients[name]
        self.keep(self.state.leaving([name], self.counts, why="it left"))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_lost=st.booleans())
    def beat(self, data: st.DataObject, is_lost: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        self.answer(client, is_lost=is_lost)

    def answer(self, client: Client, *, is_lost: bool = False) -> None:
        state, name = self.state, client.name
        state.require(name, client.incarnation)
        state.heard(name, self.now_s)
        state.holds(name, client.generation, client.held)
        if state.is_due:
            self.keep(state.settling(self.counts))
        if is_lost:
            return
        client.to_leave = set(state.to_revoke(name, client.held))
        client.held.update(state.to_assign(name, client.held))
        client.generation = state.row.generation

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        client.held -= client.to_leave

    @rule(seconds=st.sampled_from([3, 6, 11]))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds
        gone = self.state.expired(self.now_s)
        for name in gone:
            del self.clients[name]
        if gone:
            self.keep(self.state.leaving(gone, self.counts, why="sessions ended"))

    @rule(topic=st.sampled_from(["orders", "audit"]), count=st.integers(0, 9))
    def change_topic(self, topic: str, count: int) -> None:
        self.counts = self.counts | {topic: count}
        for client in self.clients.values():
            client.held -= {
                one for one in client.held if one[0] == topic and one[1] >= count
            }
        self.keep(self.state.settling(self.counts))

    @rule()
    def restart(self) -> None:
        self.state = Membership(
            GroupRow.from_bytes(self.state.row.to_bytes()), self.now_s
        )
        change = self.state.settling(self.counts)
        self.keep(change)

    @invariant()
    def a_member_holds_only_what_it_has(self) -> None:
        for client in self.clients.values():
            assert client.held <= set(self.state.row.owned_by(client.name))

    @invariant()
    def members_are_members(self) -> None:
        assert self.state.row.members.keys() == self.clients.keys()

    def teardown(self) -> None:
        """Comes to rest soon, once all are heard: each partition has its owner."""
        for _ in range(4):
            for client in self.clients.values():
                client.held -= client.to_leave
                self.answer(client)
        held = [pair for client in self.clients.values() for pair in client.held]
        assert len(held) == len(set(held))
        topics = {t for row in self.state.row.members.values() for t in row.topics}
        wanted = {(t, n) for t in topics for n in range(self.counts.get(t, 0))}
        assert wanted <= set(held)
        for client in self.clients.values():
            assert not self.state.to_revoke(client.name, client.held)


TestRebalances = Rebalances.TestCase
TestRebalances.settings = settings(max_examples=60, stateful_step_count=30)
