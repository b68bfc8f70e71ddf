"""Figures of producers: what a publish that is stored once costs, and many of them."""

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from txaware.bench.measure import (
    Figure,
    in_turns,
    medians_in_turns,
    per_second_of_threads,
)
from txaware.bench.server import serving
from txaware.bench.trial import Measured, Trial, measured, payloads
from txaware.messaging import Messaging, connect

BATCHES = (1, 100)
# The disk is as fast for both only for moments.
TURNS = 10
PRODUCERS, OPENERS = 10_000, 16
MOST_OPENING_S = 1.0


@contextmanager
def both_ways(trial: Trial, name: str) -> Iterator[dict[str, Messaging]]:
    """Yields an embedded store and one behind a server, each with a topic "t"."""
    with (
        serving(trial.directory / f"{name}-http", trial.settings) as server,
        trial.connect(name) as embedded,
        connect(server.url) as remote,
    ):
        ways = {"embedded": embedded, "over HTTP": remote}
        for messaging in ways.values():
            messaging.create_topic("t")
        yield ways


def idempotent(trial: Trial) -> list[Figure]:
    """Figure a."""
    figures: list[Figure] = []
    with both_ways(trial, "idempotent") as ways:
        for way, messaging in ways.items():
            producer = messaging.producer()
            for count in BATCHES:
                some = payloads(count)
                plain = partial(messaging.publish, "t", some)
                once = partial(producer.publish, "t", some)
                found = medians_in_turns(
                    trial.rounds,
                    TURNS,
                    plain=partial(_per_second, trial, plain),
                    once=partial(_per_second, trial, once),
                )
                figures.append(
                    Figure(
                        f"a) idempotent publish of {count}, {way}",
                        "calls/s",
                        found["once"],
                        found["plain"],
                        "plain publish",
                        at_least=0.85,
                    )
                )
    return figures


def _per_second(trial: Trial, work: Callable[[], object]) -> float:
    return per_second_of_threads(1, lambda _: work, for_s=trial.for_s / TURNS)


def opening(trial: Trial) -> list[Figure]:
    """Figure b."""
    count, name = trial.count(PRODUCERS), "many-producers"
    with trial.connect(name) as messaging:
        trial.tell(f"opening {count:,} producers")
        messaging.create_topic("t")
        with ThreadPoolExecutor(OPENERS) as pool:  # they share syncs
            list(pool.map(partial(_begin, messaging), range(count)))

    def run() -> float:
        began_s = time.perf_counter()
        messaging = trial.connect(name)
        took_s = time.perf_counter() - began_s
        messaging.close()
        return took_s

    found = in_turns(trial.rounds, ours=run)["ours"]
    return [
        Figure(
            f"b) opening a store with {count:,} producers",
            "s",
            found,
            [MOST_OPENING_S] * len(found),
            f"{MOST_OPENING_S:g} s",
            at_most=1,
        )
    ]


def _begin(messaging: Messaging, number: int) -> None:
    """Opens a producer that has published; every other one has a transactional id."""
    if number % 2:
        with messaging.producer() as plain:
            plain.publish("t", payloads(1))
        return
    with messaging.producer(f"loader-{number}") as producer, producer.transaction():
        producer.publish("t", payloads(1))


FIGURES = [
    Measured(
        "a",
        "producer.publish('t', payloads) of 1 and of 100 messages of 100 bytes, over "
        "and over in one thread, against messaging.publish of as many: embedded, and "
        "by the Python client of a server in another process, whose plain publishes "
        "are stored once, too. At least 0.85.",
        idempotent,
    ),
    Measured(
        "b",
        "connect() to a directory with 10,000 producers, half of them with a "
        "transactional id, each of which has published. At most 1 s.",
        opening,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
