"""Assignments: what is wanted has one owner, shares are even, and little moves."""

from collections import Counter

import attrs
from hypothesis import given
from hypothesis import strategies as st

from txaware.service.groups.assignment import (
    STRATEGIES,
    Question,
    Strategy,
    Target,
    Wish,
    by_map,
    in_ranges,
    in_turns,
    sticky,
)

NAMES = [f"m{number}" for number in range(6)]
TOPICS = ["audit", "orders", "stock"]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
PAIRS = st.tuples(st.sampled_from(TOPICS), st.integers(0, 11))
WISHES = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(
        Wish,
        st.frozensets(st.sampled_from(TOPICS)),
        st.one_of(st.just(frozenset()), st.frozensets(PAIRS, max_size=3)),
    ),
)
CURRENT = st.dictionaries(PAIRS, st.sampled_from(NAMES))
QUESTIONS = st.builds(Question, WISHES, COUNTS, CURRENT)
SPREADING = st.sampled_from([sticky, in_ranges, in_turns])


def everybody(names: list[str], *topics: str) -> dict[str, Wish]:
    return {name: Wish(frozenset(topics)) for name in names}


@given(SPREADING, QUESTIONS)
def test_each_partition_that_is_wanted_goes_to_somebody_who_wants_it(
    strategy: Strategy, asked: Question
) -> None:
    target = strategy(asked)
    for (topic, number), name in target.items():
        wish = asked.wishes[name]
        assert topic in wish.topics or (topic, number) in wish.named
        assert number < asked.counts[topic]
    for topic in {one for wish in asked.wishes.values() for one in wish.topics}:
        for number in range(asked.counts.get(topic, 0)):
            assert (topic, number) in target


@given(SPREADING, QUESTIONS)
def test_shares_of_members_with_the_same_topics_differ_by_one_at_most(
    strategy: Strategy, asked: Question
) -> None:
    wishes = {name: Wish(wish.topics) for name, wish in asked.wishes.items()}
    loads = Counter(strategy(attrs.evolve(asked, wishes=wishes)).values())
    for one in wishes:
        for other in wishes:
            if wishes[one].topics == wishes[other].topics:
                assert abs(loads[one] - loads[other]) <= 1


@given(st.sampled_from([*STRATEGIES.values()]), QUESTIONS)
def test_the_same_question_has_the_same_answer(
    strategy: Strategy, asked: Question
) -> None:
    backwards = dict(reversed([*asked.wishes.items()]))
    assert strategy(asked) == strategy(attrs.evolve(asked, wishes=backwards))


@given(QUESTIONS)
def test_a_sticky_assignment_stays_as_it_is(asked: Question) -> None:
    first = sticky(asked)
    assert sticky(attrs.evolve(asked, current=first)) == first


def moves(before: Target, after: Target) -> int:
    return sum(before[pair] != name for pair, name in after.items() if pair in before)


@given(st.integers(1, 6), st.integers(0, 40))
def test_a_member_that_joins_gets_its_share_and_nothing_else_moves(
    members: int, partitions: int
) -> None:
    counts = {"orders": partitions}
    names = [f"m{number}" for number in range(members)]
    before = sticky(Question(everybody(names, "orders"), counts, {}))
    joined = everybody([*names, "new"], "orders")
    after = sticky(Question(joined, counts, before))
    share = Counter(after.values())["new"]
    assert share == partitions // (members + 1)
    assert moves(before, after) == share


@given(st.integers(2, 6), st.integers(0, 40))
def test_a_member_that_leaves_moves_only_what_it_had(
    members: int, partitions: int
) -> None:
    counts = {"orders": partitions}
    names = [f"m{number}" for number in range(members)]
    before = sticky(Question(everybody(names, "orders"), counts, {}))
    after = sticky(Question(everybody(names[1:], "orders"), counts, before))
    had = Counter(before.values())["m0"]
    assert moves(before, after) == had


@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 20))
def test_partitions_that_are_added_move_none(
    members: int, partitions: int, more: int
) -> None:
    wishes = everybody([f"m{number}" for number in range(members)], "orders")
    before = sticky(Question(wishes, {"orders": partitions}, {}))
    after = sticky(Question(wishes, {"orders": partitions + more}, before))
    assert moves(before, after) == 0


def test_a_thousand_members_are_assigned_their_partitions() -> None:
    names = [f"m{number}" for number in range(1_000)]
    counts = {"orders": 5_000}
    before = sticky(Question(everybody(names, "orders"), counts, {}))
    assert set(Counter(before.values()).values()) == {5}
    after = sticky(Question(everybody(names[1:], "orders"), counts, before))
    assert moves(before, after) == 5


def test_ranges_follow_each_other_and_the_rest_goes_round() -> None:
    target = in_ranges(
        Question(
            everybody(["a", "b"], "audit", "orders"), {"audit": 3, "orders": 3}, {}
        )
    )
    assert [target["audit", n] for n in range(3)] == ["a", "a", "b"]
    assert [target["orders", n] for n in range(3)] == ["a", "b", "b"]


def test_a_partition_that_a_member_names_is_its_own() -> None:
    wishes = everybody(["a", "b"], "orders") | {
        "c": Wish(frozenset(), frozenset({("orders", 1)}))
    }
    for strategy in (sticky, in_ranges, in_turns):
        target = strategy(Question(wishes, {"orders": 3}, {}))
        assert target["orders", 1] == "c"
        assert Counter(target.values()) == {"a": 1, "b": 1, "c": 1}


def test_of_two_that_name_a_partition_its_owner_keeps_it() -> None:
    named = Wish(frozenset(), frozenset({("orders", 0)}))
    wishes, counts = {"a": named, "b": named}, {"orders": 1}
    assert sticky(Question(wishes, counts, {})) == {("orders", 0): "a"}
    current = {("orders", 0): "b"}
    assert sticky(Question(wishes, counts, current)) == current


def test_an_own_map_says_who_has_what_and_the_rest_nobody_has() -> None:
    own = {"a": {"orders": [0, 2, 9]}, "gone": {"orders": [1]}}
    question = Question(everybody(["a", "b"], "orders"), {"orders": 3}, {}, own)
    assert by_map(question) == {("orders", 0): "a", ("orders", 2): "a"}
