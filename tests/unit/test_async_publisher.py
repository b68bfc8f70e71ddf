"""Publishing in the background: batches, full queues, outages and futures."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from coordinator.context import TransactionContext
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import BadRequest, MisusedTransaction, Unavailable
from tests.support.background import PATIENCE_S, Setting, done
from tests.support.doubles import failing, lost
from txaware.errors import (
    PublisherClosed,
    QueueFull,
    RequestTooLarge,
    TopicNotFound,
)
from txaware.model.messages import MessageId, Outgoing
from txaware.publish.background_publishers import AsyncPublisher
from txaware.publish.publisher import OVERHEAD_BYTES
from txaware.publish.send_batch import Sent


@pytest.fixture
def here() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    setting.close()


# Batches


def test_a_future_is_done_once_its_message_is_published(here: Setting) -> None:
    publisher = here.publisher()
    done(publisher.publish(b"1"))
    assert here.service.published("a") == [b"1"]


def test_one_batch_is_under_way_while_the_next_is_collected(here: Setting) -> None:
    publisher, gate = here.busy()
    futures = [publisher.publish(b"%d" % number) for number in range(3)]
    assert not any(future.done() for future in futures)
    assert len(here.batches()) == 1
    gate.open.set()
    publisher.flush(PATIENCE_S)
    assert here.batches() == [[b"first"], [b"0", b"1", b"2"]]


def test_batches_are_cut_by_number(here: Setting) -> None:
    publisher, gate = here.busy(batch_limit_messages=2)
    for number in range(5):
        publisher.publish(b"%d" % number)
    gate.open.set()
    publisher.close()
    assert here.batches()[1:] == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def test_batches_are_cut_by_size(here: Setting) -> None:
    room_bytes = 2 * (10 + OVERHEAD_BYTES)
    publisher, gate = here.busy(batch_limit_bytes=room_bytes)
    for size in (10, 10, 11, 10, 500, 1, 1):
        publisher.publish(b"x" * size)
    gate.open.set()
    publisher.close()
    sizes = [[len(message) for message in batch] for batch in here.batches()[1:]]
    assert sizes == [[10, 10], [11], [10], [500], [1, 1]]


def test_a_full_batch_does_not_linger(here: Setting) -> None:
    publisher = here.lingering(batch_limit_messages=3)
    publisher.publish(b"second")
    done(publisher.publish(b"third"))
    assert here.batches() == [[b"first", b"second", b"third"]]


def test_a_batch_full_by_size_does_not_linger(here: Setting) -> None:
    publisher = here.lingering(batch_limit_bytes=200)
    done(publisher.publish(b"x" * 67))
    assert here.batches() == [[b"first", b"x" * 67]]


def test_a_flush_does_not_linger(here: Setting) -> None:
    publisher = here.lingering()
    future = publisher.publish(b"second")
    assert publisher.flush(PATIENCE_S)
    assert future.done()


def test_a_close_does_not_linger(here: Setting) -> None:
    with here.lingering() as publisher:
        future = publisher.publish(b"second")
    assert future.done()


def test_callers_who_wait_for_room_end_the_lingering(here: Setting) -> None:
    publisher = here.lingering(queue_limit_messages=2)
    for _ in range(4):
        publisher.publish(b"x")
    assert here.batches()[0] == [b"first", b"x"]


def test_a_lingering_batch_goes_out_by_itself(here: Setting) -> None:
    publisher = AsyncPublisher(
        here.service, "a", linger_ms=20, message_limit_bytes=1 << 20
    )
    publisher.publish(b"x").result(10)
    publisher.close()


def test_order_is_kept_through_batches_and_outages(here: Setting) -> None:
    answers = iter([failing(Unavailable("away")), lost(Unavailable("cut"))] * 3)
    usual: Any = lambda write: write()  # noqa: E731
    here.service.instead["publish"] = lambda write: next(answers, usual)(write)
    with here.publisher(batch_limit_messages=7) as publisher:
        for number in range(100):
            publisher.publish(b"%d" % number)
    seen = list(dict.fromkeys(here.service.published("a")))
    assert seen == [b"%d" % number for number in range(100)]


def test_an_expiry_travels_with_its_message(here: Setting) -> None:
    message = Outgoing(b"soon over", expire_after_s=1.5)
    done(here.publisher().publish(message))
    assert here.batches() == [[message]]


def test_it_never_joins_a_transaction(here: Setting) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        TransactionContext(EmbeddedCoordinator()),
    ):
        done(here.publisher().publish(b"1")) or 1 / 0  # type: ignore[func-returns-value]
    assert here.service.calls[0].pointer is None
    assert here.service.published("a") == [b"1"]


# A full queue


def test_a_full_queue_raises_and_takes_nothing(here: Setting) -> None:
    publisher, gate = here.busy(when_full="raise", queue_limit_messages=2)
    publisher.publish(b"second")
    with pytest.raises(QueueFull, match="2 messages wait for a"):
        publisher.publish(b"third")
    gate.open.set()
    assert publisher.flush(PATIENCE_S)
    publisher.publish(b"fourth")
    publisher.close()
    assert here.service.published("a") == [b"first", b"second", b"fourth"]


def test_a_queue_is_full_by_bytes_too(here: Setting) -> None:
    room_bytes = 2 * (5 + OVERHEAD_BYTES)
    publisher, _ = here.busy(when_full="raise", queue_limit_bytes=room_bytes)
    with pytest.raises(QueueFull):
        publisher.publish(b"123456")
    publisher.publish(b"12345")
    with pytest.raises(QueueFull):
        publisher.publish(b"")


def test_what_is_over_makes_room(here: Setting) -> None:
    room_bytes = 2 * (100 + OVERHEAD_BYTES)
    publisher = here.publisher(when_full="raise", queue_limit_bytes=room_bytes)
    for _ in range(5):
        done(publisher.publish(b"x" * 100))
    publisher.flush(PATIENCE_S)
    gate = here.gate()
    publisher.publish(b"x" * 100)
    assert gate.came.wait(PATIENCE_S)
    publisher.publish(b"x" * 100)
    with pytest.raises(QueueFull):
        publisher.publish(b"")


def test_a_message_larger_than_the_queue_passes_alone(here: Setting) -> None:
    publisher = here.publisher(when_full="raise", queue_limit_bytes=10)
    done(publisher.publish(b"x" * 500))


def test_a_dropped_message_fails_its_future(here: Setting) -> None:
    publisher, gate = here.busy(when_full="drop", queue_limit_messages=1)
    future = publisher.publish(b"second")
    assert isinstance(future.exception(0), QueueFull)
    gate.open.set()
    publisher.close()
    assert here.service.published("a") == [b"first"]


def test_a_full_queue_is_waited_for(here: Setting) -> None:
    publisher, gate = here.busy(when_full="wait", queue_limit_messages=1)
    waiting = threading.Thread(target=publisher.publish, args=(b"second",))
    waiting.start()
    waiting.join(0.02)
    assert waiting.is_alive()
    gate.open.set()
    waiting.join(PATIENCE_S)
    publisher.close()
    assert here.service.published("a") == [b"first", b"second"]


def test_a_close_wakes_those_who_wait_for_room(here: Setting) -> None:
    publisher, gate = here.busy(when_full="wait", queue_limit_messages=1)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            publisher.publish(b"second")
        except PublisherClosed as error:
            caught.append(error)

    waiting = threading.Thread(target=work)
    waiting.start()
    waiting.join(0.02)
    closing = threading.Thread(target=publisher.close)
    closing.start()
    waiting.join(PATIENCE_S)
    assert len(caught) == 1
    gate.open.set()
    closing.join(PATIENCE_S)
    assert here.service.published("a") == [b"first"]


# Outages and other errors


def test_it_tries_again_until_the_service_is_back(here: Setting) -> None:
    answers = iter([failing(Unavailable("away"))] * 4 + [lambda write: write()])
    here.service.instead["publish"] = lambda write: next(answers)(write)
    done(here.publisher().publish(b"1"))
    assert here.batches() == [[b"1"]] * 5
    assert len(here.time.slept) == 4
    assert here.service.published("a") == [b"1"]


def test_it_gives_up_in_the_end_and_goes_on_with_the_next(here: Setting) -> None:
    here.service.instead["publish"] = failing(Unavailable("away"))
    publisher = here.publisher(give_up_after_s=30)
    with pytest.raises(Unavailable, match="away"):
        done(publisher.publish(b"1"))
    assert 10 < sum(here.time.slept) < 30
    here.service.instead.clear()
    done(publisher.publish(b"2"))
    assert here.service.published("a") == [b"2"]


def test_it_gives_up_by_the_last_message_of_a_batch(here: Setting) -> None:
    publisher, gate = here.busy(give_up_after_s=30)
    publisher.publish(b"early")
    here.time.now_s += 25
    late = publisher.publish(b"late")
    here.service.instead["publish"] = failing(Unavailable("away"))
    gate.open.set()
    assert isinstance(late.exception(PATIENCE_S), Unavailable)
    assert 10 < sum(here.time.slept) < 30


def test_what_waited_through_an_outage_is_tried_once_at_least(here: Setting) -> None:
    publisher, gate = here.busy(give_up_after_s=30, batch_limit_messages=1)
    late = publisher.publish(b"late")
    here.time.now_s += 100
    gate.open.set()
    done(late)


@pytest.mark.parametrize("error", [TopicNotFound("a"), BadRequest("x"), OSError("y")])
def test_other_errors_fail_the_futures_of_their_batch(
    here: Setting, error: Exception
) -> None:
    publisher, gate = here.busy()
    futures = [publisher.publish(b"%d" % number) for number in range(2)]
    here.service.instead["publish"] = failing(error)
    gate.open.set()
    for future in futures:
        assert future.exception(PATIENCE_S) is error
    assert here.time.slept == []
    here.service.instead.clear()
    done(publisher.publish(b"after"))


def test_an_interrupt_of_the_service_does_not_stop_the_thread(here: Setting) -> None:
    here.service.instead["publish"] = failing(SystemExit())
    publisher = here.publisher()
    assert isinstance(publisher.publish(b"1").exception(PATIENCE_S), SystemExit)
    here.service.instead.clear()
    done(publisher.publish(b"2"))


def test_a_loss_is_logged(here: Setting, caplog: pytest.LogCaptureFixture) -> None:
    here.service.instead["publish"] = failing(TopicNotFound("gone"))
    with here.publisher() as publisher:
        publisher.publish(b"1")
    assert "1 messages to a were given up: TopicNotFound('gone')" in caplog.text


def test_an_outage_is_one_warning(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    here.service.instead["publish"] = failing(TopicNotFound("gone"))
    with here.publisher() as publisher:
        for _ in range(2):
            publisher.publish(b"lost")
            publisher.flush(PATIENCE_S)
        here.service.instead.clear()
        done(publisher.publish(b"published"))
        assert len(caplog.records) == 1
        here.service.instead["publish"] = failing(TopicNotFound("gone again"))
        publisher.publish(b"lost")
    assert len(caplog.records) == 2


def test_a_future_that_somebody_else_has_set_stops_nothing(here: Setting) -> None:
    publisher, gate = here.busy()
    publisher.publish(b"1").set_result(Sent("a", 0, MessageId()))
    last = publisher.publish(b"2")
    gate.open.set()
    done(last)
    done(publisher.publish(b"3"))
    assert here.service.published("a") == [b"first", b"1", b"2", b"3"]


@pytest.mark.parametrize("wrong", ["text", 5, None, bytearray(b"x")], ids=repr)
def test_what_is_no_message_fails_at_publish(here: Setting, wrong: Any) -> None:
    with pytest.raises(BadRequest):
        here.publisher().publish(wrong)
    with pytest.raises(BadRequest):
        here.at_most_once().publish(wrong)


def test_a_message_above_the_limit_fails_at_publish(here: Setting) -> None:
    with pytest.raises(RequestTooLarge):
        here.publisher(message_limit_bytes=10).publish(b"x" * 11)


@pytest.mark.parametrize(
    "wrong",
    [
        {"when_full": "sometimes"},
        {"linger_ms": -1},
        {"linger_ms": float("nan")},
        {"batch_limit_messages": 0},
        {"queue_limit_bytes": True},
        {"give_up_after_s": "long"},
        {"topic": "a b"},
    ],
    ids=str,
)
def test_a_publisher_of_nonsense_is_not_made(here: Setting, wrong: Any) -> None:
    with pytest.raises(BadRequest):
        here.publisher(**wrong)


# Futures


def test_a_message_whose_future_is_cancelled_in_time_is_taken_back(
    here: Setting,
) -> None:
    publisher, gate = here.busy()
    cancelled, kept = publisher.publish(b"no"), publisher.publish(b"yes")
    assert cancelled.cancel()
    gate.open.set()
    done(kept)
    with pytest.raises(CancelledError):
        done(cancelled)
    assert here.service.published("a") == [b"first", b"yes"]


def test_a_batch_of_cancelled_messages_is_not_published(here: Setting) -> None:
    publisher, gate = here.busy()
    assert publisher.publish(b"no").cancel()
    gate.open.set()
    assert publisher.flush(PATIENCE_S)
    assert here.batches() == [[b"first"]]


def test_a_message_under_way_cannot_be_taken_back(here: Setting) -> None:
    gate, publisher = here.gate(), here.publisher()
    future = publisher.publish(b"1")
    assert gate.came.wait(PATIENCE_S)
    assert not future.cancel()


def test_a_callback_that_fails_does_not_stop_the_thread(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: object) -> None:
        raise SystemExit

    publisher, gate = here.busy()
    bad, good = publisher.publish(b"1"), publisher.publish(b"2")
    bad.add_done_callback(fails)
    gate.open.set()
    done(good)
    done(publisher.publish(b"3"))
    assert "could not be told" in caplog.text


def test_a_callback_may_publish_and_never_waits_for_itself(here: Setting) -> None:
    publisher, gate = here.busy(when_full="wait", queue_limit_messages=2)
    answers: list[object] = []
    over = threading.Event()

    def publishes(_: object) -> None:
        try:
            for _ in range(5):
                publisher.publish(b"more")
        except QueueFull as error:
            answers.append(error)
        for call in (publisher.flush, publisher.close):
            try:
                call()
            except MisusedTransaction as error:
                answers.append(error)
        over.set()

    publisher.publish(b"second").add_done_callback(publishes)
    gate.open.set()
    assert over.wait(PATIENCE_S)
    assert [type(answer) for answer in answers] == [
        QueueFull,
        MisusedTransaction,
        MisusedTransaction,
    ]


def test_it_works_from_asyncio(here: Setting) -> None:
    publisher = here.publisher(when_full="raise")

    async def work(name: bytes) -> None:
        await asyncio.wrap_future(publisher.publish(name))

    async def all_of_them() -> None:
        await asyncio.gather(*(work(b"%d" % number) for number in range(50)))

    asyncio.run(all_of_them())
    assert here.service.published("a") == [b"%d" % number for number in range(50)]
