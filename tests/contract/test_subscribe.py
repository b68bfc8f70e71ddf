"""Subscribers: every message handled once, with the position, whatever fails."""

import json
import threading
from typing import Any

import pytest

from coordinator.context import current_transaction
from tests.support.consume_handlers import Handler, effects, refuse, run_until_idle
from tests.support.consume_setting import Setting, run_in_thread, texts
from tests.support.doubles import Recorder, failing, lost
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    TransactionConflict,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from txaware.model.messages import Message


def test_it_handles_everything_in_order_and_moves_with_it(here: Setting) -> None:
    here.publish("a", "b", "c")
    handler = Handler(here)
    subscriber = here.subscriber(handler)
    assert subscriber.run_once() == 3
    assert subscriber.run_once() == 0
    assert handler.groups == [["a", "b", "c"]]
    assert here.saved() == "c"


def test_without_a_group_it_begins_where_it_is_told(here: Setting) -> None:
    here.publish("a", "b", "c")
    handler = Handler(here)
    subscriber = here.subscriber(handler, group=None, start="last")
    assert run_until_idle(subscriber) == 0
    assert handler.calls == ["c"]


def test_a_handler_that_fails_once_gets_the_same_batch_again_with_effects_once(
    here: Setting,
) -> None:
    here.publish("a", "b", "c")
    handle, failures = effects(here), [ValueError("once")]

    def handler(message: Message) -> None:
        handle(message)
        if message.payload == b"b" and failures:
            raise failures.pop()

    subscriber = here.subscriber(handler)
    with pytest.raises(ValueError, match="once"):
        subscriber.run_once()
    assert here.saved() is None
    run_until_idle(subscriber)
    assert here.committed("done") == ["a", "b", "c"]
    assert here.saved() == "c"


def test_a_message_of_its_own_splits_the_batches(here: Setting) -> None:
    here.publish(*"0123456")
    handler = Handler(here)
    subscriber = here.subscriber(
        handler,
        messages_per_transaction=3,
        alone=lambda message: message.payload == b"4",
    )
    run_until_idle(subscriber)
    assert handler.groups == [["0", "1", "2"], ["3"], ["4"], ["5", "6"]]


def test_a_failure_in_a_later_batch_keeps_the_earlier_ones(here: Setting) -> None:
    here.publish(*"0123456")
    handler = Handler(here, fails={"5": 1})
    subscriber = here.subscriber(handler, messages_per_transaction=3)
    assert run_until_idle(subscriber) == 1
    assert handler.calls == [*"012", *"345", *"34", "5", "6"]


def test_work_is_cut_at_nine_tenths_of_the_time_out(here: Setting) -> None:
    here.publish(*"01234")
    now_s = [0.0]
    handler = Handler(here)

    def slow(message: Message) -> None:
        handler(message)
        now_s[0] += 4

    subscriber = here.subscriber(slow, timeout_s=10, clock_s=lambda: now_s[0])
    run_until_idle(subscriber)
    assert handler.groups == [["0", "1", "2"], ["3", "4"]]


def test_a_message_slower_than_that_is_still_handled(here: Setting) -> None:
    here.publish(*"01")
    now_s = [0.0]
    handler = Handler(here)

    def slow(message: Message) -> None:
        handler(message)
        now_s[0] += 100

    run_until_idle(here.subscriber(slow, timeout_s=10, clock_s=lambda: now_s[0]))
    assert handler.groups == [["0"], ["1"]]


@pytest.mark.parametrize("together", [False, True])
def test_poison_is_skipped_after_its_tries_and_the_others_are_handled_once(
    here: Setting, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    here.publish(*"0123456")
    handler = Handler(here, fails={"3": 1000})
    subscriber = here.subscriber(
        handler.together if together else handler, together=together, tries=3
    )
    failures = run_until_idle(subscriber)
    # A batch that failed as a whole is not counted against any of its messages.
    assert failures == (4 if together else 3)
    assert handler.calls.count("3") == failures
    assert "failed 3 times" in caplog.text
    numbers = subscriber.metrics()
    assert (numbers.processed, numbers.skipped, numbers.dead_lettered) == (6, 1, 0)
    assert here.saved() == "6"


def test_poison_goes_to_the_other_topic_with_the_position(here: Setting) -> None:
    here.inner.create_topic("dead")
    here.publish(*"012")
    handler = Handler(here, fails={"1": 1000})
    subscriber = here.subscriber(handler, tries=2, dead_letter_topic="dead")
    assert run_until_idle(subscriber) == 2
    assert here.committed("dead") == ["1"]
    assert subscriber.metrics().dead_lettered == 1


def test_a_dead_letter_is_rolled_back_when_its_commit_is_refused(
    here: Setting,
) -> None:
    here.inner.create_topic("dead")
    here.publish("bad")
    subscriber = here.subscriber(Handler(here), decode=int, dead_letter_topic="dead")
    here.coordinator.instead["commit"] = failing(TransactionRefused("no"))
    with pytest.raises(TransactionRefused):
        subscriber.run_once()
    here.coordinator.instead.clear()
    assert here.committed("dead") == []
    assert here.saved() is None
    subscriber.run_once()
    assert here.committed("dead") == ["bad"]


def test_a_dead_letter_is_published_after_all_tables_wrote(here: Setting) -> None:
    here.inner.create_topic("dead")
    here.publish("bad", "1")

    def handler(_: Any) -> None:
        context = current_transaction(here.coordinator)
        assert context is not None
        context.join(Recorder("late", here.service.calls))
        context.checkpoint()
        assert "publish" not in here.service.calls

    subscriber = here.subscriber(handler, decode=int, dead_letter_topic="dead")
    assert subscriber.run_once() == 2
    last = here.service.calls.index("publish")
    assert "commit_tx late" in here.service.calls[:last]
    assert "commit_tx late" not in here.service.calls[last:]
    assert here.committed("dead") == ["bad"]


def test_a_dead_letter_whose_answer_was_lost_is_never_seen_twice(
    here: Setting,
) -> None:
    here.inner.create_topic("dead")
    here.publish("bad")
    subscriber = here.subscriber(Handler(here), decode=int, dead_letter_topic="dead")
    here.service.instead["publish"] = lost(Unavailable("gone"))
    with pytest.raises(Unavailable):
        subscriber.run_once()
    here.service.instead.clear()
    subscriber.run_once()
    assert here.committed("dead") == ["bad"]


def test_without_tries_nothing_is_ever_given_up(here: Setting) -> None:
    here.publish(*"012")
    handler = Handler(here, fails={"1": 40})
    assert run_until_idle(here.subscriber(handler)) == 40
    assert here.saved() == "2"


def test_what_is_away_is_no_message_s_fault(here: Setting) -> None:
    here.publish(*"01")
    here.coordinator.instead["commit"] = failing(TransactionRefused("not now"))
    handled: list[Any] = []
    subscriber = here.subscriber(handled.append, tries=1)
    here.coordinator.instead["can_commit"] = failing(Unavailable("away"))
    for _ in range(5):
        with pytest.raises(Unavailable):
            subscriber.run_once()
    here.coordinator.instead.clear()
    assert subscriber.run_once() == 2
    assert subscriber.metrics().skipped == 0


def test_a_batch_whose_commit_fails_is_taken_apart(here: Setting) -> None:
    here.publish(*"0123")
    handler = Handler(here)
    rows: list[bytes] = []

    def write(message: Message) -> None:
        handler(message)
        rows.append(message.payload)

    def flush() -> bool:
        if b"2" in rows:
            raise ValueError("the table refuses 2")
        return True

    table = Recorder("table", commit_tx=flush, start_tx=rows.clear)
    subscriber = here.subscriber(write, participants=[table], tries=2)
    assert run_until_idle(subscriber) == 3
    assert handler.groups == [[*"0123"], ["0"], ["1"], ["2"], ["2"], ["3"]]
    assert subscriber.metrics().skipped == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"tries": 2, "dead_letter_topic": "dead"},
            [
                "that was try 1 of 2 of message {}, which comes again in",
                "that was try 2 of 2 of message {}, which goes to dead in",
            ],
        ),
        ({"tries": 1}, ["that was try 1 of 1 of message {}, which is skipped in"]),
        ({}, ["message {} comes again in", "message {} comes again after"]),
        (
            {"together": True, "messages_per_transaction": 2},
            ["its 2 messages come again, each alone, in", "message {} comes again"],
        ),
    ],
)
def test_a_failure_is_logged_with_its_traceback_and_what_becomes_of_the_message(
    here: Setting,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    said: list[str],
) -> None:
    here.service.create_topic("dead")
    here.publish(*("xy" if "together" in options else "x"))
    stop = threading.Event()
    failures: list[Any] = []

    def fails(message: Any) -> None:
        failures.append(message)
        if len(failures) >= len(said):
            stop.set()
        raise ZeroDivisionError

    subscriber = here.subscriber(fails, first_pause_s=0.001, **options)
    subscriber.run(stop)
    first = here.inner.poll("t")[0].id
    records = [one for one in caplog.records if "in a row failed; " in one.getMessage()]
    for record, text in zip(records, said, strict=True):
        expected = text.format(first)
        if record is records[-1]:  # the loop was told to stop
            expected = expected.removesuffix(" in")
        assert f"failed; {expected}" in record.getMessage()
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError
    assert "after the next start, as this loop ends" in records[-1].getMessage()


def test_what_cannot_be_decoded_is_skipped_with_a_warning(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    here.publish('{"n": 1}', "{", '{"n": 2}')
    seen: list[Any] = []
    subscriber = here.subscriber(
        lambda message: seen.append((message.payload["n"], message.id)),
        decode=json.loads,
    )
    assert subscriber.run_once() == 3
    ids = [message.id for message in here.inner.poll("t")]
    assert seen == [(1, ids[0]), (2, ids[2])]
    assert "was skipped" in caplog.text
    assert subscriber.metrics().skipped == 1


@pytest.mark.parametrize("together", [False, True])
def test_a_page_of_nothing_but_garbage_is_passed(here: Setting, together: bool) -> None:
    here.publish("x", "y")
    subscriber = here.subscriber(refuse, decode=int, together=together)
    assert subscriber.run_once() == 2
    assert here.saved() == "y"


def test_a_question_that_fails_is_the_fault_of_its_message(here: Setting) -> None:
    here.publish(*"012")
    handler = Handler(here)

    def alone(message: Message) -> bool:
        if message.payload == b"1":
            raise ValueError("is it?")
        return False

    assert run_until_idle(here.subscriber(handler, alone=alone)) == 1
    assert handler.groups == [["0"], ["1"], ["2"]]


def test_participants_commit_with_the_position(here: Setting) -> None:
    here.publish("a")
    table = Recorder("table")
    assert here.subscriber(Handler(here), participants=[table]).run_once() == 1
    assert "commit_tx table" in table.log
    assert "post_tx_commit table" in table.log


def test_after_commit_sees_what_was_handled_and_may_fail(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    here.publish("1", "x", "2")
    seen: list[Any] = []

    def after(messages: list[Any]) -> None:
        assert current_transaction(here.coordinator) is None
        assert here.saved() == "2"
        seen.extend(message.payload for message in messages)
        raise OSError("mail server")

    subscriber = here.subscriber(lambda _: None, decode=int, after_commit=after)
    assert subscriber.run_once() == 3
    assert seen == [1, 2]
    assert "stays committed" in caplog.text
    assert subscriber.run_once() == 0


def test_a_participant_that_fails_after_the_commit_repeats_nothing(
    here: Setting,
) -> None:
    here.publish("a", "b")
    announced: list[list[Message]] = []
    table = Recorder("table", post_tx_commit=OSError("late"))
    subscriber = here.subscriber(
        Handler(here), participants=[table], tries=1, after_commit=announced.append
    )
    with pytest.raises(OSError, match="late"):
        subscriber.run_once()
    assert here.saved() == "b"
    assert [texts(messages) for messages in announced] == [["a", "b"]]
    assert subscriber.metrics().processed == 2
    assert subscriber.metrics().failures == 0


def test_a_handler_that_ends_the_transaction_is_told(here: Setting) -> None:
    here.publish(*"012")

    def handler(message: Message) -> None:
        context = current_transaction(here.coordinator)
        if context is not None and message.payload == b"1":
            context.abort()

    subscriber = here.subscriber(handler, tries=1)
    failures = 0
    for _ in range(6):
        try:
            subscriber.run_once()
        except MisusedTransaction:
            failures += 1
    assert failures == 2
    assert here.saved() == "2"
    assert subscriber.metrics().skipped == 1


def test_a_handler_that_nobody_awaits_is_refused(here: Setting) -> None:
    here.publish("a")

    async def handler(_: Message) -> None:
        raise AssertionError

    with pytest.raises(BadRequest, match="a coroutine"):
        here.subscriber(handler)
    with pytest.raises(BadRequest, match="a coroutine"):
        here.subscriber(lambda message: handler(message)).run_once()
    with pytest.raises(BadRequest, match="no function"):
        here.subscriber("handler")  # type: ignore[arg-type]
    assert here.saved() is None


def test_after_commit_is_not_called_for_what_failed(here: Setting) -> None:
    here.publish("a")
    seen: list[Any] = []
    here.coordinator.instead["commit"] = failing(TransactionRefused("no"))
    subscriber = here.subscriber(lambda _: None, after_commit=seen.append)
    with pytest.raises(TransactionRefused):
        subscriber.run_once()
    assert not seen


def test_a_member_that_is_overtaken_goes_on_quietly_from_there(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    here.publish("a", "b", "c")
    other = here.member()

    def overtake() -> None:
        with here.transaction():
            assert texts(other.poll(limit=2)) == ["a", "b"]

    handler = Handler(here)

    def overtaken(message: Message) -> None:
        if not handler.calls:
            run_in_thread(overtake)
        handler(message)

    subscriber = here.subscriber(overtaken, sleep=lambda _: None)
    assert subscriber.run_once() == 1
    assert handler.groups == [["a", "b", "c"], ["c"]]
    assert not caplog.records
    numbers = subscriber.metrics()
    assert (numbers.conflicts, numbers.failures, numbers.processed) == (1, 0, 1)


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_of_which_nobody_knew_is_neither_repeated_nor_lost(
    here: Setting, committed: bool
) -> None:
    here.publish("a", "b")
    subscriber = here.subscriber(
        effects(here), messages_per_transaction=1, tries=1, sleep=lambda _: None
    )
    error = Unavailable("gone")
    here.coordinator.instead = {
        "commit": lost(error) if committed else failing(error),
        "invalidate": failing(error),
    }
    with pytest.raises(TransactionOutcomeUnknown):
        subscriber.run_once()
    here.coordinator.instead.clear()
    for open_one in here.embedded.open_transactions():
        here.embedded.invalidate(open_one.transaction_id)
    run_until_idle(subscriber)
    assert here.committed("done") == ["a", "b"]
    assert subscriber.metrics().skipped == 0


def test_conflicts_without_end_are_raised(here: Setting) -> None:
    here.publish("a")
    here.coordinator.instead["can_commit"] = failing(TransactionConflict("again"))
    pauses: list[float] = []
    subscriber = here.subscriber(lambda _: None, sleep=pauses.append, tries=1)
    with pytest.raises(TransactionConflict):
        subscriber.run_once()
    assert len(pauses) > 10
    here.coordinator.instead.clear()
    assert subscriber.run_once() == 1
    assert subscriber.metrics().skipped == 0


def test_an_open_transaction_blocks_it_and_nothing_is_passed_over(
    here: Setting,
) -> None:
    handler = Handler(here)
    subscriber = here.subscriber(handler)
    with here.transaction() as other:
        here.publish("a", transaction=other.transaction)
        here.publish("b")
        assert run_in_thread(subscriber.run_once) == 0
        assert subscriber.consumer.blocked_by is not None
    assert subscriber.run_once() == 2
    assert handler.calls == ["a", "b"]


def test_metrics_count(here: Setting) -> None:
    here.publish("1", "x", "2")
    now_s = [0.0]

    def handler(_: Any) -> None:
        now_s[0] += 1.5

    published_ms = here.inner.poll("t")[-1].id.publish_time_ms
    subscriber = here.subscriber(
        handler,
        decode=int,
        clock_s=lambda: now_s[0],
        clock_ms=lambda: published_ms + 2_500,
    )
    run_until_idle(subscriber)
    numbers = subscriber.metrics()
    assert (numbers.fetched, numbers.processed, numbers.skipped) == (3, 2, 1)
    assert (numbers.batches, numbers.failures) == (1, 0)
    assert numbers.processing_s == 3
    assert numbers.delay_s == 2.5
