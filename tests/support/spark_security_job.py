"""A driver that shows all it can: its UI, its event log, and its log at level INFO.

`URL FOLDER`: in the folder there are `token` and `other_token`; a third one is in the
environment. Everything that Spark shows or keeps goes there, or is printed.
"""

import json
import sys
import traceback
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import txaware
from tests.support.short_run import QUICK_JVM
from tests.support.spark_fixtures import session
from txaware.spark import publish_batches, store_frame

PAGES = (
    *("jobs/", "stages/", "storage/", "environment/", "executors/", "SQL/"),
    *("StreamingQuery/", "api/v1/applications"),
)
OF_APPLICATION = (
    *("environment", "jobs", "stages?details=true", "allexecutors"),
    "sql?details=true&planDescription=true&length=1000",
)


class Job:
    """Topics read and written in every way, with every way to name a token."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder
        self.token = (folder / "token").read_text()
        self.ways: list[dict[str, str]] = [
            {"token": self.token},
            {"token_file": str(folder / "other_token")},
            {},
        ]

    def run(self) -> None:
        for way in self.ways:
            options = {"url": self.url, "topic": "t", **way}
            self.save(options)
            self.read(options)
        self.explain({"url": self.url, "topic": "t", **self.ways[0]})
        self.fail({"url": self.url, "topic": "t", **self.ways[0]})
        self.stream({"url": self.url, "topic": "t", **self.ways[0]})
        self.frames()
        self.keep_pages()

    def rows(self) -> DataFrame:
        return self.spark.range(0, 4, 1, 2).selectExpr("cast(id as string) as payload")

    def save(self, options: dict[str, str]) -> None:
        writer = self.rows().write.format("txaware").mode("append")
        writer.options(**options).save()

    def loaded(self, options: dict[str, str]) -> DataFrame:
        return self.spark.read.format("txaware").options(**options).load()

    def read(self, options: dict[str, str]) -> None:
        frame = self.loaded(options)
        print(repr(frame), frame.schema, frame.count())
        frame.explain("extended")

    def explain(self, options: dict[str, str]) -> None:
        """Prints all that a plan shows of its options."""
        frame = self.loaded(options)
        for mode in ("extended", "formatted", "cost", "codegen"):
            frame.filter(f.col("topic") == "t").explain(mode)
        frame.createOrReplaceTempView("messages")
        self.spark.sql("describe extended messages").show(100, truncate=False)
        print(self.spark.sql("select count(*) from messages").collect())

    def fail(self, options: dict[str, str]) -> None:
        """Prints what users see when something is wrong."""
        none = self.rows().withColumn("payload", f.lit(None).cast("string"))
        for name, wrong in {"topic": "none", "timeouts": "1"}.items():
            changed = {**options, name: wrong}
            told(partial(self.save, changed))
            told(self.loaded(changed).count)
        writer = none.write.format("txaware").mode("append").options(**options)
        told(writer.save)

    def stream(self, options: dict[str, str]) -> None:
        source = self.spark.readStream.format("txaware").options(**options).load()
        payloads = source.select("payload").writeStream.trigger(availableNow=True)
        to_u = payloads.format("txaware").options(**{**options, "topic": "u"})
        each = payloads.foreachBatch(publish_batches(self.url, "u"))
        for number, query in enumerate((to_u, each)):
            kept = self.folder / f"checkpoint-{number}"
            started = query.option("checkpointLocation", str(kept)).start()
            assert started.awaitTermination(600)
            started.explain(extended=True)
            print(json.dumps(started.recentProgress, default=str), started.exception())

    def frames(self) -> None:
        with txaware.connect(self.url, token=self.token) as messaging:
            with messaging.transaction() as tx:
                print(tx, messaging, repr(tx), messaging.reach())
                store_frame(self.rows(), "t", tx)
            told(lambda: self.frame_to_none(messaging))

    def frame_to_none(self, messaging: txaware.Messaging) -> None:
        frame = self.rows().withColumn("topic", f.lit("none"))
        with messaging.transaction() as tx:
            store_frame(frame, None, tx)

    def keep_pages(self) -> None:
        """Keeps what the UI and its REST show."""
        ui = str(self.spark.sparkContext.uiWebUrl)
        application = f"api/v1/applications/{self.spark.sparkContext.applicationId}"
        pages = [*PAGES, *(f"{application}/{name}" for name in OF_APPLICATION)]
        sql: list[Any] = json.loads(fetched(f"{ui}/{pages[-1]}"))
        pages += [f"SQL/execution/?id={each['id']}" for each in sql]
        for number, page in enumerate(pages):
            (self.folder / f"page-{number}").write_bytes(fetched(f"{ui}/{page}"))
        print(f"{len(pages)} pages, {len(sql)} queries")


def told(call: Callable[[], object]) -> None:
    """Prints the error that a call raises."""
    try:
        call()
    except Exception as error:
        traceback.print_exc()
        print(repr(error))


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        body: bytes = answer.read()
        return body


LOG = """
rootLogger.level = info
logger.spark.name = org.apache.spark
logger.spark.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
"""


def main(url: str, folder: Path) -> None:
    log = folder / "log4j2.properties"
    log.write_text(LOG)
    spark = session(
        "local[2]",
        spark_ui_enabled="true",
        spark_ui_port="0",
        spark_eventLog_enabled="true",
        spark_eventLog_compress="false",
        spark_eventLog_dir=folder.as_uri(),
        spark_log_level="INFO",
        spark_driver_extraJavaOptions=(
            f"{QUICK_JVM} -Dlog4j2.configurationFile={log.as_uri()}"
        ),
    )
    try:
        Job(spark, url, folder).run()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
