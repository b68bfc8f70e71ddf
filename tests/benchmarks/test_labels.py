"""The price of a key: a publish and a poll of rows with one, beside plain ones."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import txaware
from txaware.messaging import Messaging
from txaware.requests import Payload

pytestmark = pytest.mark.benchmark

MESSAGES, ROUNDS = 1000, 60
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
    """
    took: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for call, each in zip((plain, keyed), took, strict=True):
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
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as owner:
        for topic in ("plain", "keyed"):
            owner.create_topic(topic)
        if where == "leveldb":
            measure(owner, way)
            return
        with owner.serve() as server, txaware.connect(server.url) as client:
            measure(client, way)


def measure(
    messaging: Messaging, way: Callable[[Messaging, str, list[Payload]], None]
) -> None:
    publish = ratio(
        lambda: way(messaging, "plain", PLAIN), lambda: way(messaging, "keyed", KEYED)
    )
    readers = {
        topic: messaging.consumer(topic, start="first") for topic in ("plain", "keyed")
    }
    poll = ratio(
        lambda: readers["plain"].poll(MESSAGES), lambda: readers["keyed"].poll(MESSAGES)
    )
    print(f"publish {publish:.2f}, poll {poll:.2f} of a plain one")
    assert publish <= MOST
    assert poll <= MOST
