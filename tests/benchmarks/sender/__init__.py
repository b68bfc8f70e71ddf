"""All floors of the sender and of partitions, in the order of their letters."""

from collections.abc import Collection, Iterator

from tests.benchmarks.sender.beside_kafka import beside_kafka
from tests.benchmarks.sender.compressed import compressed
from tests.benchmarks.sender.embedded import embedded
from tests.benchmarks.sender.one_partition import one_partition
from tests.benchmarks.sender.partitions import polls, topics, transactions
from tests.benchmarks.sender.paused import paused
from tests.benchmarks.sender.published_before import beside_before
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured

FIGURES = [
    Measured(
        "a",
        "200,000 messages of 100 bytes with a key, sent one by one to 12 partitions of "
        "a server. At least 3 times as many a second as by the async_publisher of the "
        "version before the sender, to one topic of its own server; git has its code.",
        beside_before,
    ),
    Measured(
        "b",
        "The same sender, and one of an embedded store, beside Kafka's producer with "
        "acks=all, which is pipelined, too. At least as many messages as a Kafka that "
        "is not flushed.",
        beside_kafka,
    ),
    Measured(
        "c",
        "The same sender, embedded: at least 250,000 messages a second. Through a "
        "server at least as many as by messaging.publish of 1,000 a call, in one "
        "thread.",
        embedded,
    ),
    Measured(
        "d",
        "The memory that a sender takes whose server is paused, once its queue is "
        "full: in a process of its own, above what it had before. At most "
        "queue_limit_bytes and 32 MiB.",
        paused,
    ),
    Measured(
        "e",
        "The threads of a process that sends to 1,000 topics beside those of one that "
        "sends to one. Not more.",
        topics,
    ),
    Measured(
        "f",
        "A poll of 1,000 messages from one of 1,000 partitions beside one from a "
        "topic, p50. At most 1.1 times.",
        polls,
    ),
    Measured(
        "g",
        "A transaction that publishes 12 messages to 12 partitions beside one that "
        "publishes them to one, p50. At most 1.5 times.",
        transactions,
    ),
    Measured(
        "h",
        "200,000 messages of JSON with a key, sent one by one to 12 partitions of an "
        "embedded store, compressed and not. At most 0.3 of the bytes on disk, and at "
        "least 0.7 of the messages a second.",
        compressed,
    ),
    Measured(
        "i",
        "The processor of a publish of one message, of a publish and of a poll of "
        "1,000, in a topic of one partition, beside the version before partitions; git "
        "has its code. At most 1.1 times.",
        one_partition,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
