"""Figure b of the sender: beside the producer of Kafka, which it is like."""

from tests.benchmarks.kafka.peers import FLUSHED, UNFLUSHED, kafka_clients
from tests.benchmarks.sender.sending import (
    KEYS,
    MESSAGES,
    PARTITIONS,
    PAYLOAD,
    TOPIC,
    Way,
    beside,
    sender_to,
    sent_in_turns,
)
from txaware.bench.measure import Figure
from txaware.bench.server import serving
from txaware.bench.trial import Trial
from txaware.messaging import connect


def beside_kafka(trial: Trial) -> list[Figure]:
    """Figure b."""
    with (
        serving(trial.directory / "beside-kafka-served", trial.settings) as server,
        connect(server.url) as remote,
        trial.connect("beside-kafka") as embedded,
        kafka_clients(trial, "sent") as kafka,
    ):
        ours = {
            "embedded": Way(sender_to(embedded)),
            "through a server": Way(sender_to(remote), server.cpu_s),
        }
        theirs = {
            kind: Way(
                client.producing(TOPIC, PAYLOAD, KEYS, partitions=PARTITIONS),
                client.broker_cpu_s,
            )
            for kind, client in kafka.items()
        }
        found = sent_in_turns(trial.rounds, trial.count(MESSAGES), {**ours, **theirs})
    return [
        figure
        for way in ours
        for kind in (FLUSHED, UNFLUSHED)
        for figure in beside(
            f"b) sender to {PARTITIONS} partitions, {way}",
            found[way],
            found[kind],
            kind,
            at_least=1 if kind == UNFLUSHED else None,
        )
    ]
