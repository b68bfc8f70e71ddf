"""Groups: members conflict, or go on from each other; threads and tasks."""

import asyncio
import time
from typing import Any

import pytest

from coordinator.transaction import Status
from tests.support.concurrency import in_threads
from tests.support.consume_setting import Setting, in_transaction, run_in_thread, texts
from tests.support.doubles import failing, lost
from txaware.consume import Consumer
from txaware.errors import (
    MisusedTransaction,
    TransactionConflict,
    TransactionRefused,
    Unavailable,
)

# Groups.


def test_two_members_at_once_conflict_and_the_second_goes_on_from_the_first(
    here: Setting,
) -> None:
    here.publish("a", "b", "c")
    one, two = here.member(), here.member()

    def both() -> None:
        with here.transaction():
            assert texts(one.poll(limit=1)) == ["a"]
            other = run_in_thread(lambda: in_transaction(here, two, limit=2))
            assert other == ["a", "b"]

    with pytest.raises(TransactionConflict):
        both()
    assert here.saved() == "b"
    assert in_transaction(here, one) == ["c"]


def test_the_position_is_that_of_the_snapshot_and_not_a_later_one(
    here: Setting,
) -> None:
    here.publish("a", "b")
    one, two = here.member(), here.member()

    def late() -> None:
        with here.transaction():
            run_in_thread(lambda: in_transaction(here, two, limit=1))
            assert texts(one.poll()) == ["a", "b"]

    with pytest.raises(TransactionConflict):
        late()
    assert in_transaction(here, one) == ["b"]


def test_members_one_after_the_other_go_on_from_each_other(here: Setting) -> None:
    here.publish("a", "b", "c")
    one, two = here.member(), here.member()
    assert in_transaction(here, one, limit=1) == ["a"]
    assert in_transaction(here, two, limit=1) == ["b"]
    assert in_transaction(here, one, limit=1) == ["c"]


def test_members_that_look_in_vain_do_not_conflict(here: Setting) -> None:
    one, two = here.member(), here.member()
    with here.transaction():
        assert one.poll() == []
        assert run_in_thread(lambda: in_transaction(here, two)) == []
        assert run_in_thread(lambda: in_transaction(here, two)) == []
    assert "save_position" not in here.service.calls
    assert here.saved() is None


def test_two_consumers_of_a_group_share_its_position_in_a_transaction(
    here: Setting,
) -> None:
    here.publish("a", "b", "c")
    one, two = here.member(), here.member()
    with here.transaction():
        assert texts(one.poll(limit=1)) == ["a"]
        assert texts(two.poll(limit=1)) == ["b"]
        assert one.position == two.position
    assert here.service.calls.count("save_position") == 1
    assert in_transaction(here, one) == ["c"]


def test_other_groups_and_other_topics_are_separate(here: Setting) -> None:
    here.inner.create_topic("u")
    here.publish("a", "b")
    here.publish("x", topic="u")
    with here.transaction():
        assert texts(here.member().poll(limit=1)) == ["a"]
        assert texts(here.consumer(group="h").poll()) == ["a", "b"]
        other = Consumer(here.service, here.coordinator, "u", group="g")
        assert texts(other.poll()) == ["x"]
    with here.transaction():
        assert texts(here.member().poll()) == ["b"]
    assert here.consumer(group="h").poll() == []


def test_a_member_refuses_a_long_transaction(here: Setting) -> None:
    here.publish("a")
    member = here.member()
    with here.transaction(long=True):
        with pytest.raises(MisusedTransaction, match="long transaction"):
            member.poll()
        assert texts(here.consumer().poll()) == ["a"]


def test_a_saved_position_that_is_surely_not_written_needs_no_undoing(
    here: Setting,
) -> None:
    here.publish("a")
    here.service.instead["save_position"] = failing(TransactionRefused("ended"))
    with pytest.raises(TransactionRefused), here.transaction() as tx:
        here.member().poll()
    assert tx.status is Status.ABORTED


def test_a_lost_answer_to_the_saving_invalidates(here: Setting) -> None:
    here.publish("a")
    here.service.instead["save_position"] = lost(Unavailable("gone"))
    with pytest.raises(Unavailable), here.transaction() as tx:
        here.member().poll()
    assert tx.status is Status.INVALIDATED
    assert here.saved() is None


def test_a_position_that_cannot_be_taken_back_invalidates(here: Setting) -> None:
    here.publish("a")
    answers = iter([None, Unavailable("gone")])

    def save(call: Any) -> None:
        answer = next(answers)
        if answer is not None:
            raise answer
        call()

    here.service.instead["save_position"] = save
    here.coordinator.instead["commit"] = failing(TransactionRefused("no"))
    with pytest.raises(TransactionRefused), here.transaction() as tx:
        here.member().poll()
    assert tx.status is Status.INVALIDATED
    assert here.saved() is None


def test_a_group_begins_where_its_first_member_says_and_stays_there(
    here: Setting,
) -> None:
    here.publish("a", "b")
    assert in_transaction(here, here.member(start="next")) == []
    here.publish("c")
    assert in_transaction(here, here.member(start="next")) == ["c"]
    assert in_transaction(here, here.member(start=None)) == []


def test_a_commit_outside_keeps_where_a_group_begins(here: Setting) -> None:
    here.publish("a", "b")
    member = here.member(start="next")
    assert member.poll() == []
    member.commit()
    here.publish("c")
    assert texts(here.member(start="next").poll()) == ["c"]


# Threads and tasks.


def test_alone_it_serves_one_transaction_at_a_time(here: Setting) -> None:
    here.publish("a", "b")
    consumer = here.consumer()
    with here.transaction():
        assert texts(consumer.poll(limit=1)) == ["a"]
        with pytest.raises(MisusedTransaction, match="in use by transaction"):
            run_in_thread(consumer.poll)
        with pytest.raises(MisusedTransaction, match="in use by transaction"):
            run_in_thread(lambda: in_transaction(here, consumer))
    assert in_transaction(here, consumer) == ["b"]


def test_alone_it_is_in_use_until_its_transaction_has_ended(here: Setting) -> None:
    here.publish("a", "b")
    consumer = here.consumer()

    def meanwhile(commit: Any) -> Any:
        run_in_thread(consumer.rollback)
        with pytest.raises(MisusedTransaction, match="in use by transaction"):
            run_in_thread(consumer.poll)
        return commit()

    here.coordinator.instead["commit"] = meanwhile
    with here.transaction():
        consumer.poll(limit=1)
        run_in_thread(consumer.rollback)
        with pytest.raises(MisusedTransaction, match="in use by transaction"):
            run_in_thread(consumer.poll)
    assert texts(consumer.poll()) == ["b"]


def test_polls_inside_and_outside_take_turns(here: Setting, group: str | None) -> None:
    here.publish(*"abcdef")
    consumer = here.consumer(group=group)
    polled: list[str] = []
    for _ in range(2):
        polled += in_transaction(here, consumer, limit=1)
        for _ in range(2):
            polled += texts(consumer.poll(limit=1))
        if group is not None:
            consumer.commit()
    assert polled == [*"abcdef"]


def test_threads_that_share_one_outside_get_each_message_once(here: Setting) -> None:
    numbers = [str(number) for number in range(400)]
    here.publish(*numbers)
    consumer = here.consumer()
    seen: list[str] = []

    def slow(poll: Any) -> Any:
        page = poll()
        time.sleep(0.001)  # lets the others in, if anything does
        return page

    here.service.instead["poll"] = slow

    def take() -> None:
        while page := consumer.poll(limit=7):
            seen.extend(texts(page))

    in_threads(lambda _: take(), range(4))
    assert sorted(seen, key=int) == numbers


def test_threads_of_a_group_handle_each_message_once(here: Setting) -> None:
    numbers = [str(number) for number in range(60)]
    here.publish(*numbers)
    member = here.member()
    seen: list[str] = []

    def take() -> None:
        while True:
            try:
                polled = in_transaction(here, member, limit=5)
            except TransactionConflict:
                continue
            if not polled:
                return
            seen.extend(polled)

    in_threads(lambda _: take(), range(4))
    assert sorted(seen, key=int) == numbers


def test_tasks_that_take_turns_do_not_mix(here: Setting) -> None:
    here.publish("a", "b")
    shared = here.member()

    async def task(first: asyncio.Event, then: asyncio.Event) -> list[str]:
        await first.wait()
        with here.transaction():
            polled = texts(shared.poll(limit=1))
            then.set()
            await asyncio.sleep(0.01)  # the other one takes its turn
            polled += texts(shared.poll(limit=1))
        return polled

    async def both() -> tuple[Any, Any]:
        one, two = asyncio.Event(), asyncio.Event()
        one.set()
        return await asyncio.gather(
            task(one, two), task(two, asyncio.Event()), return_exceptions=True
        )

    won, conflict = asyncio.run(both())
    assert won == ["a", "b"]
    assert isinstance(conflict, TransactionConflict)
