"""The floors of partitions: `python -m pytest -m benchmark -s`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import txaware
from tests.benchmarks.measure import Figure
from txaware.bench.measure import medians_in_turns, took_ms
from txaware.messaging import Messaging
from txaware.model.partitions import partition_of
from txaware.model.settings import Settings

pytestmark = pytest.mark.benchmark

ROUNDS, TIMES = 5, 100
PAYLOAD = b"x" * 100
SETTINGS = Settings(janitor_interval_s=0)


def keys_of_each(partitions: int) -> list[bytes]:
    """A key for each partition."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < partitions:
        key = b"%d" % number
        found.setdefault(partition_of(key, partitions), key)
        number += 1
    return [*found.values()]


def transaction(messaging: Messaging, keys: list[bytes]) -> Callable[[], None]:
    """A transaction that publishes a message with each key."""
    publisher = messaging.publisher("orders")

    def run() -> None:
        with messaging.transaction():
            for key in keys:
                publisher.publish(PAYLOAD, key=key)

    return run


def test_a_transaction_over_twelve_partitions(tmp_path: Path) -> None:
    with txaware.connect(f"leveldb:{tmp_path}", settings=SETTINGS) as messaging:
        messaging.create_topic("orders", partitions=12)
        keys = keys_of_each(12)
        found = medians_in_turns(
            ROUNDS,
            TIMES,
            one=partial(took_ms, transaction(messaging, keys[:1] * 12)),
            twelve=partial(took_ms, transaction(messaging, keys)),
        )
    assert Figure(
        "a transaction that publishes to 12 partitions",
        "ms",
        found["twelve"],
        found["one"],
        "12 to one",
    ).report(at_most=1.5)


def test_a_poll_of_one_of_a_thousand_partitions(tmp_path: Path) -> None:
    with txaware.connect(f"leveldb:{tmp_path}", settings=SETTINGS) as messaging:
        messaging.create_topic("orders", partitions=1000)
        messaging.create_topic("alone")
        for topic in ("orders.500", "alone"):
            messaging.publish(topic, [PAYLOAD] * 1000)
        found = medians_in_turns(
            ROUNDS,
            TIMES,
            alone=partial(took_ms, partial(messaging.poll, "alone", limit=1000)),
            one=partial(took_ms, partial(messaging.poll, "orders.500", limit=1000)),
        )
    assert Figure(
        "a poll of one of 1,000 partitions", "ms", found["one"], found["alone"], "topic"
    ).report(at_most=1.1)
