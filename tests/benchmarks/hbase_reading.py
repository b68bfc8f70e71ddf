"""Figure b of HBase: polls beside scans by happybase."""

import time

from tests.benchmarks.busy import Busy
from tests.benchmarks.hbase_store import Store, message_row, store
from txaware.bench.measure import Figure, in_turns, off_the_main_thread
from txaware.bench.reading import polled_per_second
from txaware.bench.trial import Trial, batches, payloads
from txaware.messaging import Messaging
from txaware.store.hbase.cells import PAYLOAD_CELL
from txaware.store.keys import row_key

BATCH, POLLED, THIN, PAGE = 1000, 200_000, 20_000, 1000
SECOND_MS = 1000


def poll(trial: Trial) -> list[Figure]:
    """Figure b."""
    messages, thin = trial.count(POLLED), trial.count(THIN)
    busy = Busy()
    with store(trial) as dense, store(trial) as sparse:
        _publish(trial, dense.messaging, messages)
        _load_thin(sparse, thin)
        found = in_turns(
            trial.rounds,
            raw=busy.measure("raw", lambda: _scanned_per_second(dense, messages)),
            ours=busy.measure("ours", lambda: _polled(dense, messages)),
            thin=lambda: _polled(sparse, thin),
        )
    name = f"b) poll of {messages:,} in pages of {PAGE:,}"
    limit = f"happybase scan, batch_size={PAGE:,}"
    return [
        Figure(name, "messages/s", found["ours"], found["raw"], limit, at_least=0.4),
        busy.figure(name, "messages", found, limit),
        Figure(
            f"b) poll of {thin:,}, one published each second",
            "messages/s",
            found["thin"],
            found["raw"],
            limit,
        ),
    ]


def _load_thin(here: Store, messages: int) -> None:
    """Writes a message a second, up to an hour ago: the 65 s of a bucket hold few."""
    topic, some = here.messaging.create_topic("t"), payloads(BATCH)
    begin_ms = int(time.time() * 1000) - (3600 + messages) * SECOND_MS
    here.load(
        message_row(topic, row_key(begin_ms + at * SECOND_MS), some[at % BATCH])
        for at in range(messages)
    )


def _publish(trial: Trial, messaging: Messaging, messages: int) -> None:
    trial.tell(f"publishing {messages:,} messages")
    messaging.create_topic("t")
    some = payloads(BATCH)
    for numbers in batches(messages, BATCH):
        messaging.publish("t", some[: len(numbers)])


def _polled(here: Store, messages: int) -> float:
    return off_the_main_thread(lambda: polled_per_second(here.messaging, messages))


def _scanned_per_second(here: Store, messages: int) -> float:
    """Measures a scan of all rows by happybase, which looks at every payload."""
    began_s, found, size = time.perf_counter(), 0, 0
    for _, cells in here.rows.scan(batch_size=PAGE):
        found += 1
        size += len(cells[PAYLOAD_CELL])
    took_s = time.perf_counter() - began_s
    if found != messages:
        raise RuntimeError(f"{found} rows were read instead of {messages}")
    return messages / took_s
