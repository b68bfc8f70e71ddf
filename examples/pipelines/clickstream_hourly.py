"""Clicks become counts per hour and page: each hour is told once, whatever fails.

A stream reads the topic `clicks`, counts by hour and page, and gives out an hour when
clicks of it are at least ten minutes late. Each micro-batch is one transaction of the
driver: the counts go to the topic `hourly`, and the hours that are done to a table in
SQLite, so that each of the two always agrees with the other.

One run fails before its commit, and all of it is undone. Another one fails after its
commit, before Spark has noted the batch: so Spark repeats the batch, and it is known to
be done. In the end the counts are held against the clicks themselves.

    pip install '.[spark]'      (and Java 17)
    python examples/pipelines/clickstream_hourly.py

`--data DIR` keeps topics, table and checkpoint, in a new directory.

Prints:
350 clicks until 11:16
failed before its commit; done: nothing
finished; done: 08:00, 09:00, 10:00
350 clicks until 14:29
failed right after its commit; done: 08:00, 09:00, 10:00, 11:00, 12:00, 13:00
finished; done: 08:00, 09:00, 10:00, 11:00, 12:00, 13:00
hour        /  /cart  /help    all
08:00      69     29      7    105
09:00      66     22      9     97
10:00      71     37     15    123
11:00      67     28      8    103
12:00      52     34     12     98
13:00      69     36     14    119
each of 645 clicks counted once; 55 are in open hours
"""

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import txaware
from coordinator import Transaction
from txaware.messaging import MessagingTransaction
from txaware.spark import once_per_batch, store_frame

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

PAGES = ("/", "/cart", "/help")
MORNING = datetime(2026, 3, 2, 8, tzinfo=UTC)
CLICKS = 700
BEFORE, AFTER = "before its commit", "right after its commit"

Click = tuple[datetime, str]


class HoursDone:
    """Rows in SQLite, each with the pointer of the transaction that wrote it."""

    transaction_aware_name = "hours done"

    def __init__(self, path: Path) -> None:
        # Batches come in threads of Spark's, one after the other.
        self._rows = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )
        self._rows.execute("CREATE TABLE IF NOT EXISTS done (pointer, hour, clicks)")

    def start_tx(self, tx: Transaction) -> None:
        self._tx, self._new = tx, dict[str, int]()

    def update_tx(self, tx: Transaction) -> None:
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return [hour.encode() for hour in self._new]

    def commit_tx(self) -> bool:
        rows = [(self._tx.write_pointer, *new) for new in self._new.items()]
        self._rows.executemany("INSERT INTO done VALUES (?, ?, ?)", rows)
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        pointers = [(pointer,) for pointer in self._tx.pointers]
        self._rows.executemany("DELETE FROM done WHERE pointer = ?", pointers)
        return True

    def add(self, hour: str, clicks: int) -> None:
        self._new[hour] = clicks

    def visible(self) -> list[tuple[str, int]]:
        """The hours that are done, and their clicks."""
        rows = self._rows.execute(
            "SELECT pointer, hour, clicks FROM done ORDER BY hour"
        )
        return [row[1:] for row in rows if self._tx.is_visible(row[0])]

    def close(self) -> None:
        self._rows.close()


def hourly_counts(spark: SparkSession, url: str) -> DataFrame:
    """The stream of counts; an hour comes when the clicks are ten minutes past it."""
    clicks = spark.readStream.format("txaware").option("url", url)
    click = f.from_json(f.col("payload").cast("string"), "time timestamp, page string")
    hour = f.date_format(f.col("window.start"), "yyyy-MM-dd HH:mm").alias("hour")
    return (
        clicks.option("topic", "clicks")
        .load()
        .select(click.alias("click"))
        .select("click.*")
        .withWatermark("time", "10 minutes")
        .groupBy(f.window("time", "1 hour"), "page")
        .agg(f.count("*").alias("clicks"))
        .select(hour, "page", "clicks")
    )


def publish_hours(
    messaging: txaware.Messaging, done: HoursDone
) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch, in one transaction."""

    def work(counts: DataFrame, tx: MessagingTransaction) -> None:
        counts = counts.persist()  # or it is computed twice
        payload = f.to_json(f.struct("hour", "page", "clicks")).alias("payload")
        store_frame(counts.select(payload), "hourly", tx)
        for hour, clicks in counts.groupBy("hour").agg(f.sum("clicks")).collect():
            done.add(hour, clicks)
        counts.unpersist()

    return once_per_batch(messaging, "hourly", work, done)


class FailingHoursDone(HoursDone):
    """The same with failures to order, when an hour is done."""

    fails = ""

    def commit_tx(self) -> bool:
        is_written = super().commit_tx()
        self._fail(BEFORE)
        return is_written

    def post_tx_commit(self) -> None:
        self._fail(AFTER)

    def _fail(self, moment: str) -> None:
        if self._new and self.fails == moment:
            raise RuntimeError("as planned")


def run(
    spark: SparkSession,
    *,
    url: str,
    batch: Callable[[DataFrame, int], None],
    checkpoint: Path,
) -> str:
    """Works off what is there, as a job does that is started now and then."""
    query = (
        hourly_counts(spark, url)
        .writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if "as planned" not in str(error):
            raise
        return "failed"
    return "finished"


def main(data: Path) -> None:
    data.mkdir(parents=True, exist_ok=True)
    with (
        closing(FailingHoursDone(data / "hours.sqlite")) as done,
        txaware.connect(f"leveldb:{data / 'topics'}") as messaging,
        messaging.serve() as server,
        session() as spark,
    ):
        messaging.create_topic("clicks")
        messaging.create_topic("hourly")
        clicks = made_up_clicks()
        half = len(clicks) // 2
        for some, moment in ((clicks[:half], BEFORE), (clicks[half:], AFTER)):
            publish(messaging, some)
            for done.fails in (moment, ""):
                how = run(
                    spark,
                    url=server.url,
                    batch=publish_hours(messaging, done),
                    checkpoint=data / "checkpoint",
                )
                with messaging.transaction(done):
                    hours = ", ".join(hour[-5:] for hour, _ in done.visible())
                print(f"{how} {done.fails}".strip() + f"; done: {hours or 'nothing'}")
        check(messaging, done, clicks)


def publish(messaging: txaware.Messaging, clicks: list[Click]) -> None:
    payloads = [
        json.dumps({"time": time.isoformat(), "page": page}).encode()
        for time, page in clicks
    ]
    messaging.publish("clicks", payloads)
    print(f"{len(clicks)} clicks until {max(clicks)[0]:%H:%M}")


def check(messaging: txaware.Messaging, done: HoursDone, clicks: list[Click]) -> None:
    """Topic and table, in one snapshot, against the clicks of the hours done."""
    with messaging.transaction(done):
        told = [json.loads(one.payload) for one in messaging.consumer("hourly").poll()]
        hours = dict(done.visible())
    truth = Counter((f"{time:%Y-%m-%d %H}:00", page) for time, page in clicks)
    true = {key: count for key, count in truth.items() if key[0] in hours}
    found = Counter({(one["hour"], one["page"]): one["clicks"] for one in told})
    assert len(told) == len(found), "a count was told twice"
    assert found == true, f"{found} is not {true}"
    print("hour  " + "".join(f"{page:>7}" for page in PAGES) + "    all")
    for hour, total in hours.items():
        counts = [found[hour, page] for page in PAGES]
        assert sum(counts) == total, f"{hour}: {counts} are not {total}"
        print(f"{hour[-5:]} " + "".join(f"{count:7}" for count in (*counts, total)))
    left = sum(truth.values()) - sum(true.values())
    print(f"each of {sum(true.values())} clicks counted once; {left} are in open hours")


def made_up_clicks() -> list[Click]:
    """In the order in which they arrive: some a few minutes late."""
    chance = random.Random(8)
    arrivals = []
    for _ in range(CLICKS):
        time = MORNING + timedelta(seconds=chance.randrange(6 * 3600 + 1800))
        page = chance.choices(PAGES, weights=(6, 3, 1))[0]
        arrivals.append((time + timedelta(seconds=chance.randrange(540)), time, page))
    return [(time, page) for _, time, page in sorted(arrivals)]


def session() -> SparkSession:
    """Spark in this process; failures are planned, and come as exceptions."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "OFF")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
        parser.add_argument("--data", type=Path, default=Path(scratch))
        main(**vars(parser.parse_args()))
