"""`txaware status`: everything at a glance, and what needs attention."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import run, run_json, start
from tests.support.doubles import Clock
from txaware import Messaging
from txaware.cli.show import time_text
from txaware.model.reports import OutboxReport


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["embedded", "http"])
def messaging(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Messaging]:
    with txaware.connect("memory:", clock_ms=clock) as own:
        if request.param == "embedded":
            yield own
            return
        with own.serve() as server, txaware.connect(server.url, clock_ms=clock) as far:
            yield far


def attention(messaging: Messaging) -> list[str]:
    [found] = run_json("status", obj=messaging)
    return [f"{one['what']} {one['name']} {one['says']}" for one in found["attention"]]


def test_nothing_needs_attention_where_all_is_well(messaging: Messaging) -> None:
    messaging.create_topic("orders")
    messaging.create_topic("parts", partitions=2)
    messaging.create_queue("mail")
    messaging.queue("mail").push(b"a")
    out = run("status", obj=messaging).stdout
    assert "queues        1: 1 wait, 0 in work, 0 dead letters" in out
    assert "topics        2\n" in out
    assert out.endswith("\nnothing needs attention\n")


def test_the_time_of_a_look_is_that_of_the_ages_in_it(
    messaging: Messaging, clock: Clock
) -> None:
    [found] = run_json("status", obj=messaging)
    assert found["time"] == time_text(clock())
    first = run("status", obj=messaging).stdout.splitlines()[0]
    assert first.endswith(f" at {time_text(clock())}")


def test_each_queue_with_dead_letters_is_named(messaging: Messaging) -> None:
    messaging.create_queue("mail", max_deliveries=1)
    messaging.create_queue("ns:other", max_deliveries=1)
    messaging.create_queue("fine", max_deliveries=1)
    for name in ("mail", "ns:other"):
        queue = messaging.queue(name)
        queue.push(b"a")
        job = queue.pop()
        assert job is not None
        job.rollback(error="it is broken")
        assert queue.pop() is None
    messaging.create_topic("ns:any")
    [found] = run_json("status", obj=messaging)
    assert found["dead_letters"] == [
        {"queue": "mail", "dead_letters": 1, "dead_letter_queue": "mail-dead"},
        {"queue": "ns:other", "dead_letters": 1, "dead_letter_queue": "ns:other-dead"},
    ]
    out = run("status", obj=messaging).stdout
    assert "queue mail has 1 dead letter: txaware queue peek mail-dead says why" in out
    messaging.queue("mail").redrive()
    assert attention(messaging) == ["queue ns:other has 1 dead letter"]


def test_what_waits_too_long_is_told(messaging: Messaging, clock: Clock) -> None:
    for topic in ("orders", "parts"):
        messaging.create_topic(topic, partitions=2 if topic == "parts" else 1)
    messaging.create_queue("late")
    messaging.create_queue("paused")
    messaging.queue("paused").pause()
    messaging.queue("late").push(b"a")
    messaging.queue("late").push(b"later", delay_s=10_000)
    messaging.publish("orders", [b"a"])
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll()
    messaging.publish("orders", [b"b"])
    tx = messaging.coordinator.start_long()
    messaging.publish("parts", [b"open"], transaction=tx)
    clock.advance_s(1000)
    assert attention(messaging) == [
        "topic parts keeps its readers waiting for a transaction",
        "queue late has jobs that wait for 16m 40s",
        "queue paused is paused",
        "group billing is 16m 40s late in orders",
    ]
    assert "1 open, the oldest for 16m 40s" in run("status", obj=messaging).stdout


def test_an_outbox_that_is_stuck_is_told(messaging: Messaging, clock: Clock) -> None:
    report = OutboxReport("one", "shop.db", 3, 2, clock())
    messaging.table(OutboxReport.TABLE).put(report.key, report.to_bytes())
    assert attention(messaging) == ["outbox shop.db has 2 rows set aside"]
    clock.advance_s(301)
    assert attention(messaging)[1:] == ["outbox shop.db was looked at last 5m 1s ago"]
    out = run("status", obj=messaging).stdout
    assert "outboxes      1: 3 wait, 2 set aside" in out


def test_queues_of_a_namespace_without_a_topic_are_asked_for(
    messaging: Messaging,
) -> None:
    messaging.create_queue("ns:mail")
    assert "queues        0:" in run("status", obj=messaging).stdout
    out = run("status", "--namespace", "ns", obj=messaging).stdout
    assert "queues        1:" in out


def test_watch_goes_on_until_it_is_told_to_stop(tmp_path: Path) -> None:
    url = f"leveldb:{tmp_path}/data"
    run("--url", url, "topic", "create", "orders")
    command = ("status", "--watch", "--every", "0.05s", "--json", "--url", url)
    with start(*command) as process:
        try:
            assert process.stdout is not None
            looks = [json.loads(process.stdout.readline()) for _ in range(3)]
            assert [look["topics"] for look in looks] == [1, 1, 1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
