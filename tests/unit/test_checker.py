"""The checker finds every anomaly that is planted, and none where there is none."""

import random
from typing import Any

import attrs
import pytest

from tests.support.checker import FAIL, NEVER, OK, UNKNOWN, Moved, Poll, Publish, kinds

History = tuple[list[Publish], list[Poll]]


def place(number: int) -> bytes:
    return number.to_bytes(4, "big")


def publish(*sent: str, outcome: str = OK, at: int, **more: Any) -> Publish:
    """One that began at a time, and ended just after it; `a1` goes to topic a."""
    return Publish(
        sent=tuple((value[0], value) for value in sent),
        outcome=outcome,
        began=at,
        ended=NEVER if outcome == UNKNOWN else at + 1,
        **more,
    )


def poll(*seen: tuple[int, str], at: int, reader: str = "r", **more: Any) -> Poll:
    """What a reader of all of a topic saw."""
    rows = tuple((place(number), value) for number, value in seen)
    usual: dict[str, Any] = {
        "reader": reader,
        "topic": seen[0][1][0] if seen else "a",
        "seen": rows,
        "end": rows[-1][0] if rows else b"",
        "began": at,
        "ended": at,
    }
    return Poll(**(usual | more))


def correct() -> History:
    """Plain and transactional publishes, failed and unknown ones, and two readers."""
    publishes = [
        publish("a1", "a2", at=0),
        publish("a3", "b1", at=10, transactional=True),
        publish("a4", outcome=FAIL, at=20, transactional=True),
        publish("a5", outcome=UNKNOWN, at=30),
        publish("a6", outcome=UNKNOWN, at=40),
        publish("b2", at=50, transactional=True, moved=Moved("g", "a", b"", place(2))),
        publish(
            "b3", at=60, transactional=True, moved=Moved("g", "a", place(2), place(5))
        ),
    ]
    rows = [(1, "a1"), (2, "a2"), (3, "a3"), (5, "a5")]
    polls = [
        poll(*rows[:2], at=5),
        poll(*rows[2:], at=100, start=place(2)),
        poll(*rows[:3], (4, "a4"), (5, "a5"), at=100, reader="all", committed=False),
        poll((1, "b1"), (2, "b2"), (3, "b3"), at=100),
    ]
    return publishes, polls


def test_nothing_is_found_in_a_history_that_may_be() -> None:
    assert not kinds(*correct())
    assert not kinds([], [])


def changed(history: History, number: int, **changes: Any) -> History:
    """The same with another poll."""
    publishes, polls = history
    polls[number] = attrs.evolve(polls[number], **changes)
    return publishes, polls


def without(value: str) -> History:
    publishes, polls = correct()
    kept = [
        attrs.evolve(p, seen=tuple(row for row in p.seen if row[1] != value))
        for p in polls
    ]
    return publishes, kept


@pytest.mark.parametrize("value", ["a1", "a2", "a3"])
def test_a_lost_message_is_found(value: str) -> None:
    assert "lost" in kinds(*without(value))


def test_what_is_only_unseen_yet_is_not_lost() -> None:
    publishes, polls = correct()
    assert not kinds([*publishes, publish("a7", at=99)], polls)


def test_an_unknown_one_may_be_there_or_not() -> None:
    assert not kinds(*without("a5"))


def test_a_torn_transaction_is_found() -> None:
    publishes, polls = without("b1")
    publishes[1] = attrs.evolve(publishes[1], outcome=UNKNOWN)
    assert not kinds(publishes, polls)
    polls.append(poll(at=110, topic="b", start=place(3), end=place(3)))
    assert kinds(publishes, polls) == {"torn"}


def test_a_torn_transaction_is_found_within_a_topic() -> None:
    torn = publish("a8", "a9", outcome=UNKNOWN, at=70, transactional=True)
    publishes, polls = correct()
    polls.append(poll((6, "a8"), at=110, start=place(5)))
    assert not kinds([*publishes, torn], polls)
    polls.append(poll(at=120, start=place(6), end=place(6)))
    assert kinds([*publishes, torn], polls) == {"torn"}


def test_a_duplicate_is_found() -> None:
    publishes, polls = correct()
    polls.append(poll((9, "a1"), at=110, start=place(5)))
    assert "duplicate" in kinds(publishes, polls)


def test_messages_out_of_order_are_found() -> None:
    publishes, polls = correct()
    publishes[0] = attrs.evolve(publishes[0], began=70, ended=71)
    assert "reordered" in kinds(publishes, polls)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_row_of_a_refused_transaction_may_come_late(*, is_committed: bool) -> None:
    """A part that home gave up comes to its owner after what was asked later."""
    publishes, polls = correct()
    publishes.append(publish("a7", outcome=UNKNOWN, at=25, transactional=True))
    publishes[-1] = attrs.evolve(publishes[-1], ended=26)
    polls.append(poll((9, "a7"), at=110, reader="late", committed=is_committed))
    assert ("reordered" in kinds(publishes, polls)) is is_committed


@pytest.mark.parametrize("is_committed", [True, False])
def test_rows_of_a_first_try_that_nobody_sees_committed_are_no_duplicate(
    *, is_committed: bool
) -> None:
    """A kill ended that try within a commit, and the block was asked for again."""
    publishes, polls = correct()
    polls.append(
        poll((6, "a3"), at=110, start=place(5), reader="all", committed=is_committed)
    )
    polls[-1] = attrs.evolve(polls[-1], reader="r" if is_committed else "all")
    assert ("duplicate" in kinds(publishes, polls)) is is_committed


def test_messages_out_of_order_within_a_request_are_found() -> None:
    publishes, polls = correct()
    publishes[0] = attrs.evolve(publishes[0], sent=publishes[0].sent[::-1])
    assert kinds(publishes, polls) == {"reordered"}


def test_something_between_the_messages_of_a_request_is_found() -> None:
    publishes = [publish("a1", "a3", at=0), publish("a2", at=0)]
    polls = [poll((1, "a1"), (2, "a2"), (3, "a3"), at=9)]
    assert kinds(publishes, polls) == {"interleaved"}


@pytest.mark.parametrize("outcome", [OK, UNKNOWN])
def test_a_reader_that_jumps_over_a_message_is_found(outcome: str) -> None:
    publishes, polls = correct()
    publishes[3] = attrs.evolve(publishes[3], outcome=outcome, ended=NEVER)
    polls.append(poll((3, "a3"), at=101, reader="late", end=place(7)))
    assert "skipped" in kinds(publishes, polls)


def test_a_reader_that_goes_on_too_far_is_found() -> None:
    assert "skipped" in kinds(*changed(correct(), 1, start=place(3)))


def test_a_reader_that_goes_back_is_found() -> None:
    assert "non-monotonic" in kinds(*changed(correct(), 1, start=place(1)))


@pytest.mark.parametrize("order", [(2, 1), (1, 1)])
def test_a_poll_that_does_not_rise_is_found(order: tuple[int, int]) -> None:
    publishes, polls = correct()
    one, two = order
    polls.append(poll((one, "a2"), (two, "a1"), at=110, reader="x", end=place(2)))
    assert "non-monotonic" in kinds(publishes, polls)


def test_a_poll_that_ends_before_its_last_message_is_found() -> None:
    assert "non-monotonic" in kinds(*changed(correct(), 3, end=place(2)))


def test_what_was_aborted_and_is_read_is_found() -> None:
    assert "aborted read" in kinds(*changed(correct(), 2, committed=True))


def test_what_is_read_before_its_commit_is_asked_for_is_found() -> None:
    publishes, polls = correct()
    publishes[1] = attrs.evolve(publishes[1], asked=200, ended=201)
    assert "early read" in kinds(publishes, polls)


def test_what_nobody_sent_is_found() -> None:
    publishes, polls = correct()
    assert "invented" in kinds(publishes[1:], polls)
    publishes[0] = attrs.evolve(publishes[0], began=300, ended=301)
    assert "invented" in kinds(publishes, polls)


def test_one_id_with_two_messages_is_found() -> None:
    publishes, polls = correct()
    rows = ((place(1), "a2"), (place(2), "a1"), *polls[2].seen[2:])
    assert "inconsistent id" in kinds(*changed((publishes, polls), 2, seen=rows))


@pytest.mark.parametrize(("start", "kind"), [(1, "doubled"), (3, "skipped")])
def test_a_group_that_does_not_go_on_where_it_was_is_found(
    start: int, kind: str
) -> None:
    publishes, polls = correct()
    publishes[6] = attrs.evolve(
        publishes[6], moved=Moved("g", "a", place(start), place(5))
    )
    assert kinds(publishes, polls) == {kind}


def test_a_move_that_is_unknown_counts_where_its_messages_are_seen() -> None:
    publishes, polls = correct()
    publishes[5] = attrs.evolve(publishes[5], outcome=UNKNOWN)
    assert not kinds(publishes, polls)
    publishes[5] = attrs.evolve(publishes[5], sent=(("b", "b9"),))
    assert "skipped" in kinds(publishes, polls)


def random_history(seed: int) -> History:
    """What a correct store shows: publishes in order, and readers of prefixes."""
    chance = random.Random(seed)
    rows: list[tuple[int, str]] = []
    publishes: list[Publish] = []
    for number in range(40):
        outcome = chance.choice([OK, OK, FAIL, UNKNOWN])
        values = [f"a{number} {n}" for n in range(chance.randint(1, 3))]
        publishes.append(publish(*values, outcome=outcome, at=10 * number))
        if outcome == OK or (outcome == UNKNOWN and chance.random() < 0.5):
            rows += [(len(rows) + n, value) for n, value in enumerate(values, 1)]
    polls = []
    for reader in "xyz":
        first = 0
        while first < len(rows):
            last = min(first + chance.randint(1, 9), len(rows))
            start = place(rows[first - 1][0]) if first else b""
            polls.append(
                poll(*rows[first:last], at=500 + first, reader=reader, start=start)
            )
            first = last
    return publishes, [attrs.evolve(p, at_end=False) for p in polls]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_found_in_random_correct_histories(seed: int) -> None:
    publishes, polls = random_history(seed)
    assert not kinds(publishes, polls)
    dropped = random.Random(seed).choice(polls)
    row = dropped.seen[0]
    polls[polls.index(dropped)] = attrs.evolve(dropped, seen=dropped.seen[1:])
    assert "skipped" in kinds(publishes, polls), row
