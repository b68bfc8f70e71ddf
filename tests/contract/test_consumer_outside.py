"""Consumers outside transactions: committed messages, and commits of their own."""

from typing import Any

import pytest

from tests.support.consume_setting import Setting, in_transaction, run_in_thread, texts
from tests.support.doubles import failing, lost
from txaware.errors import (
    MisusedTransaction,
    TransactionConflict,
    TransactionOutcomeUnknown,
    Unavailable,
)


def test_outside_successive_polls_go_on(here: Setting, group: str | None) -> None:
    here.publish("a", "b", "c")
    consumer = here.consumer(group=group)
    polled = [texts(consumer.poll(limit=2)) for _ in range(3)]
    assert polled == [["a", "b"], ["c"], []]


def test_outside_only_what_is_committed_is_polled_unless_asked(
    here: Setting, group: str | None
) -> None:
    here.publish("a")
    with here.transaction() as other:
        here.publish("b", transaction=other.transaction)
        committed = run_in_thread(here.consumer(group=group).poll)
        everything = run_in_thread(
            here.consumer(group=group, isolation="uncommitted").poll
        )
        other.abort()
    assert texts(committed) == ["a"]
    assert texts(everything) == ["a", "b"]


def test_outside_a_group_moves_with_its_own_commit(here: Setting) -> None:
    here.publish("a", "b", "c")
    one = here.member()
    one.poll(limit=2)
    assert here.saved() is None
    one.commit()
    assert here.saved() == "b"
    one.commit()
    assert texts(here.member().poll()) == ["c"]


def test_outside_rollback_goes_back_to_the_saved_position(here: Setting) -> None:
    here.publish("a", "b", "c")
    one = here.member()
    one.poll(limit=1)
    one.commit()
    one.poll()
    one.rollback()
    assert texts(one.poll()) == ["b", "c"]


def test_outside_a_member_that_came_too_late_is_told_and_goes_on_from_the_other(
    here: Setting,
) -> None:
    here.publish("a", "b", "c")
    one, two = here.member(), here.member()
    assert texts(one.poll(limit=1)) == ["a"]
    assert in_transaction(here, two, limit=2) == ["a", "b"]
    with pytest.raises(TransactionConflict, match="moved by somebody else"):
        one.commit()
    assert here.saved() == "b"
    assert texts(one.poll()) == ["c"]
    one.commit()
    assert here.saved() == "c"


def test_outside_a_member_that_commits_at_the_same_time_is_told(here: Setting) -> None:
    here.publish("a", "b", "c")
    one, two = here.member(), here.member()
    one.poll(limit=1)

    def meanwhile(call: Any) -> Any:
        here.coordinator.instead.clear()
        run_in_thread(lambda: in_transaction(here, two, limit=2))
        return call()

    here.coordinator.instead["can_commit"] = meanwhile
    with pytest.raises(TransactionConflict):
        one.commit()
    assert here.saved() == "b"
    assert texts(one.poll()) == ["c"]


def test_outside_what_others_polled_and_saved_is_not_polled_again(
    here: Setting,
) -> None:
    here.publish("a", "b")
    one, two = here.member(), here.member()
    one.poll(limit=1)
    one.commit()
    assert texts(two.poll(limit=1)) == ["b"]
    two.commit()
    assert one.poll() == []


def test_a_commit_that_was_surely_not_made_may_be_repeated(here: Setting) -> None:
    here.publish("a", "b")
    one = here.member()
    one.poll(limit=1)
    for call in ("start_short", "can_commit"):
        here.coordinator.instead[call] = failing(Unavailable("gone"))
        with pytest.raises(Unavailable):
            one.commit()
        here.coordinator.instead.clear()
    assert texts(one.poll()) == ["b"]
    one.commit()
    assert here.saved() == "b"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("polled_more", [True, False])
def test_a_commit_outside_of_which_nobody_knew_is_asked_about_later(
    here: Setting, committed: bool, polled_more: bool
) -> None:
    here.publish("a", "b", "c")
    one = here.member()
    one.poll(limit=1)
    error = Unavailable("gone")
    here.coordinator.instead = {
        "commit": lost(error) if committed else failing(error),
        "invalidate": failing(error),
    }
    with pytest.raises(TransactionOutcomeUnknown):
        one.commit()
    with pytest.raises(TransactionOutcomeUnknown):
        one.poll()
    here.coordinator.instead.clear()
    if polled_more:
        assert texts(one.poll(limit=1)) == ["b"]
    one.commit()
    assert here.saved() == ("b" if polled_more else "a")
    assert texts(one.poll(limit=1)) == ["c" if polled_more else "b"]


def test_what_was_polled_outside_and_not_saved_does_not_come_again_silently(
    here: Setting,
) -> None:
    here.publish("a", "b")
    member = here.member()
    member.poll(limit=1)
    with here.transaction(), pytest.raises(MisusedTransaction, match=r"commit\(\) or"):
        member.poll()
    member.commit()
    assert in_transaction(here, member) == ["b"]


def test_outside_seek_keeps_the_conflict_with_who_moved_meanwhile(
    here: Setting,
) -> None:
    here.publish("a", "b", "c")
    one, two = here.member(), here.member()
    page = one.poll()
    assert in_transaction(here, two) == ["a", "b", "c"]
    one.seek(page[0].id, inclusive=False)
    with pytest.raises(TransactionConflict):
        one.commit()
    assert here.saved() == "c"


def test_commit_needs_a_group(here: Setting) -> None:
    with pytest.raises(MisusedTransaction, match="no group"):
        here.consumer().commit()


@pytest.mark.parametrize("call", ["commit", "rollback", "wait"])
def test_what_comes_outside_is_refused_inside(
    here: Setting, call: str, group: str | None
) -> None:
    consumer = here.consumer(group=group)
    options = {"timeout_s": 1} if call == "wait" else {}
    with here.transaction(), pytest.raises(MisusedTransaction, match="is open here"):
        getattr(consumer, call)(**options)
