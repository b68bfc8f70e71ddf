"""The measures of Spark: saves, reads, a stream, and the memory of its workers."""

import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.benchmarks.spark_limits import SparkLimits
from txaware.bench.measure import Figure, in_turns
from txaware.bench.server import MIB, BenchServer, serving
from txaware.bench.trial import Trial, batches, payloads
from txaware.messaging import Messaging, connect
from txaware.spark.data_source import TxAwareDataSource

ROWS, STREAMED, PARTS = 1_000_000, 200_000, 4
PER_REQUEST = 100
# The time that the server may take to come to rest.
REST_S = 30


@attrs.frozen
class Bench:
    """A session of two tasks at once, and a server in a process of its own."""

    spark: SparkSession
    messaging: Messaging
    server: BenchServer
    directory: Path

    @property
    def url(self) -> str:
        """The address of the server."""
        return self.server.url

    def rest(self) -> None:
        """Returns when the server has nothing left to do of what came before."""
        before_s = self.server.cpu_s()
        for _ in range(4 * REST_S):
            time.sleep(0.5)
            now_s = self.server.cpu_s()
            if now_s - before_s < 0.05:
                return
            before_s = now_s

    def orders(self, count: int) -> DataFrame:
        """Returns rows of 100 bytes of JSON."""
        order = f.struct(
            f.col("id").alias("order"),
            (f.col("id") % 1000).alias("customer"),
            f.sha2(f.col("id").cast("string"), 256).alias("note"),
        )
        rows = self.spark.range(0, count, 1, PARTS)
        return rows.select(f.rpad(f.to_json(order), 100, " ").alias("payload"))

    def topic(self, name: str) -> str:
        """Makes a new topic, in place of one of that name."""
        if name in self.messaging.topics():
            self.messaging.delete_topic(name)
        self.messaging.create_topic(name)
        return name

    def save(self, rows: DataFrame, topic: str) -> None:
        """Publishes rows in one transaction."""
        writer = rows.write.format("txaware").option("url", self.url)
        writer.option("topic", topic).mode("append").save()

    def read(self, topic: str, **options: int) -> DataFrame:
        """Returns the messages of a topic."""
        reader = self.spark.read.format("txaware").option("url", self.url)
        return reader.option("topic", topic).options(**options).load()


@contextmanager
def opened(trial: Trial) -> Iterator[Bench]:
    """Starts Spark with two tasks at once, and a server, and warms both."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("txaware bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    }.items():
        builder = builder.config(name, value)
    with serving(trial.directory / "spark", trial.settings) as server:
        spark = builder.getOrCreate()
        try:
            spark.dataSource.register(TxAwareDataSource)
            spark.dataSource.register(SparkLimits)
            with connect(server.url) as messaging:
                bench = Bench(spark, messaging, server, trial.directory)
                _warm(bench)
                yield bench
        finally:
            spark.stop()


def write(trial: Trial) -> list[Figure]:
    """Measures saves beside the same job with a sink that keeps nothing."""
    count = trial.count(ROWS)
    with opened(trial) as bench:
        rows = bench.orders(count)

        def save() -> float:
            topic = bench.topic("saved")
            bench.rest()
            began_s = time.perf_counter()
            bench.save(rows, topic)
            return count / (time.perf_counter() - began_s)

        def throw_away() -> float:
            bench.rest()
            began_s = time.perf_counter()
            rows.write.format("txaware-limits").mode("append").save()
            return count / (time.perf_counter() - began_s)

        found = in_turns(trial.rounds, saved=save, thrown=throw_away)
    name = f"a) save of {count:,} rows of 100 bytes"
    return [
        Figure(
            name, "rows/s", found["saved"], found["thrown"], "thrown away", at_least=0.3
        )
    ]


def read(trial: Trial) -> list[Figure]:
    """Measures reads of what a save has published, beside rows that are made up."""
    count = trial.count(ROWS)
    with opened(trial) as bench:
        topic = bench.topic("read")
        bench.save(bench.orders(count), topic)
        made_up = bench.spark.read.format("txaware-limits").options(
            rows=count, parts=2 * PARTS
        )

        def timed(frame: DataFrame) -> float:
            began_s = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            return count / (time.perf_counter() - began_s)

        found = in_turns(
            trial.rounds,
            read=lambda: timed(bench.read(topic)),
            made_up=lambda: timed(made_up.load()),
        )
        assert bench.read(topic).count() == count, "the read lost rows"
    name = f"b) read of {count:,} rows of 100 bytes"
    return [
        Figure(name, "rows/s", found["read"], found["made_up"], "made up", at_least=0.3)
    ]


def stream(trial: Trial) -> list[Figure]:
    """Measures a stream that reads what is published meanwhile, at full speed."""
    count = trial.count(STREAMED)
    with opened(trial) as bench:
        published, streamed, latencies_ms = [], [], []
        for number in range(max(1, trial.rounds // 2)):
            topic = bench.topic(f"streamed-{number}")
            query = (
                bench.spark.readStream.format("txaware")
                .options(url=bench.url, topic=topic, start="first")
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(bench.directory / topic))
                .start()
            )
            try:
                began_s = time.perf_counter()
                publishing_s = _publish(bench, topic, count)
                query.processAllAvailable()
                took_s = time.perf_counter() - began_s
                progress = [each for each in query.recentProgress if each.numInputRows]
                assert sum(each.numInputRows for each in progress) == count
            finally:
                query.stop()
            published.append(count / publishing_s)
            streamed.append(count / took_s)
            latencies_ms += [each.durationMs["triggerExecution"] for each in progress]
    name = f"c) stream of {count:,} messages"
    latency = statistics.median(latencies_ms)
    return [
        Figure(
            name, "messages/s", streamed, published, "publish of them", at_least=0.7
        ),
        Figure(
            "c) a micro-batch, half take less",
            "ms",
            [latency],
            [float(min(latencies_ms))],
            "the shortest",
        ),
    ]


def memory(trial: Trial) -> list[Figure]:
    """Measures the most memory of a worker, for a partition and for ten times it."""
    count = trial.count(ROWS)
    peaks: list[float] = []
    for rows in (count // 10, count):
        with opened(trial) as bench, _peak_mib() as peak:
            topic = bench.topic("large")
            bench.save(bench.orders(rows).coalesce(1), topic)
            whole = bench.read(topic, part_bytes=1 << 40)
            whole.write.format("noop").mode("overwrite").save()
        peaks.append(peak[0])
    name = f"d) a worker with a partition of {count:,} rows"
    return [
        Figure(name, "MiB", [peaks[1]], [peaks[0]], "with a tenth of it", at_most=1.25)
    ]


def _warm(bench: Bench) -> None:
    """Starts workers, and makes Java compile."""
    topic = bench.topic("warm")
    for _ in range(2):
        bench.save(bench.orders(20_000), topic)
        bench.read(topic).write.format("noop").mode("overwrite").save()
        bench.orders(20_000).write.format("txaware-limits").mode("append").save()


def _publish(bench: Bench, topic: str, count: int) -> float:
    """Publishes a hundred at a time, as `txaware bench http`; returns the time."""
    messages = payloads(count)
    began_s = time.perf_counter()
    for numbers in batches(count, PER_REQUEST):
        piece = messages[numbers.start : numbers.stop]
        bench.messaging.publish(topic, piece)
    return time.perf_counter() - began_s


@contextmanager
def _peak_mib() -> Iterator[list[float]]:
    """Watches the most memory of any Python worker of Spark meanwhile (Linux only)."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max([peak[0], *_workers_mib()])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _workers_mib() -> Iterator[float]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                lines = (process / "status").read_text().splitlines()
                peak = next(line for line in lines if line.startswith("VmHWM:"))
                yield int(peak.split()[1]) * 1024 / MIB
