"""Figures a and d of HBase: the cost of a publish beside puts by happybase."""

from itertools import count

from tests.benchmarks.busy import Busy
from tests.benchmarks.hbase_store import store
from txaware.bench.measure import (
    Figure,
    in_turns,
    medians_in_turns,
    per_second,
    took_ms,
)
from txaware.bench.trial import PAYLOAD, Trial, payloads
from txaware.model.topics import TopicName, data_prefix
from txaware.store.hbase.cells import PAYLOAD_CELL
from txaware.store.hbase.salting import salted_key
from txaware.store.keys import MESSAGE, row_key

BATCH, SINGLE = 1000, 200_000
PREFIX = MESSAGE + data_prefix(TopicName("t"), 1)


def publish(trial: Trial) -> list[Figure]:
    """Figure a."""
    messages, numbers = payloads(BATCH), count()
    prefix = salted_key(PREFIX + row_key(0))[: len(PREFIX)]
    busy = Busy()
    with store(trial) as here:
        here.messaging.create_topic("t")

        def put() -> None:
            time_ms = next(numbers)
            with here.raw.batch() as batch:
                for sequence, payload in enumerate(messages):
                    batch.put(
                        prefix + row_key(time_ms, sequence), {PAYLOAD_CELL: payload}
                    )

        def ours() -> None:
            here.messaging.publish("t", messages)

        found = in_turns(
            trial.rounds,
            raw=busy.measure("raw", lambda: per_second(put, for_s=trial.for_s)),
            ours=busy.measure("ours", lambda: per_second(ours, for_s=trial.for_s)),
        )
    name = f"a) publish of {BATCH:,} messages of 100 bytes"
    limit = f"happybase, batches of {BATCH:,} puts"
    return [
        Figure(name, "calls/s", found["ours"], found["raw"], limit, at_least=0.5),
        busy.figure(name, "calls", found, limit),
    ]


def one_message(trial: Trial) -> list[Figure]:
    """Figure d."""
    numbers = count()
    with store(trial) as here:
        here.messaging.create_topic("t")

        def put() -> None:
            here.raw.put(b"%020d" % next(numbers), {PAYLOAD_CELL: PAYLOAD})

        found = medians_in_turns(
            trial.rounds,
            max(10, trial.count(SINGLE) // 1000),
            raw=lambda: took_ms(put),
            ours=lambda: took_ms(lambda: here.messaging.publish("t", [PAYLOAD])),
        )
    return [
        Figure(
            "d) publish of one message, p50",
            "ms",
            found["ours"],
            found["raw"],
            "happybase put",
        )
    ]
