"""Figure h of producers: a sender beside the producer of Kafka, which it is like."""

from collections.abc import Callable
from functools import partial

from tests.benchmarks.kafka.peers import FLUSHED, UNFLUSHED, peers
from tests.benchmarks.sending import MESSAGES, PARTITIONS, messages_per_second, send
from txaware.bench.measure import Figure, in_turns
from txaware.bench.trial import Trial

TOPIC = "orders"


def sent(trial: Trial) -> list[Figure]:
    """Figure h."""
    count = trial.count(MESSAGES)
    with peers(trial, "sent") as here:
        measures: dict[str, Callable[[], float]] = {}
        for kind, client in here.kafka.items():
            produce = client.producing(TOPIC, partitions=PARTITIONS)
            measures[kind] = partial(messages_per_second, count, produce)
        for way, messaging in here.ours.items():
            messaging.create_topic(TOPIC, partitions=PARTITIONS)
            ours = partial(send, messaging, TOPIC)
            measures[way] = partial(messages_per_second, count, ours)
        found = in_turns(trial.rounds, **measures)
    return [
        Figure(
            f"h) sender to {PARTITIONS} partitions, {way}",
            "messages/s",
            found[way],
            found[kind],
            kind,
            at_least=1 if kind == UNFLUSHED else None,
        )
        for way in here.ours
        for kind in (FLUSHED, UNFLUSHED)
    ]
