"""What the session of `tests.support.spark_jobs.driver` can be told to do."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession

import txaware
from tests.support.spark_jobs.waiting import FramePart, Waiting
from txaware.spark import dataframes as frames
from txaware.spark import store_frame

PATIENCE_S = 240
NUMBER = "cast(id as string) as payload"


def save(spark: SparkSession, rows: int, **options: str) -> None:
    """The numbers below `rows`, by two tasks, to a topic."""
    numbers = spark.range(0, rows, 1, 2).selectExpr(NUMBER)
    numbers.write.format("waiting").mode("append").options(**options).save()


def frame(
    spark: SparkSession, rows: int, *, url: str, topic: str, notes: str, waiting: str
) -> int:
    """The same with `store_frame`."""
    numbers = spark.range(0, rows, 1, 2).selectExpr(NUMBER)
    tasks = frozenset(int(task) for task in waiting.split(",") if task)
    slowly = FramePart(Waiting(Path(notes), tasks))
    with (
        txaware.connect(url) as messaging,
        patch.object(frames, "_stored", slowly),
        messaging.transaction() as tx,
    ):
        return store_frame(numbers, topic, tx)


def stream(spark: SparkSession, source: str, checkpoint: str, **options: str) -> int:
    """What one topic has, by two tasks, to another; answers how many batches."""
    reader = spark.readStream.format("txaware").option("url", options["url"])
    rows = reader.option("topic", source).load().select("payload").repartition(2)
    writer = rows.writeStream.format("waiting").options(**options)
    writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S), "the query does not end"
    return len(query.recentProgress)


def read(spark: SparkSession, **options: str) -> list[str]:
    """The payloads of a topic."""
    found: DataFrame = spark.read.format("waiting").options(**options).load()
    return sorted(row.payload.decode() for row in found.select("payload").collect())


def await_executors(spark: SparkSession, count: int) -> None:
    """Until there are so many; the driver counts itself."""
    java: Any = spark.sparkContext._jsc
    give_up = time.monotonic() + PATIENCE_S
    while java.sc().getExecutorMemoryStatus().size() != count + 1:
        assert time.monotonic() < give_up, f"there are no {count} executors"
        time.sleep(0.05)


def java(spark: SparkSession) -> str:
    """The version of the Java that runs it."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.System.getProperty("java.version"))


JOBS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (save, frame, stream, read, await_executors, java)
}
