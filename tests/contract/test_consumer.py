"""Consumers: each message once, with the transaction or not at all."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from coordinator.context import TransactionContext
from coordinator.transaction import Status
from tests.support.consume_setting import Setting, in_transaction, run_in_thread, texts
from tests.support.doubles import Clock, failing, lost
from txaware.errors import (
    BadRequest,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from txaware.model.messages import MessageId, Page


def divide_by_zero(page: Page) -> None:
    print(len(page) / 0)


def invalidate_after(_: Page, here: Setting, tx: TransactionContext) -> None:
    here.embedded.invalidate(tx.transaction)


# In a transaction, with a group and without.


def test_polls_in_one_transaction_go_on_from_each_other(
    here: Setting, group: str | None
) -> None:
    here.publish("a", "b", "c", "d")
    consumer = here.consumer(group=group)
    with here.transaction():
        polled = [texts(consumer.poll(limit=3)) for _ in range(3)]
    assert polled == [["a", "b", "c"], ["d"], []]


def test_the_position_moves_with_the_commit(here: Setting, group: str | None) -> None:
    here.publish("a", "b", "c")
    consumer = here.consumer(group=group)
    with here.transaction():
        consumer.poll(limit=2)
    with here.transaction():
        assert texts(consumer.poll()) == ["c"]


def test_the_position_goes_back_with_an_error_in_the_block(
    here: Setting, group: str | None
) -> None:
    here.publish("a", "b", "c")
    consumer = here.consumer(group=group)
    with here.transaction():
        consumer.poll(limit=1)
    tx = here.transaction()
    with pytest.raises(ZeroDivisionError), tx:
        divide_by_zero(consumer.poll())
    assert tx.status is Status.ABORTED
    with here.transaction():
        assert texts(consumer.poll()) == ["b", "c"]


def test_the_position_goes_back_with_an_abort(here: Setting, group: str | None) -> None:
    here.publish("a")
    consumer = here.consumer(group=group)
    with here.transaction() as tx:
        consumer.poll()
        tx.abort()
    with here.transaction():
        assert texts(consumer.poll()) == ["a"]


def test_a_refused_commit_moves_nothing(here: Setting, group: str | None) -> None:
    here.publish("a")
    consumer = here.consumer(group=group)
    here.coordinator.instead["commit"] = failing(TransactionRefused("no"))
    with pytest.raises(TransactionRefused), here.transaction():
        consumer.poll()
    del here.coordinator.instead["commit"]
    assert here.saved() is None
    with here.transaction():
        assert texts(consumer.poll()) == ["a"]


def test_an_invalidated_commit_moves_nothing(here: Setting, group: str | None) -> None:
    here.publish("a")
    consumer = here.consumer(group=group)
    tx = here.transaction()
    with pytest.raises(TransactionRefused), tx:
        invalidate_after(consumer.poll(), here, tx)
    with here.transaction():
        assert texts(consumer.poll()) == ["a"]


def test_a_commit_whose_answer_was_lost_moves_once(
    here: Setting, group: str | None
) -> None:
    here.publish("a", "b")
    consumer = here.consumer(group=group)
    here.coordinator.instead["commit"] = lost(Unavailable("gone"))
    with here.transaction() as tx:
        consumer.poll(limit=1)
    assert tx.status is Status.COMMITTED
    with here.transaction():
        assert texts(consumer.poll()) == ["b"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_which_nobody_knew_is_asked_about_at_the_next_poll(
    here: Setting, group: str | None, committed: bool
) -> None:
    here.publish("a", "b")
    consumer = here.consumer(group=group)
    error = Unavailable("gone")
    here.coordinator.instead = {
        "commit": lost(error) if committed else failing(error),
        "invalidate": failing(error),
    }
    with pytest.raises(TransactionOutcomeUnknown), here.transaction() as unknown:
        consumer.poll(limit=1)
    here.coordinator.instead.clear()
    if group is not None:  # there the next commit tells, by a conflict
        here.embedded.invalidate(unknown.transaction)
    expected = ["b"] if committed else ["a", "b"]
    with here.transaction():
        assert texts(consumer.poll()) == expected


def test_alone_it_says_so_while_nobody_knows_and_rollback_gives_up_asking(
    here: Setting,
) -> None:
    here.publish("a", "b")
    consumer = here.consumer()
    here.coordinator.instead = {
        "commit": failing(Unavailable("gone")),
        "invalidate": failing(Unavailable("gone")),
    }
    with pytest.raises(TransactionOutcomeUnknown), here.transaction() as unknown:
        consumer.poll(limit=1)
    with pytest.raises(TransactionOutcomeUnknown):
        consumer.poll()
    consumer.rollback()
    assert texts(consumer.poll()) == ["a", "b"]
    here.embedded.invalidate(unknown.transaction)


def test_an_open_transaction_blocks_and_nothing_is_passed_over(
    here: Setting, group: str | None
) -> None:
    here.publish("a")
    consumer = here.consumer(group=group)
    with here.transaction() as other:
        here.publish("b", transaction=other.transaction)
        here.publish("c")
        blocked_ms = here.inner.bounds("t").last.publish_time_ms
        assert run_in_thread(lambda: in_transaction(here, consumer)) == ["a"]
        blocked_by = consumer.blocked_by
        assert blocked_by is not None
        assert blocked_by.pointer == other.transaction.transaction_id
        assert blocked_by.since_ms <= blocked_ms
        assert run_in_thread(lambda: in_transaction(here, consumer)) == []
    assert in_transaction(here, consumer) == ["b", "c"]
    assert consumer.blocked_by is None


def test_rolled_back_messages_are_passed_over(here: Setting, group: str | None) -> None:
    consumer = here.consumer(group=group)
    with here.transaction() as other:
        response = here.publish("x", transaction=other.transaction)
        here.inner.rollback("t", response)
        other.abort()
    here.publish("a")
    assert in_transaction(here, consumer) == ["a"]


@pytest.mark.parametrize("before", [[], ["a"]])
def test_what_was_rolled_back_is_not_looked_at_again(
    here: Setting, group: str | None, before: list[str]
) -> None:
    here.publish("first", *before)
    consumer = here.consumer(group=group)
    in_transaction(here, consumer, limit=1)
    with here.transaction() as other:
        response = here.publish("x", transaction=other.transaction)
        here.inner.rollback("t", response)
        other.abort()
    rolled_back = here.inner.poll("t")[-1]
    assert in_transaction(here, consumer) == before
    assert consumer.position == rolled_back.id


def test_seek_goes_back_with_the_transaction(here: Setting, group: str | None) -> None:
    here.publish("a", "b", "c")
    consumer = here.consumer(group=group)
    assert in_transaction(here, consumer, limit=2) == ["a", "b"]
    with here.transaction() as tx:
        consumer.seek(None)
        assert texts(consumer.poll()) == ["a", "b", "c"]
        tx.abort()
    assert in_transaction(here, consumer) == ["c"]
    with here.transaction():
        consumer.seek(None)
    assert in_transaction(here, consumer) == ["a", "b", "c"]


def test_part_of_a_page_is_taken_by_seeking_to_its_last_message(
    here: Setting, group: str | None
) -> None:
    here.publish("a", "b", "c")
    consumer = here.consumer(group=group)
    with here.transaction():
        page = consumer.poll()
        consumer.seek(page[0].id, inclusive=False)
    assert in_transaction(here, consumer) == ["b", "c"]


def test_a_checkpoint_keeps_the_position(here: Setting, group: str | None) -> None:
    here.publish("a", "b", "c")
    consumer = here.consumer(group=group)
    with here.transaction() as tx:
        consumer.poll(limit=1)
        tx.checkpoint()
        assert texts(consumer.poll(limit=1)) == ["b"]
    assert in_transaction(here, consumer) == ["c"]
    if group is not None:
        assert here.service.calls.count("save_position") == 2


def test_a_poll_that_fails_moves_nothing(here: Setting, group: str | None) -> None:
    here.publish("a")
    consumer = here.consumer(group=group)
    here.service.instead["poll"] = lost(Unavailable("gone"))
    with here.transaction(), pytest.raises(Unavailable):
        consumer.poll()
    with pytest.raises(Unavailable):
        consumer.poll()
    here.service.instead.clear()
    assert in_transaction(here, consumer) == ["a"]


# Starts, waiting, warnings.


def test_it_starts_where_it_is_told(here: Setting) -> None:
    here.publish("a", "b", "c")
    b = here.inner.poll("t")[1].id

    def polled(**options: Any) -> list[str]:
        return texts(here.consumer(**options).poll())

    assert polled() == polled(start=0) == polled(start="first") == ["a", "b", "c"]
    assert polled(start=b) == ["b", "c"]
    assert polled(start=b, inclusive=False) == ["c"]
    assert polled(start="last") == ["c"]
    assert polled(start="next") == []


def test_a_time_starts_at_its_first_message() -> None:
    clock = Clock()
    with Setting.at("memory:", Path(), clock_ms=clock) as here:
        for name in "abc":
            here.publish(name)
            clock.advance_s(1)
        b = here.inner.poll("t")[1].id
        for inclusive in (True, False):
            start = b.publish_time_ms
            consumer = here.consumer(start=start, inclusive=inclusive)
            assert texts(consumer.poll()) == ["b", "c"]
        assert texts(here.consumer(start=b.publish_time_ms + 1).poll()) == ["c"]


@pytest.mark.parametrize("start", ["middle", -1, 1.5, True, b"x" * 20])
def test_a_start_that_is_none_is_refused(here: Setting, start: Any) -> None:
    with pytest.raises(BadRequest):
        here.consumer(start=start)


def test_next_and_last_in_an_empty_topic_are_what_comes(here: Setting) -> None:
    after, last = here.consumer(start="next"), here.consumer(start="last")
    here.publish("a")
    assert texts(after.poll()) == ["a"]
    assert texts(last.poll()) == ["a"]


def test_a_position_can_be_given_to_another_consumer(
    here: Setting, group: str | None
) -> None:
    here.publish("a", "b")
    consumer = here.consumer(group=group)
    assert consumer.position is None
    consumer.poll(limit=1)
    other = here.consumer(start=consumer.position, inclusive=False)
    assert texts(other.poll()) == ["b"]


def test_wait_tells_whether_anything_is_there(here: Setting, group: str | None) -> None:
    consumer = here.consumer(group=group)
    assert not consumer.wait(timeout_s=0.01)
    here.publish("a")
    assert consumer.wait(timeout_s=0.01)
    assert in_transaction(here, consumer) == ["a"]
    assert not consumer.wait(timeout_s=0.01)


def test_wait_sleeps_while_the_topic_is_blocked_and_wakes_on_the_commit(
    here: Setting, group: str | None
) -> None:
    consumer = here.consumer(group=group)
    with here.transaction() as other:
        here.publish("a", transaction=other.transaction)
        here.publish("b")
        assert not run_in_thread(lambda: consumer.wait(timeout_s=0.02))
        woken: list[bool] = []
        waiting = threading.Thread(
            target=lambda: woken.append(consumer.wait(timeout_s=30))
        )
        waiting.start()
    waiting.join(10)
    assert woken == [True]
    assert in_transaction(here, consumer) == ["a", "b"]


def skipping(before_ms: int | None, next_id: MessageId) -> Any:
    return lambda _: Page([], next_id=next_id, skipped_before=before_ms)


def test_messages_that_may_have_expired_unseen_are_warned_of_once(
    here: Setting, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = [1_000]
    consumer = here.consumer(group=group, clock_ms=lambda: now_ms[0])
    here.publish("a")
    consumer.poll()
    with caplog.at_level(logging.WARNING):
        here.service.instead["poll"] = skipping(2_000, MessageId.of(2_000).before())
        consumer.poll()
        consumer.poll()
    assert len(caplog.records) == 1
    assert "expired" in caplog.text
    assert consumer.position == here.inner.poll("t")[0].id, "nothing was judged"


def test_who_stood_at_the_end_has_missed_nothing(
    here: Setting, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    now_ms = [1_000]
    consumer = here.consumer(group=group, clock_ms=lambda: now_ms[0])
    here.publish("a")
    consumer.poll()
    now_ms[0] = 5_000
    assert consumer.poll() == []
    here.service.instead["poll"] = skipping(4_000, MessageId.of(4_000).before())
    consumer.poll()
    assert not caplog.records
