"""Figures c, d and e: batches, whole topics, and snapshots with many invalid ids."""

import time
from functools import partial
from itertools import count
from typing import Any

from coordinator.transaction import Transaction
from txaware.bench.measure import (
    Figure,
    in_turns,
    off_the_main_thread,
    per_second_of_threads,
)
from txaware.bench.trial import Measured, Trial, batches, payloads
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.model.topics import Topic, TopicName, data_prefix
from txaware.store.keys import MESSAGE, row_key

BATCH, POLLED, PAGE = 1000, 500_000, 1000
INVALID, JUDGED, AT_ONCE = 50_000, 100_000, 100
WARM_CACHE_BYTES = 1 << 30
STARTED, TIMEOUT_S = 5000, 0.05
PREFIX = MESSAGE + data_prefix(TopicName("t"), 1)


def publish_thousand(trial: Trial) -> list[Figure]:
    """Figure c."""
    messages, numbers = payloads(BATCH), count()

    def write(db: Any) -> None:
        time_ms = next(numbers)
        with db.write_batch(sync=True) as batch:
            for sequence, payload in enumerate(messages):
                batch.put(PREFIX + row_key(time_ms, sequence), b"\0" + payload)

    with trial.raw("batches") as db, trial.connect("batches") as messaging:
        messaging.create_topic("t")
        found = in_turns(
            trial.rounds,
            raw=lambda: per_second_of_threads(
                1, lambda _: partial(write, db), for_s=trial.for_s
            ),
            ours=lambda: per_second_of_threads(
                1,
                lambda _: partial(messaging.publish, "t", messages),
                for_s=trial.for_s,
            ),
        )
    return [
        Figure(
            f"c) publish of {BATCH:,} messages of 100 bytes",
            "calls/s",
            found["ours"],
            found["raw"],
            f"synced WriteBatch of {BATCH:,}/s",
            at_least=0.6,
        )
    ]


def poll_all(trial: Trial) -> list[Figure]:
    """Figure d."""
    messages = trial.count(POLLED)
    fill(trial, "polled", messages)

    def ours(times: int) -> list[float]:
        with trial.connect("polled", cache_bytes=WARM_CACHE_BYTES) as messaging:
            return [
                off_the_main_thread(lambda: polled_per_second(messaging, messages))
                for _ in range(times)
            ]

    warm: list[float] = []

    def cold() -> float:
        first, second = ours(2)
        warm.append(second)
        return first

    found = in_turns(
        trial.rounds,
        raw=lambda: scanned_per_second(trial, "polled", messages),
        cold=cold,
    )
    name = f"d) poll {messages:,} in pages of {PAGE:,}"
    return [
        Figure(
            f"{name}, cold",
            "messages/s",
            found["cold"],
            found["raw"],
            "plyvel scan, rows/s",
            at_least=0.25,
        ),
        Figure(
            f"{name}, warm (cache_bytes={WARM_CACHE_BYTES >> 20} MiB)",
            "messages/s",
            warm,
            found["raw"],
            "plyvel scan, rows/s",
            at_least=0.4,
        ),
    ]


def fill(trial: Trial, name: str, messages: int) -> None:
    """Writes the same rows for us and for plyvel; the second polls read from disk."""
    trial.tell(f"publishing {messages:,} messages")
    with trial.connect(name) as messaging, trial.raw(name) as db:
        topic = messaging.create_topic("t")
        some = payloads(BATCH)
        for numbers in batches(messages, BATCH):
            messaging.publish("t", some[: len(numbers)])
            with db.write_batch() as batch:
                for number in numbers:
                    key = _raw_key(topic, number)
                    batch.put(key, b"\0" + some[number % BATCH])


def _raw_key(topic: Topic, number: int) -> bytes:
    return MESSAGE + topic.prefix + row_key(number // BATCH, number % BATCH)


def scanned_per_second(trial: Trial, name: str, messages: int) -> float:
    """Measures a scan by plyvel alone, which looks at every value."""
    with trial.raw(name) as db:
        began_s, found, size = time.perf_counter(), 0, 0
        for _, value in db.iterator(prefix=PREFIX):
            found += 1
            size += len(value)
        took_s = time.perf_counter() - began_s
    _require(found, messages)
    return messages / took_s


def polled_per_second(
    messaging: Messaging, messages: int, transaction: Transaction | None = None
) -> float:
    """Measures a poll of a whole topic in pages, which looks at every payload."""
    began_s = time.perf_counter()
    at: MessageId | None = None
    found, size = 0, 0
    while page := messaging.poll(
        "t", start=at, inclusive=at is None, limit=PAGE, transaction=transaction
    ):
        for message in page:
            size += len(message.payload)
        found += len(page)
        at = page.next
    took_s = time.perf_counter() - began_s
    _require(found, messages)
    return messages / took_s


def _require(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{found} messages were read instead of {expected}")


def judge_many(trial: Trial) -> list[Figure]:
    """Figure e."""
    messages, invalid = trial.count(JUDGED), trial.count(INVALID)
    with (
        trial.connect("judged-none", cache_bytes=WARM_CACHE_BYTES) as none,
        trial.connect("judged-many", cache_bytes=WARM_CACHE_BYTES) as many,
    ):
        for messaging in (none, many):
            _publish_in_transactions(messaging, messages)
        trial.tell(f"making {invalid:,} transactions invalid")
        _make_invalid(many, invalid)
        found = in_turns(
            trial.rounds,
            many=lambda: _transactional_s(trial, many, messages),
            none=lambda: _transactional_s(trial, none, messages),
        )
    return [
        Figure(
            f"e) {messages:,} messages polled, a transaction for each page of {PAGE:,},"
            f" with {invalid:,} invalid ids",
            "s",
            found["many"],
            found["none"],
            "the same with none",
            at_most=1.2,
        )
    ]


def _publish_in_transactions(messaging: Messaging, messages: int) -> None:
    messaging.create_topic("t")
    some = payloads(AT_ONCE)
    for _ in range(messages // AT_ONCE):
        with messaging.transaction():
            messaging.publisher("t").publish_all(some)


def _make_invalid(messaging: Messaging, wanted: int) -> None:
    """Lets many transactions time out at once: else each would cost a sync."""
    coordinator = messaging.coordinator
    while (left := wanted - coordinator.invalid_size()) > 0:
        for _ in range(min(left, STARTED)):
            coordinator.start_short(TIMEOUT_S)
        time.sleep(2 * TIMEOUT_S)


def _transactional_s(trial: Trial, messaging: Messaging, messages: int) -> float:
    def run() -> None:
        at: MessageId | None = None
        found, more = 0, True
        while more:
            with messaging.transaction() as context:
                page = messaging.poll(
                    "t",
                    start=at,
                    inclusive=at is None,
                    limit=PAGE,
                    transaction=context.transaction,
                )
            found, at, more = found + len(page), page.next, bool(page)
        _require(found, messages)

    return 1 / per_second_of_threads(1, lambda _: run, for_s=trial.for_s)


READING = [
    Measured(
        "c",
        "messaging.publish('t', payloads) of 1,000 messages of 100 bytes, against a "
        "WriteBatch of the same keys and values, written with sync. Floor 0.6.",
        publish_thousand,
    ),
    Measured(
        "d",
        "500,000 messages of 100 bytes polled in pages of 1,000, the size of every "
        "payload added up; against plyvel's iterator over equal rows, the size of "
        "every value added up. Cold: the directory was just opened, so all caches of "
        "this process are empty. Warm: once more in the same process. Both with "
        "cache_bytes of 1 GiB, which holds them all. Floors 0.25 and 0.4.",
        poll_all,
    ),
    Measured(
        "e",
        "100,000 messages of 1,000 transactions, polled in pages of 1,000, each page "
        "in a transaction of its own that begins and commits; with 50,000 invalid ids "
        "against an equal directory without any. At most 1.2.",
        judge_many,
    ),
]
