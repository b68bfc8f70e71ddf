"""A client of Spark Connect, which saves, reads, streams and stores: `URL FOLDER`."""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import txaware
from txaware.messaging import MessagingTransaction
from txaware.spark import once_per_batch, publish_batches, store_frame


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as payload")


def stream(spark: SparkSession, url: str, folder: Path) -> None:
    """From topic t to u by the sink, to v and x by foreachBatch; repeats each batch."""
    for topic in ("u", "v", "x") * 2:
        source = spark.readStream.format("txaware").option("url", url)
        rows = source.option("topic", "t").load().select("payload").writeStream
        query = rows.option("checkpointLocation", str(folder / topic))
        if topic == "u":
            query = query.format("txaware").option("url", url).option("topic", "u")
        else:
            kept = str(folder / topic)
            function = publish_batches(url, topic, checkpoint=kept)
            if topic == "x":
                function = once_per_batch(url, topic, copied, checkpoint=kept)
            query = query.foreachBatch(function)
        assert query.trigger(availableNow=True).start().awaitTermination(300)
        # As if Spark had been killed before it noted that the batch is done.
        for file in (folder / topic / "commits").iterdir():
            file.unlink()


def copied(frame: DataFrame, tx: MessagingTransaction) -> None:
    """Publishes a batch."""
    store_frame(frame, "x", tx)


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
