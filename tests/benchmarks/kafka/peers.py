"""The four that are measured in turns: ours in process and over HTTP, Kafka twice."""

from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from tests.benchmarks.kafka.broker import KafkaBroker
from tests.benchmarks.kafka.client import KafkaClient
from txaware.bench.producers import both_ways
from txaware.bench.trial import Trial
from txaware.messaging import Messaging

FLUSHED, UNFLUSHED = "Kafka, flushed", "Kafka, not flushed"


@attrs.frozen
class Peers:
    """Our stores and Kafka's brokers, each by its name."""

    ours: dict[str, Messaging]
    kafka: dict[str, KafkaClient]


@contextmanager
def kafka_clients(trial: Trial, name: str) -> Iterator[dict[str, KafkaClient]]:
    """Starts two brokers, which end with the block; yields a client of each."""
    trial.tell("starting Kafka")
    place = trial.directory / f"{name}-kafka"
    with (
        KafkaBroker(place / "flushed", flushed=True) as flushed,
        KafkaBroker(place / "unflushed", flushed=False) as unflushed,
    ):
        yield {FLUSHED: KafkaClient(flushed), UNFLUSHED: KafkaClient(unflushed)}


@contextmanager
def peers(trial: Trial, name: str) -> Iterator[Peers]:
    """Starts a server and two brokers, which end with the block."""
    with both_ways(trial, name) as ours, kafka_clients(trial, name) as kafka:
        yield Peers(ours, kafka)
