"""Figure g of producers: a sender beside calls of a thousand messages each."""

import time
from collections.abc import Callable
from functools import partial

from txaware.bench.measure import Figure, in_turns
from txaware.bench.producers import both_ways
from txaware.bench.trial import Trial
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing

MESSAGES, A_CALL, PARTITIONS = 200_000, 1000, 12
LEAST_EMBEDDED = 250_000
PAYLOAD = b"x" * 100
KEYS = [b"%d" % number for number in range(1000)]


def sending(trial: Trial) -> list[Figure]:
    """Figure g."""
    figures: list[Figure] = []
    count = trial.count(MESSAGES)
    with both_ways(trial, "sending") as ways:
        for way, messaging in ways.items():
            messaging.create_topic("orders", partitions=PARTITIONS)
            found = in_turns(
                trial.rounds,
                sent=partial(_per_second, count, partial(_send, messaging, count)),
                called=partial(_per_second, count, partial(_publish, messaging, count)),
            )
            limits = {
                "embedded": ([float(LEAST_EMBEDDED)] * len(found["sent"]), "250,000"),
                "over HTTP": (found["called"], f"publish of {A_CALL:,} a call"),
            }
            limit, named = limits[way]
            figures.append(
                Figure(
                    f"g) sender to {PARTITIONS} partitions, {way}",
                    "messages/s",
                    found["sent"],
                    limit,
                    named,
                    at_least=1,
                )
            )
    return figures


def _per_second(count: int, work: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    work()
    return count / (time.perf_counter() - began_s)


def _send(messaging: Messaging, count: int) -> None:
    with messaging.sender() as sender:
        for number in range(count):
            sender.send("orders", PAYLOAD, key=KEYS[number % 1000])


def _publish(messaging: Messaging, count: int) -> None:
    messages = [Outgoing(PAYLOAD, key) for key in KEYS]
    for _ in range(count // A_CALL):
        messaging.publish("orders", messages)
