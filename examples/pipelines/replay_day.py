"""Replays one day of a topic by time, and publishes it corrected, exactly once.

A release of Tuesday wrote cents where euros belong. The options `start` and `end` read
what was published on that day, and nothing of the days around it; the corrected rows go
to another topic in one transaction. The save has a name, `save_id`: however often it is
run, also because nobody knows how the last time ended, its rows are published once.

    pip install '.[spark]'      (and Java 17)
    python examples/pipelines/replay_day.py

`--data DIR` keeps the topics, in a new directory.

Prints:
Monday: 13 payments, 175 euros
Tuesday: 13 payments, 17,500 euros
Wednesday: 13 payments, 175 euros
replayed once: 13 payments, 175 euros
replayed twice: 13 payments, 175 euros
orders 100 to 123, in their order, each once
"""

import argparse
import json
import os
import sys
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import txaware

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)
FOREVER_S = 2_147_483_647


class Clock:
    """Days go by while this program runs; a real one needs none."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, tzinfo=UTC)

    def ms(self) -> int:
        return round(self.now.timestamp() * 1000)


def replay(spark: SparkSession, *, url: str, day: date) -> None:
    """Publishes what was published on a day (UTC) once more, corrected."""
    payments = (
        spark.read.format("txaware")
        .option("url", url)
        .option("topic", "payments")
        .option("start", f"{day}T00:00:00Z")
        .option(
            "end", f"{day + timedelta(days=1)}T00:00:00Z"
        )  # the first moment left out
        .load()
    )
    payment = f.from_json(f.col("payload").cast("string"), "order int, euros double")
    corrected = payments.select(payment.alias("old")).select(
        f.col("old.order"), (f.col("old.euros") / 100).alias("euros")
    )
    (
        corrected.select(f.to_json(f.struct("*")).alias("payload"))
        .write.format("txaware")
        .option("url", url)
        .option("topic", "corrected")
        .option("save_id", f"cents-of-{day}")
        .mode("append")
        .save()
    )


def publish_days(messaging: txaware.Messaging, clock: Clock) -> None:
    """A payment every two hours, and one in the first and last moment of each day."""
    messaging.create_topic("payments", ttl_s=FOREVER_S)
    messaging.create_topic("corrected", ttl_s=FOREVER_S)
    for number in range(3):
        midnight = clock.now
        moments = [timedelta(hours=hour) for hour in range(0, 24, 2)]
        for moment in [*moments, timedelta(days=1, milliseconds=-1)]:
            clock.now = midnight + moment
            order = 100 * number + moment.seconds // 3600
            euros = 10 + order % 10
            wrong = clock.now.date() == TUESDAY
            payment = {"order": order, "euros": 100 * euros if wrong else euros}
            messaging.publish("payments", [json.dumps(payment).encode()])
        clock.now = midnight + timedelta(days=1)


def told(messaging: txaware.Messaging, topic: str) -> list[tuple[date, int, float]]:
    """Day of publishing, order and euros of all payments."""
    found = []
    for message in messaging.consumer(topic).poll(1000):
        time = datetime.fromtimestamp(message.id.publish_time_ms / 1000, UTC)
        payment = json.loads(message.payload)
        found.append((time.date(), payment["order"], payment["euros"]))
    return found


def main(data: Path) -> None:
    clock = Clock()
    with (
        txaware.connect(f"leveldb:{data}", clock_ms=clock.ms) as messaging,
        messaging.serve() as server,
        session() as spark,
    ):
        publish_days(messaging, clock)
        payments = told(messaging, "payments")
        for day in sorted({day for day, *_ in payments}):
            euros = [one for published, _, one in payments if published == day]
            print(f"{day:%A}: {len(euros)} payments, {sum(euros):,.0f} euros")

        for time in ("once", "twice"):
            replay(spark, url=server.url, day=TUESDAY)
            corrected = told(messaging, "corrected")
            euros = [one for *_, one in corrected]
            print(f"replayed {time}: {len(euros)} payments, {sum(euros):,.0f} euros")

    wrong = [(order, euros) for day, order, euros in payments if day == TUESDAY]
    right = [(order, euros) for _, order, euros in corrected]
    assert right == [(order, euros / 100) for order, euros in wrong]
    print(f"orders {right[0][0]} to {right[-1][0]}, in their order, each once")


def session() -> SparkSession:
    """Spark in this process, which says nothing but errors."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
        parser.add_argument("--data", type=Path, default=Path(scratch))
        main(**vars(parser.parse_args()))
