"""Figure e of producers: messages taken from a topic to another, exactly once."""

import time
from collections.abc import Callable
from functools import partial

from tests.benchmarks.kafka.peers import UNFLUSHED, peers
from txaware.bench.measure import Figure, in_turns, off_the_main_thread
from txaware.bench.trial import Trial, batches, payloads
from txaware.messaging import Messaging
from txaware.model.messages import Message

MESSAGES, BATCH, PIECE = 100_000, 1000, 10_000


def bill(payload: bytes) -> bytes:
    """Transforms a payload, as little as can be."""
    return b"to " + payload


def process(trial: Trial) -> list[Figure]:
    """Figure e."""
    count = trial.count(MESSAGES)
    some = payloads(PIECE)
    with peers(trial, "process") as here:
        measures: dict[str, Callable[[], float]] = {}
        for kind, client in here.kafka.items():
            client.load("t", (some * (count // PIECE + 1))[:count])
            make = partial(client.processes, "t", "bills", bill, batch=BATCH)
            measures[kind] = partial(_per_second, make, count)
        for way, messaging in here.ours.items():
            messaging.create_topic("bills")
            for numbers in batches(count, PIECE):
                messaging.publish("t", some[: len(numbers)])
            measures[way] = partial(_per_second, Loops(messaging).next, count)
        found = in_turns(trial.rounds, **measures)
        return [
            Figure(
                f"e) consume, transform, produce, {BATCH:,} a transaction, {way}",
                "messages/s",
                found[way],
                found[kind],
                kind,
                at_least=floor if kind == UNFLUSHED else None,
            )
            for way, floor in {"embedded": 1.0, "over HTTP": 0.5}.items()
            for kind in here.kafka
        ]


class Loops:
    """Makes the loops of one store, each with a group of its own."""

    def __init__(self, messaging: Messaging) -> None:
        self._messaging = messaging
        self._made = 0

    def next(self) -> Callable[[], int]:
        """Returns the function that takes a batch from topic to topic."""
        self._made += 1
        loop = self._messaging.process(
            "t",
            "bills",
            _billed,
            group=f"billing-{self._made}",
            producer=f"billing-{self._made}",
            start="first",
            messages_per_transaction=BATCH,
        )
        return loop.run_once


def _billed(message: Message) -> bytes:
    return bill(message.payload)


def _per_second(make: Callable[[], Callable[[], int]], count: int) -> float:
    """Returns how many messages a new loop takes in a second, after its first batch."""

    def run() -> float:
        one = make()
        first = done = one()
        began_s = time.perf_counter()
        while done < count:
            done += one()
        return (done - first) / (time.perf_counter() - began_s)

    return off_the_main_thread(run)
