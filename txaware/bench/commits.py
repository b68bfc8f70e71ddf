"""Figures a, b and f: transactions of one message, and how soon they are received."""

import statistics
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from txaware.bench.measure import (
    Figure,
    fdatasync_p50_s,
    in_turns,
    off_the_main_thread,
    per_second,
    per_second_of_threads,
)
from txaware.bench.trial import PAYLOAD, Measured, Trial
from txaware.messaging import Messaging

THREADS = 16
RECEIVED = 300
CONSUMER_RESTS_S = 0.001


def transaction_of_one(messaging: Messaging) -> Callable[[], None]:
    """One message a transaction, as a user writes it."""

    def run() -> None:
        with messaging.transaction():
            messaging.publisher("t").publish(PAYLOAD)

    return run


def _put(db: Any, numbers: "count[int]") -> Callable[[], None]:
    """The limit: a synced put of the same payload under a rising key."""
    return lambda: db.put(b"%020d" % next(numbers), PAYLOAD, sync=True)


def _measured(trial: Trial, *, threads: int) -> dict[str, list[float]]:
    numbers, for_s = count(), trial.for_s
    with trial.raw("puts") as db, trial.connect(f"commits-{threads}") as messaging:
        messaging.create_topic("t")
        put, work = _put(db, numbers), transaction_of_one(messaging)
        return in_turns(
            trial.rounds,
            put=lambda: per_second_of_threads(1, lambda _: put, for_s=for_s),
            ours=lambda: per_second_of_threads(threads, lambda _: work, for_s=for_s),
            main=lambda: per_second(work, for_s=for_s),
        )


def one_thread(trial: Trial) -> list[Figure]:
    """Figure a, and the same from the main thread."""
    found = _measured(trial, threads=1)
    name = "a) one thread, 1 message a transaction"
    return [
        Figure(
            name,
            "tx/s",
            found["ours"],
            found["put"],
            "put(sync=True)/s",
            at_least=0.5,
            aim=0.6,
        ),
        Figure(
            f"{name}, from the main thread",
            "tx/s",
            found["main"],
            found["put"],
            "put(sync=True)/s",
            at_least=0.42,
            aim=0.5,
        ),
    ]


def many_threads(trial: Trial) -> list[Figure]:
    """Figure b."""
    found = _measured(trial, threads=THREADS)
    return [
        Figure(
            f"b) {THREADS} threads, 1 message a transaction",
            "tx/s",
            found["ours"],
            found["put"],
            "put(sync=True)/s of one thread",
            at_least=1.4,
            aim=1.8,
        )
    ]


def received(trial: Trial) -> list[Figure]:
    """Figure f."""
    times = trial.count(1000 * RECEIVED) // 1000
    with trial.connect("received") as messaging:
        messaging.create_topic("t")
        found = in_turns(
            trial.rounds,
            disk=lambda: fdatasync_p50_s(trial.directory, count=times),
            ours=lambda: statistics.median(
                received_s(transaction_of_one(messaging), polled(messaging), times)
            ),
        )
    return [
        Figure(
            "f) begin to received by a waiting consumer, p50",
            "s",
            found["ours"],
            found["disk"],
            "fdatasync p50",
            at_most=5.5,
            aim=4.5,
        )
    ]


def polled(messaging: Messaging, topic: str = "t") -> Callable[[], int]:
    """Returns a function that waits for committed messages, and counts them."""
    start = messaging.bounds(topic).next
    place: dict[str, Any] = {"start": start, "inclusive": True}

    def poll() -> int:
        page = messaging.poll(topic, isolation="committed", wait_s=30, **place)
        place.update(start=page.next, inclusive=False)
        return len(page)

    return poll


def received_s(
    work: Callable[[], object],
    poll: Callable[[], int],
    times: int,
    *,
    rests_s: float = CONSUMER_RESTS_S,
) -> list[float]:
    """Returns how long each took from its begin until a waiting consumer had it.

    `work` publishes one message, and `poll` waits and returns how many have come.
    """
    return off_the_main_thread(lambda: _received_s(work, poll, times, rests_s))


def _received_s(
    work: Callable[[], object], poll: Callable[[], int], times: int, rests_s: float
) -> list[float]:
    ended_s: list[float] = []
    arrived = threading.Semaphore(0)

    def consume() -> None:
        while len(ended_s) < times:
            count = poll()
            ended_s.extend([time.perf_counter()] * count)
            for _ in range(count):
                arrived.release()

    consumer = threading.Thread(target=consume)
    consumer.start()
    began_s: list[float] = []
    for _ in range(times):
        time.sleep(rests_s)  # it is waiting again, and not on its way there
        began_s.append(time.perf_counter())
        work()
        arrived.acquire()
    consumer.join()
    return [end - begin for begin, end in zip(began_s, ended_s, strict=True)]


COMMITS = [
    Measured(
        "a",
        "`with messaging.transaction(): messaging.publisher('t').publish(payload)` "
        "with 100 bytes, over and over in one thread that is not the main one, against "
        "plyvel's put(sync=True) of 100 bytes. Floor 0.5, aim 0.6; from the main "
        "thread floor 0.42, aim 0.5.",
        one_thread,
    ),
    Measured(
        "b",
        f"The same from {THREADS} threads at once, against one thread that puts. "
        "Floor 1.4, aim 1.8.",
        many_threads,
    ),
]
RECEIVE = [
    Measured(
        "f",
        "One thread begins a transaction, publishes and commits; another waits in "
        "poll(isolation='committed', wait_s=...). From before the begin until the poll "
        "has returned, median, against the median of an append of 128 bytes and an "
        "fdatasync. At most 5.5, aim 4.5.",
        received,
    ),
]
