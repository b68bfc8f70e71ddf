"""A subscriber that runs: it waits, pauses, goes on and ends."""

import logging
import threading
from collections.abc import Callable

import pytest

from tests.support.concurrency import until
from tests.support.consume_handlers import Handler, effects, refuse
from tests.support.consume_setting import Setting
from tests.support.doubles import failing
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    TopicNotFound,
    Unavailable,
)
from txaware.model.messages import Message


def test_run_handles_what_comes_and_stops_when_told(here: Setting) -> None:
    here.publish("a")
    seen: list[str] = []
    both, stop = threading.Event(), threading.Event()

    def handler(message: Message) -> None:
        seen.append(message.payload.decode())
        if len(seen) == 2:
            both.set()

    subscriber = here.subscriber(handler)
    running = threading.Thread(target=subscriber.run, args=[stop])
    running.start()
    here.publish("b")
    assert both.wait(10)
    stop.set()
    running.join(10)
    assert not running.is_alive()
    assert seen == ["a", "b"]
    assert here.saved() == "b"


def test_run_waits_for_messages_and_does_not_look_again_and_again(
    here: Setting,
) -> None:
    stop = threading.Event()
    subscriber = here.subscriber(lambda _: None, idle_wait_s=7)

    def wait(_: Callable[[], bool]) -> bool:
        if here.service.calls.count("wait") == 3:
            stop.set()
        return False

    here.service.instead["wait"] = wait
    subscriber.run(stop)
    assert here.service.calls.count("wait") == 3
    assert here.service.calls.count("poll") == 1
    assert here.coordinator.log.count("start_short") == 1


def test_run_pauses_longer_after_each_failure_and_begins_anew_after_a_success(
    here: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    here.publish("a", "b")
    stop = threading.Event()
    pauses: list[float] = []
    handler = Handler(here, fails={"a": 8, "b": 2})

    def finished(message: Message) -> None:
        handler(message)
        if message.payload == b"b":
            stop.set()

    subscriber = here.subscriber(finished, sleep=pauses.append)
    with caplog.at_level(logging.WARNING):
        subscriber.run(stop)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 0.1, 0.2]
    assert "cannot handle a" in caplog.text
    assert here.saved() == "b"


def test_run_ends_in_the_middle_of_a_pause(here: Setting) -> None:
    here.publish("a")
    stop = threading.Event()
    subscriber = here.subscriber(refuse, first_pause_s=60, longest_pause_s=60)
    running = threading.Thread(target=subscriber.run, args=[stop])
    running.start()
    while not subscriber.metrics().failures:
        assert running.is_alive()
    stop.set()
    running.join(10)
    assert not running.is_alive()


def test_run_goes_on_when_the_service_comes_back(here: Setting) -> None:
    here.publish("a")
    stop, seen = threading.Event(), []
    here.service.instead["poll"] = failing(Unavailable("away"))

    def handler(message: Message) -> None:
        seen.append(message.payload)
        stop.set()

    subscriber = here.subscriber(
        handler, sleep=lambda _: here.service.instead.clear(), tries=1
    )
    subscriber.run(stop)
    assert seen == [b"a"]


def test_an_interrupt_ends_run_and_moves_nothing(here: Setting) -> None:
    here.publish("a")
    handled: list[Message] = []

    def handler(message: Message) -> None:
        if not handled:
            handled.append(message)
            raise KeyboardInterrupt

    subscriber = here.subscriber(handler, tries=1)
    with pytest.raises(KeyboardInterrupt):
        subscriber.run()
    assert here.saved() is None
    assert subscriber.run_once() == 1
    assert subscriber.metrics().skipped == 0


def test_close_ends_run_and_waits_for_the_handler(here: Setting) -> None:
    here.publish("a")
    begun, finish = threading.Event(), threading.Event()
    seen: list[str] = []

    def handler(_: Message) -> None:
        begun.set()
        finish.wait(10)
        seen.append("handled")

    subscriber = here.subscriber(handler)
    running = threading.Thread(target=subscriber.run)
    running.start()
    assert begun.wait(10)
    closing = threading.Thread(target=subscriber.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    finish.set()
    closing.join(10)
    assert seen == ["handled"]
    running.join(10)
    assert not running.is_alive()
    assert here.saved() == "a"
    with pytest.raises(MisusedTransaction, match="closed"):
        subscriber.run_once()
    subscriber.run()


def test_a_handler_may_close_its_own_subscriber(here: Setting) -> None:
    here.publish("a", "b")
    seen: list[bytes] = []

    def handler(message: Message) -> None:
        seen.append(message.payload)
        subscriber.close()

    subscriber = here.subscriber(handler, messages_per_transaction=1)
    subscriber.run()
    assert seen == [b"a"]
    assert here.saved() == "a"


def test_it_does_not_run_inside_a_transaction(here: Setting) -> None:
    subscriber = here.subscriber(lambda _: None)
    with here.transaction():
        with pytest.raises(MisusedTransaction):
            subscriber.run()
        with pytest.raises(MisusedTransaction):
            subscriber.run_once()


def test_what_cannot_work_is_refused_at_once(here: Setting) -> None:
    with pytest.raises(TopicNotFound):
        here.subscriber(lambda _: None, dead_letter_topic="nowhere")
    with pytest.raises(BadRequest, match="tries is a whole number from 1"):
        here.subscriber(lambda _: None, tries=0)
    with pytest.raises(BadRequest, match="for ever"):
        here.subscriber(lambda _: None, dead_letter_topic="default:t")
    with pytest.raises(TypeError):
        here.subscriber(lambda _: None, trys=1)


def test_members_that_run_side_by_side_handle_each_message_once(
    here: Setting,
) -> None:
    numbers = [str(number) for number in range(100)]
    handle = effects(here)
    stop = threading.Event()
    members = [here.subscriber(handle, messages_per_transaction=7) for _ in range(3)]
    threads = [threading.Thread(target=each.run, args=[stop]) for each in members]
    for thread in threads:
        thread.start()
    here.publish(*numbers)
    assert until(lambda: len(here.committed("done")) >= len(numbers), timeout_s=60)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert here.committed("done") == numbers
