"""A client of Spark Connect, which saves, reads, streams and stores: `URL FOLDER`."""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import txaware
from txaware.spark import publish_batches, store_frame


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as payload")


def stream(spark: SparkSession, url: str, folder: Path) -> None:
    """From topic t to u by the sink, and to v by foreachBatch."""
    for topic in ("u", "v"):
        source = spark.readStream.format("txaware").option("url", url)
        rows = source.option("topic", "t").load().select("payload").writeStream
        query = rows.option("checkpointLocation", str(folder / topic))
        if topic == "u":
            query = query.format("txaware").option("url", url).option("topic", "u")
        else:
            kept = str(folder / topic)
            query = query.foreachBatch(publish_batches(url, "v", checkpoint=kept))
        assert query.trigger(availableNow=True).start().awaitTermination(300)


def main(url: str, folder: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        writer = numbers(spark, 10).write.format("txaware").mode("append")
        writer.option("url", url).option("topic", "t").save()
        reader = spark.read.format("txaware").option("url", url)
        print("read", reader.option("topic", "t").load().count())
        stream(spark, url, folder)
        with txaware.connect(url) as messaging, messaging.transaction() as tx:
            messaging.publisher("w").publish(b"10")
            print("stored", store_frame(numbers(spark, 10), "w", tx))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
