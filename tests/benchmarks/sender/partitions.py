"""Figures e, f and g of the sender: many topics, many partitions, and one commit."""

import threading
from collections.abc import Callable
from functools import partial

from tests.benchmarks.sender.sending import PARTITIONS, PAYLOAD, TOPIC
from txaware.bench.measure import Figure, in_turns, medians_in_turns, took_ms
from txaware.bench.server import serving
from txaware.bench.trial import Trial
from txaware.messaging import Messaging, connect
from txaware.model.partitions import partition_of

TIMES = 100
TOPICS, MANY_PARTITIONS, A_POLL = 1000, 1000, 1000


def topics(trial: Trial) -> list[Figure]:
    """Figure e."""
    with (
        serving(trial.directory / "topics", trial.settings) as server,
        connect(server.url) as messaging,
    ):
        names = [f"t{number}" for number in range(TOPICS)]
        trial.tell(f"making {TOPICS:,} topics")
        for name in names:
            messaging.create_topic(name)
        found = in_turns(
            trial.rounds,
            one=partial(_threads, messaging, names[:1] * TOPICS),
            many=partial(_threads, messaging, names),
        )
    return [
        Figure(
            f"e) a sender to {TOPICS:,} topics",
            "threads",
            found["many"],
            found["one"],
            "to one topic",
            at_most=1,
        )
    ]


def _threads(messaging: Messaging, names: list[str]) -> float:
    """Returns how many threads this process has that has sent to each topic."""
    with messaging.sender() as sender:
        for name in names:
            sender.send(name, PAYLOAD)
        sender.flush()
        return float(threading.active_count())


def polls(trial: Trial) -> list[Figure]:
    """Figure f."""
    with trial.connect("polls") as messaging:
        messaging.create_topic(TOPIC, partitions=MANY_PARTITIONS)
        messaging.create_topic("alone")
        one = f"{TOPIC}.{MANY_PARTITIONS // 2}"
        for topic in (one, "alone"):
            messaging.publish(topic, [PAYLOAD] * A_POLL)
        found = medians_in_turns(
            trial.rounds,
            TIMES,
            alone=partial(took_ms, partial(messaging.poll, "alone", limit=A_POLL)),
            one=partial(took_ms, partial(messaging.poll, one, limit=A_POLL)),
        )
    return [
        Figure(
            f"f) a poll of one of {MANY_PARTITIONS:,} partitions",
            "ms",
            found["one"],
            found["alone"],
            "of a topic",
            at_most=1.1,
        )
    ]


def transactions(trial: Trial) -> list[Figure]:
    """Figure g."""
    with trial.connect("transactions") as messaging:
        messaging.create_topic(TOPIC, partitions=PARTITIONS)
        keys = _key_of_each(PARTITIONS)
        found = medians_in_turns(
            trial.rounds,
            TIMES,
            one=partial(took_ms, _transaction(messaging, keys[:1] * PARTITIONS)),
            all=partial(took_ms, _transaction(messaging, keys)),
        )
    return [
        Figure(
            f"g) a transaction that publishes to {PARTITIONS} partitions",
            "ms",
            found["all"],
            found["one"],
            f"{PARTITIONS} to one",
            at_most=1.5,
        )
    ]


def _key_of_each(partitions: int) -> list[bytes]:
    """Returns a key for each partition."""
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < partitions:
        key = b"%d" % number
        found.setdefault(partition_of(key, partitions), key)
        number += 1
    return [*found.values()]


def _transaction(messaging: Messaging, keys: list[bytes]) -> Callable[[], None]:
    """Returns a transaction that publishes a message with each key."""
    publisher = messaging.publisher(TOPIC)

    def run() -> None:
        with messaging.transaction():
            for key in keys:
                publisher.publish(PAYLOAD, key=key)

    return run
