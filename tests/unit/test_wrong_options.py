"""A number, a time and a flag are checked where they are said, by one rule."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

import txaware
from txaware import BadRequest, Messaging

NUMBERS: dict[str, Callable[[Messaging, Any], object]] = {
    "create_topic ttl_s": lambda m, v: m.create_topic("x", ttl_s=v),
    "create_topic partitions": lambda m, v: m.create_topic("x", partitions=v),
    "update_topic ttl_s": lambda m, v: m.update_topic("t", ttl_s=v),
    "update_topic partitions": lambda m, v: m.update_topic("t", partitions=v),
    "create_queue lease_s": lambda m, v: m.create_queue("x", lease_s=v),
    "create_queue ttl_s": lambda m, v: m.create_queue("x", ttl_s=v),
    "update_queue ttl_s": lambda m, v: m.update_queue("q", ttl_s=v),
    "transaction timeout_s": lambda m, v: m.transaction(timeout_s=v).start(),
    "publisher": lambda m, v: m.publisher("t", buffer_limit_bytes=v),
    "poll": lambda m, v: m.poll("t", limit=v),
    "push delay_s": lambda m, v: m.queue("q").push(b"x", delay_s=v),
    "push priority": lambda m, v: m.queue("q").push(b"x", priority=v),
    "member session_s": lambda m, v: m.member("g", topics=["t"], session_s=v),
    "member poll_interval_s": lambda m, v: m.member(
        "g", topics=["t"], poll_interval_s=v
    ),
    "broadcast": lambda m, v: m.broadcast("t", instance="i", lease_s=v),
    "async_publisher linger_ms": lambda m, v: m.async_publisher("t", linger_ms=v),
    "sender linger_ms": lambda m, v: m.sender(linger_ms=v),
}
# Below zero they do not wait, as what is left of a time may be.
WAITS: dict[str, Callable[[Messaging, Any], object]] = {
    "poll wait_s": lambda m, v: m.poll("t", wait_s=v),
    "pop wait_s": lambda m, v: m.queue("q").pop(wait_s=v),
}
FLAGS: dict[str, Callable[[Messaging, Any], object]] = {
    "create_topic compact": lambda m, v: m.create_topic("x", compact=v),
    "create_topic exist_ok": lambda m, v: m.create_topic("x", exist_ok=v),
    "transaction long": lambda m, v: m.transaction(long=v),
    "poll inclusive": lambda m, v: m.poll("t", inclusive=v),
    "consumer inclusive": lambda m, v: m.consumer("t", inclusive=v),
    "consumer of a group inclusive": lambda m, v: m.consumer(
        "t", group="g", inclusive=v
    ),
    "member autocommit": lambda m, v: m.member("g", topics=["t"], autocommit=v),
    "worker transaction": lambda m, v: m.queue("q").worker(print, transaction=v),
}


def of_a_loop(option: str) -> Callable[[Messaging, Any], object]:
    def subscribe(messaging: Messaging, value: Any) -> object:
        options: dict[str, Any] = {option: value}
        return messaging.subscribe("t", print, group="g", **options)

    return subscribe


def of_a_worker(option: str) -> Callable[[Messaging, Any], object]:
    def work(messaging: Messaging, value: Any) -> object:
        options: dict[str, Any] = {option: value}
        return messaging.queue("q").worker(print, **options)

    return work


PAUSES = "first_pause_s", "longest_pause_s", "idle_wait_s", "timeout_s"
LOOP = *PAUSES, "messages_per_transaction", "tries", "session_s", "concurrency"
NUMBERS |= {f"subscribe {name}": of_a_loop(name) for name in LOOP}
NUMBERS |= {f"worker {name}": of_a_worker(name) for name in (*PAUSES, "threads")}
FLAGS |= {
    f"subscribe {name}": of_a_loop(name)
    for name in ("inclusive", "tells_origins", "together")
}


def refused(call: Callable[[Messaging, Any], object], value: object) -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t", ttl_s=7)
        messaging.create_queue("q")
        with pytest.raises(BadRequest):
            call(messaging, value)
        assert (messaging.topics(), messaging.topic("t").ttl_s) == (["t"], 7)
        assert messaging.queues() == ["q"]


@pytest.mark.parametrize("value", ["7", b"7", nan, -1, True, [], {}], ids=repr)
@pytest.mark.parametrize("option", NUMBERS)
def test_what_is_no_such_number_is_bad_input(option: str, value: object) -> None:
    refused(NUMBERS[option], value)


@pytest.mark.parametrize("value", ["7", b"7", nan, True, [], {}], ids=repr)
@pytest.mark.parametrize("option", WAITS)
def test_what_is_no_time_to_wait_is_bad_input(option: str, value: object) -> None:
    refused(WAITS[option], value)


@pytest.mark.parametrize("value", ["yes", "", 1, 0, nan, inf, []], ids=repr)
@pytest.mark.parametrize("option", FLAGS)
def test_what_is_neither_true_nor_false_is_bad_input(
    option: str, value: object
) -> None:
    refused(FLAGS[option], value)
