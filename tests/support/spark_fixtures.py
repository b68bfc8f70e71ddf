"""A real Spark for tests; where it cannot run they are skipped, in CI they fail."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f

import txaware
from coordinator.errors import Unavailable
from coordinator.java.process import find_java
from tests.support.python_process import AS_USUAL
from tests.support.short_run import QUICK_JVM
from tests.support.tephra_fixtures import missing
from txaware.messaging import Messaging

PATIENCE_S = 300
OF_A_HOME = ("bin", "sbin", "jars", "data")
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # A failed stream says why in its exception; the log would say it ten times.
    "spark.log.level": "OFF",
    "spark.driver.extraJavaOptions": QUICK_JVM,
}

# What the workers of a session are forked from, but for a long run.
FORKED = {"spark.python.daemon.module": "tests.support.spark_daemon"}


def pytest_configure(config: pytest.Config) -> None:
    """Gives Spark a home in which its Python is not an archive.

    Each Python that Spark starts would compile the archive anew: a second each time.
    Without a cache of pytest there is no place for it, and Spark finds its own.
    """
    found, cache = find_spec("pyspark"), getattr(config, "cache", None)
    if found is None or found.origin is None or cache is None:
        return
    installed = Path(found.origin).parent
    home = Path(cache.mkdir("spark-home"))
    for name, target in {
        **{each.name: each for each in installed.iterdir() if each.name in OF_A_HOME},
        "python/lib/pyspark.zip": installed.parent,
    }.items():
        link = home / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and link.readlink() != target:
            link.unlink(missing_ok=True)  # of an environment of before
        with suppress(FileExistsError):  # another process of this run made it
            link.symlink_to(target)
    os.environ["SPARK_HOME"] = str(home)


def session(master: str, **conf: str) -> SparkSession:
    """A session of its own kind; `_` stands for `.` in the names of settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("tests of txaware")
    is_forked = master.startswith("local[") and AS_USUAL not in os.environ
    for name, value in {
        **CONF,
        **(FORKED if is_forked else {}),
        **{k.replace("_", "."): v for k, v in conf.items()},
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def remind_spark_of_its_session(spark: SparkSession) -> None:
    """As docs/spark.md says, after Ctrl-C and in a new thread."""
    spark.createDataFrame([], "n int")


@pytest.fixture(scope="session")
def spark_java() -> str:
    """A Java for Spark."""
    try:
        return find_java()
    except Unavailable as error:
        missing(str(error))


@pytest.fixture(scope="session")
def spark(spark_java: str) -> Iterator[SparkSession]:
    """One session for all tests that need no more: two tasks at once, three tries."""
    found = session("local[2,3]")
    yield found
    found.stop()


@attrs.frozen
class Shared:
    """A directory of this process, served to Spark's."""

    messaging: Messaging
    url: str
    spark: SparkSession

    def frame(self, *payloads: bytes | str, tasks: int = 2) -> DataFrame:
        """Rows to publish, in so many tasks."""
        rows = [
            (each.encode() if isinstance(each, str) else each,) for each in payloads
        ]
        return self.spark.createDataFrame(rows, "payload binary").repartition(tasks)

    def numbers(self, count: int, tasks: int = 2) -> DataFrame:
        """The payloads `0` to `count - 1`, in order within each task."""
        numbers = self.spark.range(0, count, 1, tasks)
        return numbers.select(f.col("id").cast("string").alias("payload"))

    def reader(self, **options: object) -> DataFrameReader:
        """What reads here."""
        reader = self.spark.read.format("txaware").option("url", self.url)
        return reader.options(**{name: str(value) for name, value in options.items()})

    def save(
        self, frame: DataFrame, *, source: str = "txaware", **options: object
    ) -> None:
        """Saves to topic `t`, unless an option names another; None is no option."""
        texts = {
            name: str(value)
            for name, value in {"url": self.url, "topic": "t", **options}.items()
            if value is not None
        }
        frame.write.format(source).mode("append").options(**texts).save()

    def published(self, topic: str) -> list[bytes]:
        """What is committed, in its order."""
        consumer, found = self.messaging.consumer(topic), []
        while page := consumer.poll(10_000):
            found += [message.payload for message in page]
        return found


@contextmanager
def sharing(spark: SparkSession, folder: Path, **options: Any) -> Iterator[Shared]:
    """A messaging with the topic `t`, and the address that Spark is given."""
    url = f"leveldb:{folder / 'data'}"
    with txaware.connect(url, **options) as messaging, messaging.serve():
        messaging.create_topic("t")
        yield Shared(messaging, url, spark)


@pytest.fixture
def shared(spark: SparkSession, tmp_path: Path) -> Iterator[Shared]:
    """A directory of this test, with the topic `t`."""
    with sharing(spark, tmp_path) as found:
        yield found


@attrs.frozen
class Stream:
    """A query from topic `in` to `t`, from one checkpoint."""

    shared: Shared
    checkpoint: Path

    def run(
        self, change: Callable[[DataFrame], DataFrame] | None = None, **options: str
    ) -> None:
        """Until all that is there is through."""
        query = self.start(change, **options)
        try:
            assert query.awaitTermination(PATIENCE_S)
        finally:
            query.stop()

    def start(
        self, change: Callable[[DataFrame], DataFrame] | None = None, **options: str
    ) -> Any:
        reader = self.shared.spark.readStream.format("txaware")
        reader = reader.option("url", self.shared.url).option("topic", "in")
        frame = reader.option("max_messages", 3).load().select("payload")
        writer = (change or (lambda same: same))(frame).writeStream.format("txaware")
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer = writer.options(url=self.shared.url, **{"topic": "t", **options})
        return writer.trigger(availableNow=True).start()

    def forget_last_commit(self) -> None:
        """As if Spark had been killed before it noted that the batch is done."""
        folder = self.checkpoint / "commits"
        last = max(int(file.name) for file in folder.iterdir() if file.name.isdigit())
        (folder / f"{last}").unlink()
        (folder / f".{last}.crc").unlink(missing_ok=True)
