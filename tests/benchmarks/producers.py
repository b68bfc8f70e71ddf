"""All figures of producers, in the order of their letters; most beside Kafka."""

from collections.abc import Collection, Iterator

from tests.benchmarks.kafka import committing, processing, receiving
from txaware.bench import producers
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured

FIGURES = [
    *producers.FIGURES,
    Measured(
        "c",
        "Transactions of one message of 100 bytes, by one producer with a "
        "transactional id and by eight. At least 10 times one that is flushed and 5 "
        "times one that is not, embedded; over HTTP 2 times one that is not.",
        committing.one_message,
    ),
    Measured(
        "d",
        "Messages of transactions with 1,000 of them, by one producer. At least as "
        "many as a Kafka that is not flushed, and half as many over HTTP.",
        committing.many_messages,
    ),
    Measured(
        "e",
        "messaging.process: 100,000 messages from a topic to another, 1,000 a "
        "transaction with the position of the group; the first batch does not count. "
        "At least as many as a Kafka that is not flushed, and half as many over HTTP.",
        processing.process,
    ),
    Measured(
        "f",
        "A producer begins a transaction, publishes and commits; another thread waits "
        "for committed messages. From before the begin until it has the message. At "
        "most half of a Kafka that is not flushed, p50 and p99.",
        receiving.received,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
