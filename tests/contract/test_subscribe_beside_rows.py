"""Loops whose database decides: position, tries and dead letters lie in it."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.deciders import Decider, connection_to, killed_behind_the_commit
from tests.support.messagings import committed
from txaware.consume import Subscriber
from txaware.consume.batches import MessageBatches
from txaware.errors import ProducerFenced
from txaware.messaging import Messaging

# Have a statement wait for a lock no longer than it has to, and take that lock.
NO_WAIT = {
    "sqlite": "PRAGMA busy_timeout = 10",
    "postgres": "SET lock_timeout = 10",
    "mysql": "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1",
}
LOCKED = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgres": "LOCK TABLE handled",
    "mysql": "LOCK TABLES handled WRITE",
}


@pytest.fixture
def messaging(decider_messaging: Messaging) -> Messaging:
    decider_messaging.create_topic("t")
    decider_messaging.create_topic("out")
    return decider_messaging


@pytest.fixture
def subscribed(decider: Decider, messaging: Messaging) -> Callable[..., Subscriber]:
    """Makes a loop that writes a row for each message, but for poison."""

    def handle(message: Any) -> None:
        decider.handle(message.payload)
        messaging.publisher("out").publish(message.payload)
        if message.payload == b"poison":
            raise ValueError("cannot handle it")

    def subscribe(handler: Callable[[Any], object] = handle, **options: Any) -> Any:
        return messaging.subscribe(
            "t",
            handler,
            **{"participants": [decider.participant], "group": "g"} | options,
        )

    return subscribe


def run_until_idle(subscriber: Any) -> list[str]:
    """Runs it until nothing is left; returns the errors on the way."""
    errors: list[str] = []
    while True:
        try:
            if not subscriber.run_once():
                return errors
        except ValueError as error:
            errors.append(str(error))


def test_messages_are_handled_with_their_rows_and_once_through_kills(
    decider: Decider,
    messaging: Messaging,
    subscribed: Callable[..., Subscriber],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messaging.publish("t", [b"1", b"2", b"3"])
    with killed_behind_the_commit(messaging, monkeypatch):
        assert subscribed(messages_per_transaction=2).run_once() == 2
    again = subscribed(messages_per_transaction=2)
    assert (again.run_once(), again.run_once()) == (1, 0)
    assert decider.rows() == ["1", "2", "3"]
    decider.participant.relay()
    assert committed(messaging, "out") == [b"1", b"2", b"3"]
    assert again.metrics().processed == 1


def test_a_loop_that_began_behind_the_last_message_misses_none_of_those_that_follow(
    decider: Decider, messaging: Messaging
) -> None:
    def loop(topic: str) -> Subscriber:  # a partition's loop shares it with nobody
        return messaging.subscribe(
            topic,
            lambda message: decider.handle(message.payload),
            group=topic,
            participants=[decider.participant],
            start="next",
        )

    messaging.publish("t", [b"before"])
    for topic in ("t", "t.0"):
        first = loop(topic)
        assert first.run_once() == 0
        first.close()
    messaging.publish("t", [b"while it was away"])
    for topic in ("t", "t.0"):
        assert run_until_idle(loop(topic)) == []
    assert decider.rows() == ["while it was away"] * 2


def test_a_message_that_fails_is_tried_alone_and_then_a_dead_letter(
    decider: Decider, messaging: Messaging, subscribed: Callable[..., Subscriber]
) -> None:
    messaging.create_topic("dead")
    messaging.publish("t", [b"1", b"poison", b"3"])
    subscriber = subscribed(tries=2, dead_letter_topic="dead")
    assert run_until_idle(subscriber) == ["cannot handle it"] * 2
    decider.participant.relay()
    assert decider.rows() == ["1", "3"]
    assert committed(messaging, "dead") == [b"poison"]
    [origin] = [json.loads(one) for one in committed(messaging, "dead-origins")]
    assert (origin["letter"], origin["tries"], origin["group"]) == (None, 2, "g")
    assert subscriber.metrics().dead_lettered == 1


def test_tries_outlive_their_process_in_the_database(
    decider: Decider,
    messaging: Messaging,
    subscribed: Callable[..., Subscriber],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        pass

    def kill(_: Any) -> None:
        monkeypatch.setattr(MessageBatches, "_failed", lambda *_: None)
        raise Killed

    messaging.publish("t", [b"poison", b"2"])
    for _ in range(3):  # the first finds out that it is among these, two are tries
        with pytest.raises(Killed):
            subscribed(kill, tries=2).run_once()
        monkeypatch.undo()
    assert len(decider.rows("SELECT topic FROM txaware_inbox")) == 1
    last = subscribed(tries=2)
    assert run_until_idle(last) == []
    assert (decider.rows(), last.metrics().skipped) == (["2"], 1)


def test_a_group_may_begin_by_a_seek(decider: Decider, messaging: Messaging) -> None:
    messaging.publish("t", [b"1", b"2"])
    inbox = decider.participant.consumer("t", group="new")
    with messaging.transaction(decider.participant):
        inbox.seek("next")
    messaging.publish("t", [b"3"])
    with messaging.transaction(decider.participant):
        assert [message.payload for message in inbox.poll()] == [b"3"]


def test_a_part_of_a_page_moves_the_position_that_far(
    decider: Decider, messaging: Messaging, subscribed: Callable[..., Subscriber]
) -> None:
    messaging.publish("t", [b"1", b"2", b"3"])
    subscriber = subscribed(alone=lambda message: message.payload == b"2")
    assert [subscriber.run_once() for _ in range(4)] == [1, 1, 1, 0]
    assert decider.rows() == ["1", "2", "3"]


def test_a_loop_runs_in_a_thread_and_without_a_group(
    decider: Decider, messaging: Messaging, subscribed: Callable[..., Subscriber]
) -> None:
    """Without a group its position ends with the process, as ever."""
    messaging.publish("t", [b"1", b"2"])
    subscriber = subscribed(group=None)
    assert (subscriber.run_once(), subscriber.run_once()) == (2, 0)
    assert decider.rows() == ["1", "2"]
    if decider.kind == "sqlalchemy sqlite":  # its pool keeps to one thread
        return
    threaded = subscribed(group="h", idle_wait_s=0.05)
    thread = threading.Thread(target=threaded.run)
    thread.start()
    messaging.publish("t", [b"3"])
    assert until(lambda: len(decider.rows()) == 5)
    threaded.close()
    thread.join()


def test_a_database_that_is_locked_is_no_message_s_fault(
    decider: Decider, messaging: Messaging, subscribed: Callable[..., Subscriber]
) -> None:
    subscriber = subscribed(tries=1)
    messaging.publish("t", [b"1"])
    assert subscriber.run_once() == 1
    database = decider.kind.rpartition(" ")[2]
    decider.execute(NO_WAIT[database])
    decider.commit()
    messaging.publish("t", [b"2"])
    other = connection_to(decider._place)
    other.execute(LOCKED[database])
    with pytest.raises(Exception, match=r"(?i)lock"):
        subscriber.run_once()
    other.rollback()
    other.close()
    assert run_until_idle(subscriber) == []
    assert (decider.rows(), subscriber.metrics().skipped) == (["1", "2"], 0)


def test_what_a_function_makes_of_messages_is_published_once(
    decider: Decider, messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(**options: Any) -> Any:
        return messaging.process(
            "t",
            "out",
            lambda message: message.payload + b"!",
            group="g",
            producer="p",
            participants=[decider.participant],
            **options,
        )

    messaging.publish("t", [b"1", b"2"])
    old = process(messages_per_transaction=1)
    with killed_behind_the_commit(messaging, monkeypatch):
        assert old.run_once() == 1
    new = process()
    with pytest.raises(ProducerFenced):
        old.run_once()
    assert (new.run_once(), new.run_once()) == (1, 0)
    decider.participant.relay()
    assert committed(messaging, "out") == [b"1!", b"2!"]
