"""The price of a key: a publish and a poll of rows with one, beside plain ones.

LevelDB's memory holds all that is published here. Otherwise it sorts files in a thread
of its own, in whichever turn that comes, and by bytes: those of the keys are a tenth.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import txaware
from txaware.messaging import Messaging
from txaware.model.requests import Payload

pytestmark = pytest.mark.benchmark

MESSAGES, ROUNDS = 1000, 100
SETTINGS = txaware.Settings(write_buffer_bytes=64 << 20)
MOST = 1.2
PAYLOADS = [os.urandom(100) for _ in range(MESSAGES)]
PLAIN: list[Payload] = [*PAYLOADS]
KEYED: list[Payload] = [
    txaware.Outgoing(payload, b"user-%d" % number)
    for number, payload in enumerate(PAYLOADS)
]


def in_transaction(messaging: Messaging, topic: str, listed: list[Payload]) -> None:
    with messaging.transaction():
        messaging.publisher(topic).publish_all(listed)


def at_once(messaging: Messaging, topic: str, listed: list[Payload]) -> None:
    messaging.publish(topic, listed)


def ratio(plain: Callable[[], object], keyed: Callable[[], object]) -> float:
    """How much more of a processor the second takes; in turns, many times.

    Time of this process, client and server alike: what else runs here does not count.
    Whose turn it is is drawn, or the garbage collector might meet always the same.
    """
    took: list[list[float]] = [[], []]
    drawn = random.Random(1)
    for _ in range(ROUNDS):
        for call, each in drawn.sample([(plain, took[0]), (keyed, took[1])], 2):
            began_s = time.process_time()
            call()
            each.append(time.process_time() - began_s)
    one, other = map(statistics.median, took)
    print(f"\n{one * 1e3:.3f} us a message, with a key {other * 1e3:.3f}", end=" ")
    return other / one


@pytest.mark.parametrize("way", [at_once, in_transaction])
@pytest.mark.parametrize("where", ["leveldb", "http"])
def test_a_key_costs_at_most_a_fifth(
    tmp_path: Path, where: str, way: Callable[[Messaging, str, list[Payload]], None]
) -> None:
    with opened(tmp_path / "data", where) as messaging:
        for topic in ("plain", "keyed"):
            messaging.create_topic(topic)
        publish = ratio(
            lambda: way(messaging, "plain", PLAIN),
            lambda: way(messaging, "keyed", KEYED),
        )
    with opened(tmp_path / "data", where) as messaging:  # rows are in files now
        plain, keyed = (
            messaging.consumer(topic, start="first") for topic in ("plain", "keyed")
        )
        poll = ratio(lambda: plain.poll(MESSAGES), lambda: keyed.poll(MESSAGES))
    print(f"publish {publish:.2f}, poll {poll:.2f} of a plain one")
    assert publish <= MOST
    assert poll <= MOST


@contextmanager
def opened(directory: Path, where: str) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{directory}", settings=SETTINGS) as owner:
        if where == "leveldb":
            yield owner
            return
        with owner.serve() as server, txaware.connect(server.url) as client:
            yield client
