"""Processors: each message of a topic is transformed and published once."""

import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.support.consume_setting import run_in_thread
from tests.support.messagings import committed
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ProducerFenced,
    TopicNotFound,
)
from txaware.messaging import Messaging
from txaware.messaging.processor import Processor
from txaware.model.messages import Message, Outgoing

UPPER: dict[str, Any] = {"group": "g", "producer": "p", "first_pause_s": 0.01}


def upper(message: Message) -> bytes:
    return message.payload.upper()


async def awaited(message: Message) -> bytes:
    return message.payload


def until_idle(processor: Processor) -> None:
    while processor.run_once():
        pass


@pytest.fixture
def messages(messaging: Messaging) -> list[bytes]:
    """A topic `t` with messages, and one `out` without."""
    messaging.create_topic("out")
    texts = [b"%c%d" % (97 + number % 26, number) for number in range(25)]
    messaging.publish("t", texts)
    return texts


def test_it_publishes_what_the_function_answers(messaging: Messaging) -> None:
    messaging.create_topic("out")
    messaging.publish("t", [b"one", b"none", b"outgoing", b"two", b"no"])
    answers: dict[bytes, Any] = {
        b"one": b"1",
        b"none": None,
        b"outgoing": Outgoing(b"2"),
        b"two": [b"3", Outgoing(b"4")],
        b"no": [],
    }
    processor = messaging.process("t", "out", lambda m: answers[m.payload], **UPPER)
    until_idle(processor)
    assert committed(messaging, "out") == [b"1", b"2", b"3", b"4"]
    assert messaging.position("g", "t") == messaging.bounds("t").last
    assert processor.metrics().processed == 5
    processor.close()


def test_each_batch_is_one_transaction(
    messaging: Messaging, messages: list[bytes]
) -> None:
    processor = messaging.process(
        "t", "out", upper, messages_per_transaction=10, **UPPER
    )
    assert [processor.run_once() for _ in range(4)] == [10, 10, 5, 0]
    # A look that finds nothing commits, too.
    assert processor.producer.commits == 4
    assert committed(messaging, "out") == [text.upper() for text in messages]


def test_it_goes_on_where_the_last_one_committed(
    messaging: Messaging, messages: list[bytes]
) -> None:
    """Scenario 87 without its kills, in every store."""
    for _ in range(3):
        processor = messaging.process(
            "t", "out", upper, messages_per_transaction=10, **UPPER
        )
        processor.run_once()
        processor.close()
    assert committed(messaging, "out") == [text.upper() for text in messages]


def test_a_newer_one_fences_the_older_in_its_batch(
    messaging: Messaging, messages: list[bytes]
) -> None:
    newer: list[Processor] = []

    def slow(message: Message) -> bytes:
        if not newer:
            newer.append(messaging.process("t", "out", upper, **UPPER))
            run_in_thread(lambda: until_idle(newer[0]))
        return b"old " + message.payload

    older = messaging.process("t", "out", slow, **UPPER)
    with pytest.raises(ProducerFenced):
        older.run()
    assert committed(messaging, "out") == [text.upper() for text in messages]
    with pytest.raises(ProducerFenced):
        older.run()


def test_a_function_that_fails_once_publishes_nothing_twice(
    messaging: Messaging, messages: list[bytes]
) -> None:
    failures = [ValueError("once")]
    stop = threading.Event()

    def function(message: Message) -> bytes | None:
        if message.payload == messages[7] and failures:
            raise failures.pop()
        if message.payload == messages[-1]:
            stop.set()
        return upper(message)

    messaging.process("t", "out", function, **UPPER).run(stop)
    assert committed(messaging, "out") == [text.upper() for text in messages]


def test_a_message_that_never_works_is_dead_lettered_with_the_batch(
    messaging: Messaging, messages: list[bytes]
) -> None:
    messaging.create_topic("dead")

    def function(message: Message) -> Any:
        return 7 if message.payload == messages[3] else upper(message)

    processor = messaging.process(
        "t", "out", function, tries=2, dead_letter_topic="dead", **UPPER
    )
    for _ in range(2):
        with pytest.raises(BadRequest, match="the function answers bytes"):
            until_idle(processor)
    until_idle(processor)
    assert committed(messaging, "dead") == [messages[3]]
    good = [text.upper() for text in messages if text != messages[3]]
    assert committed(messaging, "out") == good


def test_a_wrong_option_fences_nobody(messaging: Messaging) -> None:
    messaging.create_topic("out")
    running = messaging.process("t", "out", upper, **UPPER)
    with pytest.raises(BadRequest):
        messaging.process("t", "out", upper, timeout_s=0, **UPPER)
    with pytest.raises(BadRequest):
        messaging.process("t", "out", upper, group="a b", producer="p")
    with pytest.raises(BadRequest, match="for ever"):
        messaging.process("t", "default:t", upper, **UPPER)
    with pytest.raises(BadRequest, match="has a group"):
        messaging.process("t", "out", upper, **UPPER | {"group": None})
    with pytest.raises(BadRequest, match="None is no transactional id"):
        messaging.process("t", "out", upper, **UPPER | {"producer": None})
    with pytest.raises(BadRequest, match="no function"):
        messaging.process("t", "out", b"upper", **UPPER)  # type: ignore[call-overload]
    with pytest.raises(BadRequest, match="a coroutine"):
        messaging.process("t", "out", awaited, **UPPER)  # type: ignore[arg-type]
    for topics in (("nowhere", "out"), ("t", "nowhere")):
        with pytest.raises(TopicNotFound):
            messaging.process(*topics, upper, **UPPER)
    assert running.run_once() == 0


def test_messages_wait_for_a_target_that_was_deleted(messaging: Messaging) -> None:
    for topic in ("out", "dead"):
        messaging.create_topic(topic)
    messaging.publish("t", [b"a", b"bad", b"b"])

    def function(message: Message) -> bytes:
        if message.payload == b"bad":
            messaging.publisher("elsewhere").publish(b"lost")
        return upper(message)

    patient = {**UPPER, "tries": 1, "dead_letter_topic": "dead"}
    processor = messaging.process("t", "out", function, **patient)
    messaging.delete_topic("out")
    for _ in range(3):
        with pytest.raises(TopicNotFound, match="out"):
            processor.run_once()
    messaging.create_topic("out")
    for _ in range(2):  # another topic that is missing is the message's fault
        with suppress(TopicNotFound):
            until_idle(processor)
    assert committed(messaging, "out") == [b"A", b"B"]
    assert committed(messaging, "dead") == [b"bad"]


def test_close_ends_a_run_and_the_producer(messaging: Messaging) -> None:
    messaging.create_topic("out")
    processor = messaging.process("t", "out", upper, idle_wait_s=0.05, **UPPER)
    thread = threading.Thread(target=processor.run)
    thread.start()
    messaging.publish("t", [b"a"])
    until_s = time.monotonic() + 20
    while not committed(messaging, "out") and time.monotonic() < until_s:
        time.sleep(0.01)
    processor.close()
    thread.join(20)
    assert not thread.is_alive()
    assert committed(messaging, "out") == [b"A"]
    with pytest.raises(MisusedTransaction):
        processor.run_once()


def test_it_reads_only_what_is_committed(messaging: Messaging) -> None:
    messaging.create_topic("out")
    writer = messaging.producer("writer")
    writer.begin()
    writer.publish("t", [b"undone"])
    writer.abort()
    writer.begin()
    writer.publish("t", [b"done"])
    processor = messaging.process("t", "out", upper, **UPPER)
    until_idle(processor)
    writer.commit()
    until_idle(processor)
    assert committed(messaging, "out") == [b"DONE"]
