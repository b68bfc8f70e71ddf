"""A driver program that copies topic `a` to `b`, and is killed at a step if told so.

    python -m tests.support.spark_stream_job URL CHECKPOINT WAY

It ends when all that was there is through. `DOOMED` names a step, the time it counts
that it is reached, and a file to count in; whoever of its processes reaches it then
kills all of them. What every copy says is `NUMBER of PARTITION`, for the order.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from coordinator.remote.client import RemoteCoordinator
from tests.support.spark_fixtures import session
from txaware.messaging import Messaging
from txaware.publish.outbox import TransactionPublisher
from txaware.spark import TxAwareDataSource, publish_batches, stream_sink
from txaware.spark import dataframes as frames
from txaware.spark.options import Options
from txaware.spark.storing import Storing
from txaware.spark.stream_sink import StreamSink
from txaware.spark.stream_source import StreamSource

FORMAT, FOR_EACH_BATCH = "format", "foreachBatch"
BEGINS = "the query begins"
MESSAGES_A_BATCH, ROWS_A_STORE, BYTES_A_PART = 12, 2, 100
TRANSACTION_TIMEOUT_S = 900

# In the order of a micro-batch. A method, and whether its beginning or its end counts.
STEPS: dict[str, tuple[type, str, bool]] = {
    "after Spark's commit log": (StreamSource, "latestOffset", False),
    "after the offset log": (StreamSource, "partitions", False),
    "when the transaction has begun": (RemoteCoordinator, "persist", True),
    "among the stores of a task": (Messaging, "store", True),
    "when a task has stored": (Storing, "store", True),
    "when all tasks have stored": (RemoteCoordinator, "can_commit", False),
    "before the publish": (TransactionPublisher, "commit_tx", False),
    "after the publish": (RemoteCoordinator, "_commit", False),
    "after the coordinator's commit": (RemoteCoordinator, "_commit", True),
}


def doom(told: str) -> None:
    """Has this process look out for the step."""
    step, count, file = told.split("|")
    owner, name, at_end = STEPS[step]
    method: Callable[..., Any] = getattr(owner, name)

    def reached() -> None:
        if _counted(Path(file)) >= int(count):
            os.killpg(int(os.environ["DRIVER"]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # Spark's workers have their own group

    @wraps(method)
    def watched(*args: Any, **options: Any) -> Any:
        if not at_end:
            reached()
        answer = method(*args, **options)
        if at_end:
            reached()
        return answer

    setattr(owner, name, watched)


def _counted(file: Path) -> int:
    """One more, in whatever process; answers how many."""
    with file.open("ab", buffering=0) as counts:
        counts.write(b".")
        return os.fstat(counts.fileno()).st_size


# These are here so that processes of Spark which get one import this module.
class _Source(StreamSource):
    pass


class _Sink(StreamSink):
    pass


class _Storing(Storing):
    pass


class DataSource(TxAwareDataSource):
    """The data source, in processes that may be doomed."""

    def streamReader(self, schema: StructType) -> StreamSource:  # noqa: N802
        return _Source(Options.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        return _Sink(Options.of(self.options), schema)


def copy(spark: SparkSession, url: str, checkpoint: str, way: str) -> None:
    """Copies what is there, in small batches of several tasks."""
    spark.dataSource.register(DataSource)
    reader = spark.readStream.format("txaware").option("url", url).option("topic", "a")
    reader = reader.option("max_messages", MESSAGES_A_BATCH)
    frame = reader.option("part_bytes", BYTES_A_PART).load()
    payload = f.concat(
        f.col("payload").cast("string"), f.lit(" of "), f.spark_partition_id()
    )
    writer = frame.select(payload.alias("payload")).writeStream
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if way == FORMAT:
        writer = writer.format("txaware").option("url", url).option("topic", "b")
        writer = writer.option("timeout_s", TRANSACTION_TIMEOUT_S)
    else:
        batches = publish_batches(url, "b", timeout_s=TRANSACTION_TIMEOUT_S)
        writer = writer.foreachBatch(batches)
    query = writer.start()
    print(BEGINS, flush=True)
    query.awaitTermination()


def main(url: str, checkpoint: str, way: str) -> None:
    """Runs until all is through, or less."""
    os.environ["DRIVER"] = str(os.getpid())
    spark = session(
        "local[2,1]",
        spark_sql_execution_arrow_maxRecordsPerBatch=str(ROWS_A_STORE),
        spark_ui_showConsoleProgress="false",
    )
    try:
        copy(spark, url, checkpoint, way)
    finally:
        spark.stop()


if "DOOMED" in os.environ and __name__ != "__main__":
    for module in (frames, stream_sink):
        vars(module)["Storing"] = _Storing
    doom(os.environ["DOOMED"])

if __name__ == "__main__":
    from tests.support import spark_stream_job  # by name, as Spark's processes do

    spark_stream_job.main(*sys.argv[1:])
