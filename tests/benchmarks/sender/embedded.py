"""Figure c of the sender: embedded, and through a server beside calls of a thousand."""

from collections.abc import Callable

from tests.benchmarks.sender.sending import (
    KEYS,
    MESSAGES,
    PARTITIONS,
    PAYLOAD,
    TOPIC,
    SentByWay,
    Way,
    beside,
    sender_to,
    sent_in_turns,
)
from txaware.bench.measure import Figure
from txaware.bench.producers import both_ways
from txaware.bench.trial import Trial
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing

A_CALL, LEAST_EMBEDDED = 1000, 250_000


def embedded(trial: Trial) -> list[Figure]:
    """Figure c."""
    found: dict[str, dict[str, SentByWay]] = {}
    with both_ways(trial, "sending") as ways:
        for way, messaging in ways.items():
            measures = {"sent": Way(sender_to(messaging))}
            measures["called"] = Way(_calls(messaging))
            found[way] = sent_in_turns(trial.rounds, trial.count(MESSAGES), measures)
    here, there = found["embedded"], found["over HTTP"]
    [rates, _] = beside(
        f"c) sender to {PARTITIONS} partitions through a server",
        there["sent"],
        there["called"],
        f"publish of {A_CALL:,} a call",
        at_least=1,
    )
    return [
        Figure(
            f"c) sender to {PARTITIONS} partitions, embedded",
            "messages/s",
            here["sent"].rates,
            [float(LEAST_EMBEDDED)] * trial.rounds,
            "floor",
            at_least=1,
        ),
        rates,
    ]


def _calls(messaging: Messaging) -> Callable[[int], None]:
    messages = [Outgoing(PAYLOAD, key) for key in KEYS]

    def publish(count: int) -> None:
        for _ in range(count // A_CALL):
            messaging.publish(TOPIC, messages)

    return publish
