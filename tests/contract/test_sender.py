"""The sender on every store: futures, order, full queues, missing topics, the end."""

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest

import txaware
from tests.support.concurrency import until
from tests.support.forks import printed_by_forking
from txaware import Messaging, Outgoing, Sent
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    PublisherClosed,
    QueueFull,
    RequestTooLarge,
    TopicNotFound,
)
from txaware.model.partitions import partition_of

PATIENCE_S = 60


def test_a_future_is_the_place_of_its_message(messaging: Messaging) -> None:
    with messaging.sender() as s:
        futures = [s.send("t", b"%d" % number) for number in range(5)]
    found = messaging.poll("t")
    assert [one.payload for one in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [future.result(0) for future in futures] == [
        Sent("t", 0, one.id) for one in found
    ]


def test_keys_headers_and_an_expiry_travel(messaging: Messaging) -> None:
    with messaging.sender() as s:
        s.send("t", b"a", key=b"ann", headers={"x": b"1"})
        s.send("t", Outgoing(b"b", key=b"bob"), headers={"y": b"2"})
        s.send("t", b"c", expire_after_s=3600)
        s.send("t", b"d", key=b"")
    found = [(one.payload, one.key, one.headers) for one in messaging.poll("t")]
    assert found == [
        (b"a", b"ann", {"x": b"1"}),
        (b"b", b"bob", {"y": b"2"}),
        (b"c", None, {}),
        (b"d", b"", {}),
    ]


def test_one_thread_sends_to_a_hundred_topics_in_order(messaging: Messaging) -> None:
    names = [f"t{number}" for number in range(100)]
    for name in names:
        messaging.create_topic(name)
    before = set(threading.enumerate())
    with messaging.sender() as s:
        s.send("t", b"first").result(PATIENCE_S)
        for number in range(10):
            for name in names:
                s.send(name, b"%d" % number)
        assert s.flush(PATIENCE_S)
        made = {one.name for one in set(threading.enumerate()) - before}
        assert [name for name in made if "sender" in name] == ["sender any topic"]
        assert s.waiting == 0
        assert s.metrics().sent_messages == 1001
        assert s.metrics().topics == 101
    for name in names:
        found = [one.payload for one in messaging.poll(name)]
        assert found == [b"%d" % number for number in range(10)]


def test_a_thousand_topics_have_one_thread() -> None:
    with txaware.connect("memory:") as messaging:
        names = [f"t{number}" for number in range(1000)]
        for name in names:
            messaging.create_topic(name)
        with messaging.sender() as s:
            s.send(names[0], b"first").result(PATIENCE_S)
            before = {*threading.enumerate()}
            for name in names:
                s.send(name, b"a")
            assert s.flush(PATIENCE_S)
            assert {*threading.enumerate()} <= before
            assert s.metrics().topics == 1000
            assert s.metrics().sent_messages == 1001


def test_on_done_is_called_in_order(messaging: Messaging) -> None:
    done: list[Any] = []
    with messaging.sender(linger_ms=0) as s:
        futures = [s.send("t", b"%d" % n, on_done=done.append) for n in range(200)]
    assert done == [future.result(0) for future in futures]
    assert [one.id for one in done] == sorted(one.id for one in done)


def test_a_flush_ends_once_all_were_told(messaging: Messaging) -> None:
    told: list[object] = []
    with messaging.sender(linger_ms=0) as s:
        for number in range(30):
            s.send("t", b"a", on_done=told.append)
            assert s.flush(PATIENCE_S)
            assert len(told) == number + 1


@pytest.mark.parametrize("timeout_s", ["x", -1, float("nan"), True])
def test_a_wrong_time_to_flush_is_refused(timeout_s: Any) -> None:
    with (
        txaware.connect("memory:") as messaging,
        messaging.sender() as s,
        messaging.async_publisher("t") as publisher,
    ):
        for one in (s, publisher):
            with pytest.raises(BadRequest, match="timeout_s is "):
                one.flush(timeout_s)


def test_an_on_done_that_raises_stops_nothing(
    messaging: Messaging, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: object) -> None:
        raise SystemExit

    with messaging.sender() as s:
        s.send("t", b"a", on_done=fails)
        s.send("t", b"b").result(PATIENCE_S)
    assert "on_done of a message to t failed" in caplog.text


async def _nobody_awaits(_: object) -> None: ...


@pytest.mark.parametrize("on_done", [3, "print", _nobody_awaits])
def test_what_is_no_function_is_refused_before_the_message_is_taken(
    messaging: Messaging, on_done: Any
) -> None:
    with messaging.sender() as s:
        with pytest.raises(BadRequest, match="on_done = "):
            s.send("t", b"a", on_done=on_done)
        assert s.waiting == 0
    assert messaging.poll("t") == []


def test_an_on_done_may_send_and_never_waits_for_itself(messaging: Messaging) -> None:
    told: list[BaseException] = []
    over = threading.Event()

    def sends(_: object) -> None:
        for call in (s.flush, s.close, never.result):
            try:
                call()
            except MisusedTransaction as error:
                told.append(error)
        s.send("t", b"b")
        over.set()

    with messaging.sender() as s:
        never = s.send("none", b"a")
        s.send("t", b"a", on_done=sends)
        assert over.wait(PATIENCE_S)
        messaging.create_topic("none")
    assert len(told) == 3
    assert [one.payload for one in messaging.poll("t")] == [b"a", b"b"]


def test_a_topic_may_come_later(messaging: Messaging) -> None:
    with messaging.sender() as s:
        future = s.send("later", b"a")
        assert s.send("t", b"b").result(PATIENCE_S).topic == "t"
        assert not future.done()
        messaging.create_topic("later")
        assert future.result(PATIENCE_S).topic == "later"
    assert [one.payload for one in messaging.poll("later")] == [b"a"]


def test_a_topic_made_anew_with_fewer_partitions_gets_all_keys(
    messaging: Messaging,
) -> None:
    keys = [b"%d" % number for number in range(20)]
    messaging.create_topic("orders", partitions=5)
    with messaging.sender() as s:
        for key in keys:
            s.send("orders", b"before", key=key)
        assert s.flush(PATIENCE_S)
        messaging.delete_topic("orders")
        messaging.create_topic("orders", partitions=2)
        for key in keys:
            s.send("orders", b"first", key=key)
        assert s.flush(PATIENCE_S)
        futures = [s.send("orders", b"then", key=key) for key in keys]
        assert s.flush(PATIENCE_S)
        parts = [future.result(0).partition for future in futures]
    assert parts == [partition_of(key, 2) for key in keys]
    for payload in (b"first", b"then"):
        found = [one for one in messaging.poll("orders") if one.payload == payload]
        assert sorted(one.key or b"" for one in found) == sorted(keys)


def test_a_topic_that_does_not_exist_holds_up_no_other(messaging: Messaging) -> None:
    with messaging.sender(queue_limit_bytes=20_000, when_full="raise") as s:
        s.send("none", b"a")
        until(lambda: s.metrics().failing_topics == 1)
        with suppress(QueueFull):
            while True:
                s.send("none", b"x" * 1000)
        futures = [s.send("t", b"%d" % number) for number in range(50)]
        assert [one.result(PATIENCE_S).topic for one in futures] == ["t"] * 50
        messaging.create_topic("none")  # else closing waits until they are given up


def test_a_topic_that_never_comes_is_not_found(messaging: Messaging) -> None:
    with messaging.sender(give_up_after_s=0.2) as s:
        future = s.send("never", b"a")
        error = future.exception(PATIENCE_S)
        assert isinstance(error, TopicNotFound)
        assert s.metrics().given_up_messages == 1
        assert s.metrics().topics == 0, "names that somebody made up pile up"


@pytest.mark.parametrize(
    "wrong",
    [
        {"payload": "text"},
        {"payload": None},
        {"key": "text"},
        {"key": b"x" * 2000},
        {"headers": {"a": "b"}},
        {"expire_after_s": -1},
        {"topic": "a b"},
        {"topic": None},
    ],
    ids=str,
)
def test_what_is_wrong_is_raised_at_send(messaging: Messaging, wrong: Any) -> None:
    said: Any = {"topic": "t", "payload": b"a", **wrong}
    with messaging.sender() as s:
        with pytest.raises(BadRequest):
            s.send(said.pop("topic"), said.pop("payload"), **said)
        assert s.waiting == 0


def test_a_message_above_the_limit_fails_at_send(messaging: Messaging) -> None:
    limit_bytes = messaging._parts.settings.message_limit_bytes
    with messaging.sender() as s, pytest.raises(RequestTooLarge):
        s.send("t", bytes(limit_bytes + 1))


def test_values_go_as_encode_makes_them(messaging: Messaging) -> None:
    with messaging.sender(encode=txaware.to_json) as s:
        s.send("t", {"order": 5}, key=b"ann")
        s.send("t", Outgoing([1, 2], key=b"bob"), headers={"a": b"b"})
        s.send("t", None)
    found = [(one.payload, one.key, one.headers) for one in messaging.poll("t")]
    assert found == [
        (b'{"order": 5}', b"ann", {}),
        (b"[1, 2]", b"bob", {"a": b"b"}),
        (b"null", None, {}),
    ]


def test_what_encode_raises_is_raised_at_send_and_stops_nothing(
    messaging: Messaging,
) -> None:
    def number(value: str) -> bytes:
        return b"%d" % int(value)

    with messaging.sender(encode=number, linger_ms=60_000) as s:
        s.send("t", "1", key=b"ann")
        with pytest.raises(ValueError, match="'two'"):
            s.send("t", "two", key=b"ann")
        assert s.waiting == 1
        s.send("t", "3", key=b"ann")
    assert [one.payload for one in messaging.poll("t")] == [b"1", b"3"]


def test_what_encode_makes_has_to_be_bytes(messaging: Messaging) -> None:
    wrong: Any = str
    with messaging.sender(encode=wrong) as s:
        with pytest.raises(BadRequest, match="encode returned '5', and a payload is"):
            s.send("t", 5)
        assert s.waiting == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"encode": "json"},
        {"in_flight": 0},
        {"in_flight": 6},
        {"in_flight": 1.5},
        {"linger_ms": -1},
        {"when_full": "drop"},
        {"queue_limit_bytes": 0},
        {"batch_limit_bytes": "many"},
        {"give_up_after_s": -1},
    ],
    ids=str,
)
def test_a_sender_of_nonsense_is_not_made(messaging: Messaging, wrong: Any) -> None:
    with pytest.raises(BadRequest):
        messaging.sender(**wrong)


def test_a_closed_sender_takes_nothing(messaging: Messaging) -> None:
    s = messaging.sender()
    s.close()
    s.close()
    with pytest.raises(PublisherClosed):
        s.send("t", b"a")
    assert s.flush(0)


def test_a_close_of_the_messaging_loses_nothing(messaging: Messaging) -> None:
    s = messaging.sender(linger_ms=60_000)
    future = s.send("t", b"a")
    messaging.close()
    assert future.result(0).topic == "t"


def test_a_full_queue_raises(messaging: Messaging) -> None:
    with messaging.sender(
        queue_limit_bytes=200, when_full="raise", linger_ms=60_000
    ) as s:
        s.send("none", b"x" * 100)
        with pytest.raises(QueueFull):
            s.send("none", b"x" * 100)
        assert s.metrics().dropped_messages == 1
        messaging.create_topic("none")


def test_a_full_queue_drops_the_oldest_of_the_topic(messaging: Messaging) -> None:
    with messaging.sender(
        queue_limit_bytes=400, when_full="drop_oldest", linger_ms=60_000
    ) as s:
        futures = [s.send("t", b"%d" % n * 50) for n in range(6)]
    errors = [future.exception(PATIENCE_S) for future in futures]
    lost = [isinstance(error, QueueFull) for error in errors]
    assert lost == sorted(lost, reverse=True)
    assert lost.count(True) > 0
    found = [one.payload for one in messaging.poll("t")]
    kept = [b"%d" % n * 50 for n in range(6)][lost.count(True) :]
    assert found == kept


def test_a_full_queue_is_waited_for(messaging: Messaging) -> None:
    with messaging.sender(queue_limit_bytes=2000) as s:
        futures = [s.send("t", b"x" * 100) for _ in range(200)]
    assert all(future.result(0) for future in futures)
    assert len(messaging.poll("t", limit=1000)) == 200


def test_the_library_of_python_waits_for_futures(messaging: Messaging) -> None:
    with messaging.sender(linger_ms=20) as s:
        futures = {s.send("t", b"%d" % n) for n in range(20)}
        done, others = concurrent.futures.wait(futures, timeout=PATIENCE_S)
        assert (done, others) == (futures, set())
        more = [s.send("t", b"%d" % n) for n in range(20)]
        completed: Any = concurrent.futures.as_completed
        assert set(completed(more, PATIENCE_S)) == set(more)
        seen: list[Any] = []
        late = s.send("t", b"late")
        late.add_done_callback(seen.append)
        late.result(PATIENCE_S)
        s.flush()
        late.add_done_callback(seen.append)
        s.send("t", b"last").result(PATIENCE_S)
        assert seen == [late, late]


def test_a_future_may_be_awaited(messaging: Messaging) -> None:
    async def send() -> list[Sent]:
        return await asyncio.gather(*(s.send("t", b"%d" % n) for n in range(20)))

    with messaging.sender() as s:
        sent = asyncio.run(send())
    assert [one.id for one in sent] == [one.id for one in messaging.poll("t")]


def test_a_message_that_is_taken_back_is_not_sent(messaging: Messaging) -> None:
    with messaging.sender(linger_ms=60_000) as s:
        futures = [s.send("t", b"%d" % n) for n in range(3)]
        assert futures[1].cancel()
    assert [one.payload for one in messaging.poll("t")] == [b"0", b"2"]
    with pytest.raises(concurrent.futures.CancelledError):
        futures[1].result()
    assert futures[2].result(0).id == messaging.poll("t")[1].id


def test_it_joins_no_transaction(messaging: Messaging) -> None:
    def send_and_fail() -> None:
        with messaging.transaction(), messaging.sender() as s:
            s.send("t", b"a").result(PATIENCE_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        send_and_fail()
    assert [one.payload for one in messaging.poll("t")] == [b"a"]


EXIT = """
import logging, txaware
from txaware.publish import background
background.EXIT_WAIT_S = 0.2
logging.basicConfig()
messaging = txaware.connect("memory:")
s = messaging.sender()
for number in range(3):
    s.send("none", b"%d" % number)
"""


def test_an_exit_without_a_close_says_how_many_were_lost() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0
    assert "3 messages to any topic were lost" in ended.stderr


FORK = """
import os, sys, txaware
messaging = txaware.connect("memory:")
messaging.create_topic("t")
s = messaging.sender(linger_ms=60_000)
waiting = s.send("t", b"a")
child = os.fork()
if child == 0:
    for call in (lambda: s.send("t", b"b"), waiting.result, s.flush):
        try:
            call()
        except txaware.errors.PublisherClosed as error:
            print("after the fork" in str(error), flush=True)
    s.close()
    sys.exit(0)
print(os.waitpid(child, 0)[1])
messaging.close()
"""


def test_a_forked_child_is_told_that_the_thread_stayed_behind() -> None:
    assert printed_by_forking(FORK) == ("True\nTrue\nTrue\n0\n", "")


def test_it_says_how_much_waits() -> None:
    with (
        txaware.connect("memory:") as messaging,
        messaging.sender(give_up_after_s=0.1) as s,
    ):
        s.send("none", b"a")
        assert repr(s) == "<Sender, 1 waiting>"
