"""Figures a, b and f: transactions of one message, and how soon they are received."""

import statistics
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from txaware.bench.measure import (
    Figure,
    Measure,
    fdatasync_p50_s,
    in_turns,
    off_the_main_thread,
    p50_s,
    per_second,
    per_second_of_threads,
    sqlite_inserts,
    with_cost,
)
from txaware.bench.trial import PAYLOAD, Measured, Trial
from txaware.messaging import Messaging

THREADS = 16
RECEIVED = 300
CONSUMER_RESTS_S = 0.001

# SQLite is what a program has without us: it needs one sync as well, and little of the
# processor. Where the disk is slow a ratio is about 1; these are for a fast one.
FLOORS = {"a": 0.5, "b": 0.8}
MAIN_FLOOR = 0.17
RECEIVED_MOST = 8.0


def transaction_of_one(messaging: Messaging) -> Callable[[], None]:
    """One message a transaction, as a user writes it."""

    def run() -> None:
        with messaging.transaction():
            messaging.publisher("t").publish(PAYLOAD)

    return run


def _put(db: Any, numbers: "count[int]") -> Callable[[], None]:
    """The limit: a synced put of the same payload under a rising key."""
    return lambda: db.put(b"%020d" % next(numbers), PAYLOAD, sync=True)


def _figures(trial: Trial, letter: str, what: str, *, threads: int) -> list[Figure]:
    """Measures transactions of one message; the last two figures have no bound."""
    numbers, for_s = count(), trial.for_s
    costs_us: dict[str, list[float]] = {"ours": [], "sqlite": []}

    def rate(work: Callable[[], object], threads: int = 1) -> Measure:
        return lambda: per_second_of_threads(threads, lambda _: work, for_s=for_s)

    with (
        trial.raw(f"puts-{threads}") as db,
        sqlite_inserts(trial.directory, PAYLOAD) as insert,
        trial.connect(f"commits-{threads}") as messaging,
    ):
        messaging.create_topic("t")
        work = transaction_of_one(messaging)
        measures = {
            "put": rate(_put(db, numbers)),
            "sqlite": with_cost(rate(insert), costs_us["sqlite"]),
            "ours": with_cost(rate(work, threads), costs_us["ours"]),
        }
        if threads == 1:
            measures["main"] = lambda: per_second(work, for_s=for_s)
        found = in_turns(trial.rounds, **measures)
    name = f"{letter}) {what}, 1 message a transaction"
    names = {"ours": name, "main": f"{name}, from the main thread"}
    floors = {"ours": FLOORS[letter], "main": MAIN_FLOOR}
    return [
        *(
            Figure(
                names[who],
                "tx/s",
                found[who],
                found["sqlite"],
                "durable INSERT/s of SQLite",
                at_least=floors[who],
            )
            for who in names
            if who in found
        ),
        Figure(
            f"{name}, beside the disk",
            "tx/s",
            found["ours"],
            found["put"],
            "put(sync=True)/s of one thread",
        ),
        Figure(
            f"{name}, processor",
            "us",
            costs_us["ours"],
            costs_us["sqlite"],
            "us of a durable INSERT",
        ),
    ]


def one_thread(trial: Trial) -> list[Figure]:
    """Figure a, and the same from the main thread."""
    return _figures(trial, "a", "one thread", threads=1)


def many_threads(trial: Trial) -> list[Figure]:
    """Figure b."""
    return _figures(trial, "b", f"{THREADS} threads", threads=THREADS)


def received(trial: Trial) -> list[Figure]:
    """Figure f."""
    times = trial.count(1000 * RECEIVED) // 1000
    with (
        sqlite_inserts(trial.directory, PAYLOAD) as insert,
        trial.connect("received") as messaging,
    ):
        messaging.create_topic("t")
        found = in_turns(
            trial.rounds,
            disk=lambda: fdatasync_p50_s(trial.directory, count=times),
            sqlite=lambda: off_the_main_thread(lambda: p50_s(insert, count=times)),
            ours=lambda: statistics.median(
                received_s(transaction_of_one(messaging), polled(messaging), times)
            ),
        )
    name, ours = "f) begin to received by a waiting consumer, p50", found["ours"]
    return [
        Figure(
            name, "s", ours, found["sqlite"], "p50 of an INSERT", at_most=RECEIVED_MOST
        ),
        Figure(f"{name}, beside the disk", "s", ours, found["disk"], "fdatasync p50"),
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
        "a durable INSERT of them in SQLite, from Python's module in one thread, in "
        f"WAL with synchronous=FULL. Floor {FLOORS['a']:g}; from the main thread "
        f"{MAIN_FLOOR:g}. Shown, and not judged: the ratio to plyvel's put(sync=True) "
        "of 100 bytes, which depends on how fast the disk is, and the processor time.",
        one_thread,
    ),
    Measured(
        "b",
        f"The same from {THREADS} threads at once, against one thread that inserts. "
        f"Floor {FLOORS['b']:g}.",
        many_threads,
    ),
]
RECEIVE = [
    Measured(
        "f",
        "One thread begins a transaction, publishes and commits; another waits in "
        "poll(isolation='committed', wait_s=...). From before the begin until the poll "
        "has returned, median, against the median of such an INSERT. At most "
        f"{RECEIVED_MOST:g}. Shown, and not judged: the ratio to an append of 128 "
        "bytes and an fdatasync.",
        received,
    ),
]
