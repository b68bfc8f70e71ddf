"""Figures c and d of producers: transactions of one message, and of a thousand."""

from collections.abc import Callable
from functools import partial

from tests.benchmarks.kafka.peers import FLUSHED, UNFLUSHED, Peers, peers
from txaware.bench.measure import (
    Figure,
    fdatasyncs_per_second,
    in_turns,
    per_second_of_threads,
)
from txaware.bench.trial import Trial, payloads
from txaware.messaging import Messaging

MANY, PRODUCERS = 1000, 8


def transactions(
    messaging: Messaging, name: str, messages: list[bytes]
) -> Callable[[], None]:
    """Returns a function that publishes these messages in one transaction."""
    producer = messaging.producer(name)

    def run() -> None:
        with producer.transaction():
            producer.publish("t", messages)

    return run


def _measured(
    trial: Trial, here: Peers, messages: list[bytes], producers: int
) -> dict[str, list[float]]:
    """Measures how many transactions all producers of each peer commit in a second."""
    works: dict[str, list[Callable[[], None]]] = {
        kind: [client.transactions("t", messages) for _ in range(producers)]
        for kind, client in here.kafka.items()
    }
    for way, messaging in here.ours.items():
        works[way] = [
            transactions(messaging, f"loader-{number}", messages)
            for number in range(producers)
        ]

    def measure(of: list[Callable[[], None]]) -> float:
        return per_second_of_threads(producers, of.__getitem__, for_s=trial.for_s)

    return in_turns(
        trial.rounds,
        **{name: partial(measure, of) for name, of in works.items()},
        disk=lambda: fdatasyncs_per_second(trial.directory, for_s=trial.for_s),
    )


def one_message(trial: Trial) -> list[Figure]:
    """Figure c."""
    figures: list[Figure] = []
    with peers(trial, "one") as here:
        for producers in (1, PRODUCERS):
            found = _measured(trial, here, payloads(1), producers)
            several = f"{producers} producers" if producers > 1 else "one producer"
            floors = {("embedded", UNFLUSHED): 5.0, ("over HTTP", UNFLUSHED): 2.0}
            floors["embedded", FLUSHED] = 10.0
            figures += [
                Figure(
                    f"c) 1 message a transaction, {several}, {way}",
                    "tx/s",
                    found[way],
                    found[kind],
                    kind,
                    at_least=floors.get((way, kind)) if producers == 1 else None,
                )
                for way in here.ours
                for kind in here.kafka
            ]
            figures.append(
                Figure(
                    f"c) 1 message a transaction, {several}, beside the disk",
                    "tx/s",
                    found["embedded"],
                    found["disk"],
                    "fdatasync/s",
                )
            )
    return figures


def many_messages(trial: Trial) -> list[Figure]:
    """Figure d."""
    with peers(trial, "many") as here:
        found = _measured(trial, here, payloads(MANY), 1)
        return [
            Figure(
                f"d) {MANY:,} messages a transaction, {way}",
                "messages/s",
                [MANY * each for each in found[way]],
                [MANY * each for each in found[kind]],
                kind,
                at_least=floor if kind == UNFLUSHED else None,
            )
            for way, floor in {"embedded": 1.0, "over HTTP": 0.5}.items()
            for kind in here.kafka
        ]
