"""Kills producers and their server: each message is there once, and commits count."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import txaware
from tests.support.killed_server import ROOT, Server, check, end_what_is_open
from tests.support.producer_child import POINTS
from tests.support.python_process import PythonProcess
from txaware.consume.consumer import Consumer
from txaware.errors import TopicExists, Unavailable
from txaware.messaging import Messaging

CHILD = [sys.executable, "-m", "tests.support.producer_child"]
STARTS_S = 60
COPIES_S = 600


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [*CHILD, *(str(one) for one in arguments)]
    return PythonProcess(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read(messaging: Messaging, topic: str) -> list[bytes]:
    consumer, found = messaging.consumer(topic), []
    while page := consumer.poll(limit=5000):
        found += [message.payload for message in page]
    return found


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("point", POINTS)
def test_kill_9_in_each_step_of_a_commit_leaves_it_whole_or_absent(
    tmp_path: Path, point: str
) -> None:
    """Scenario 96: the coordinator dies with the process, and a commit stays one."""
    data = tmp_path / "data"
    with txaware.connect(f"leveldb:{data}") as messaging:
        for topic in ("a", "b"):
            messaging.create_topic(topic)
        messaging.publish("a", numbers(5))
    with start("dies", data, point) as child:
        assert child.wait(STARTS_S) == -signal.SIGKILL
    with txaware.connect(f"leveldb:{data}") as messaging:
        producer = messaging.producer("p")
        assert producer.epoch == 1
        done = POINTS[point]
        assert producer.commits == done
        assert read(messaging, "b") == numbers(done)
        consumer = messaging.consumer("a", group="g")
        assert consumer.poll(limit=1)[0].payload == b"%d" % done
        with producer.transaction():
            producer.publish("b", [b"next"])
        assert producer.commits == done + 1
        check(messaging)


@contextmanager
def copier(url: str, batch: int) -> Iterator[subprocess.Popen[str]]:
    child = start("copies", url, batch)
    try:
        yield child
    finally:
        end(child)


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait(STARTS_S)
    assert child.stdout is not None
    child.stdout.close()


def wait_for(messaging: Messaging, count: int, seen: list[bytes]) -> None:
    """Follows topic `b` as a committed reader, until it has so many messages."""
    until_s = time.monotonic() + COPIES_S
    consumer = messaging.consumer("b")
    if seen:
        skipped = 0
        while skipped < len(seen):
            skipped += len(consumer.poll(limit=min(5000, len(seen) - skipped)))
    while len(seen) < count and time.monotonic() < until_s:
        with suppress(Unavailable):
            seen += [message.payload for message in consumer.poll(limit=5000)]
        time.sleep(0.01)
    assert seen == numbers(len(seen)), "something is missing, twice or out of order"
    assert len(seen) >= count, "the copier does not go on"


def copy_through_kills(place: Path, *, count: int, batch: int, kills: int) -> None:
    """Copies over HTTP while copiers and the server are killed, also two copiers."""
    server = Server(place)
    seen: list[bytes] = []
    try:
        with txaware.connect(server.url) as messaging:
            for topic in ("a", "b"):
                with suppress(TopicExists):
                    messaging.create_topic(topic)
            for first in range(0, count, 5000):
                messaging.publish("a", numbers(count)[first : first + 5000])
            for kill in range(kills):
                with copier(server.url, batch):
                    wait_for(messaging, min(count, len(seen) + 1), seen)
                    time.sleep(0.3 * random.random())
                    if kill % 3 == 1:
                        server.kill()
                        server.start()
                        time.sleep(0.3 * random.random())
                    elif kill % 3 == 2:
                        with copier(server.url, batch) as newer:
                            assert newer.stdout is not None
                            newer.stdout.readline()
                            time.sleep(0.2 * random.random())
            with copier(server.url, batch):
                wait_for(messaging, count, seen)
            end_what_is_open(messaging)
            assert read(messaging, "b") == numbers(count)
            check(messaging)
    finally:
        server.kill()
    with txaware.connect(f"leveldb:{place}") as messaging:
        assert read(messaging, "b") == numbers(count)
        assert messaging.position("copier", "a") == messaging.bounds("a").last
        assert messaging.producer("copier").commits >= count / batch
        check(messaging)


def test_a_copier_through_kills_copies_each_message_once(tmp_path: Path) -> None:
    """Scenario 87, in small."""
    copy_through_kills(tmp_path / "data", count=3000, batch=20, kills=3)


@pytest.mark.soak
def test_a_copier_of_a_hundred_thousand_messages_survives_thirty_kills(
    tmp_path: Path,
) -> None:
    """Scenario 87."""
    copy_through_kills(tmp_path / "data", count=100_000, batch=750, kills=30)


def test_three_copiers_of_one_group_copy_each_message_of_their_topics_once(
    tmp_path: Path,
) -> None:
    """Scenario 88, with topics in place of partitions."""
    server = Server(tmp_path / "data")
    sources, count, batch = ("a0", "a1", "a2"), 400, 20
    expected = {
        name: [f"{name} {n}".encode() for n in range(count)] for name in sources
    }
    copiers: dict[str, subprocess.Popen[str]] = {}

    def begin(source: str) -> None:
        copiers[source] = start("copies", server.url, batch, source, f"copier-{source}")

    try:
        with txaware.connect(server.url) as messaging:
            for topic in (*sources, "b"):
                with suppress(TopicExists):
                    messaging.create_topic(topic)
            for source in sources:
                messaging.publish(source, expected[source])
                begin(source)
            reader, seen = messaging.consumer("b"), list[bytes]()
            for kill in range(3):
                follow(reader, seen, at_least=min(len(seen) + 1, 3 * count))
                time.sleep(0.2 * random.random())
                if kill == 1:
                    server.kill()
                    server.start()
                victim = random.choice(sources)
                end(copiers[victim])
                begin(victim)
            follow(reader, seen, at_least=3 * count)
            end_what_is_open(messaging)
            found = read(messaging, "b")
            for source in sources:
                own = [one for one in found if one.startswith(source.encode())]
                assert own == expected[source]
                last = messaging.bounds(source).last
                assert messaging.position("copier", source) == last
            assert sorted(seen) == sorted(found)
            check(messaging)
    finally:
        for child in copiers.values():
            end(child)
        server.kill()


def follow(reader: Consumer, seen: list[bytes], *, at_least: int) -> None:
    """Reads on as a committed reader, until there are so many messages."""
    until_s = time.monotonic() + COPIES_S
    while len(seen) < at_least:
        assert time.monotonic() < until_s, "the copiers do not go on"
        with suppress(Unavailable):
            seen += [message.payload for message in reader.poll(limit=5000)]
        time.sleep(0.01)
