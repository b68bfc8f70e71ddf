"""Who changed which dataset, and from what: events of a workflow, as a daily report.

Each step of a workflow changes the state of a dataset, and tells of it to two topics in
the same transaction: `audit` (who, and what they did) and `lineage` (from which inputs,
how many rows, how long it took). So the two agree with the state, always: a step that
fails leaves neither a version nor an event.

Spark reads both topics in one snapshot, keeps them as Parquet tables with a folder for
each day, and makes the report and a chart of those.

    pip install '.[spark,examples]'      (and Java 17; `examples` is for the chart)
    python examples/pipelines/lineage_report.py --out report

Without `--out DIR` nothing is kept. `--data DIR` keeps the topics, in a new directory.

Prints:
2026-03-03: revenue failed, and nobody hears of it
3 datasets changed 11 times: 11 audit and 11 lineage events tell of it
day         dataset    version   rows  minutes  changed by   made from
2026-03-02  customers        1    410        4  ingest       crm
2026-03-02  orders           1  1,240        9  ingest       shop
2026-03-02  revenue          1    870       21  nightly      customers v1, orders v1
2026-03-03  customers        3    841       10  ann, ingest  crm
2026-03-03  orders           2  1,390       11  ingest       shop
2026-03-03  revenue          2    955       26  nightly      customers v3, orders v2
2026-03-04  customers        4    433        5  ingest       crm
2026-03-04  orders           4  1,911       19  bob, ingest  shop
2026-03-04  revenue          3  1,020       24  nightly      customers v4, orders v4
drawn: lineage.png
"""

import argparse
import json
import os
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

import txaware
from coordinator import Transaction

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

AUDIT = "who string, what string, dataset string, version int"
LINEAGE = "dataset string, version int, inputs array<string>, rows int, seconds int"
FOREVER_S = 2_147_483_647


@attrs.frozen
class Step:
    """Makes a new version of a dataset."""

    dataset: str
    inputs: tuple[str, ...]
    rows: int
    minutes: int
    who: str = "ingest"
    fails: bool = False


DAYS = {
    datetime(2026, 3, 2, 1, tzinfo=UTC): [
        Step("orders", ("shop",), 1240, 9),
        Step("customers", ("crm",), 410, 4),
        Step("revenue", ("customers", "orders"), 870, 21, who="nightly"),
    ],
    datetime(2026, 3, 3, 1, tzinfo=UTC): [
        Step("orders", ("shop",), 1390, 11),
        Step("customers", ("crm",), 420, 4),
        Step("customers", ("crm",), 421, 6, who="ann"),
        Step("revenue", ("customers", "orders"), 0, 3, who="nightly", fails=True),
        Step("revenue", ("customers", "orders"), 955, 26, who="nightly"),
    ],
    datetime(2026, 3, 4, 1, tzinfo=UTC): [
        Step("orders", ("shop",), 1450, 12),
        Step("orders", ("shop",), 461, 7, who="bob"),
        Step("customers", ("crm",), 433, 5),
        Step("revenue", ("customers", "orders"), 1020, 24, who="nightly"),
    ],
}


class Clock:
    """Days go by while this program runs; a real one needs none."""

    def __init__(self) -> None:
        self.now = min(DAYS)

    def ms(self) -> int:
        return round(self.now.timestamp() * 1000)


class Versions:
    """The state of the workflow: which version of each dataset there is."""

    transaction_aware_name = "versions"

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []

    def start_tx(self, tx: Transaction) -> None:
        self._tx, self._new = tx, list[str]()

    def update_tx(self, tx: Transaction) -> None:
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return [dataset.encode() for dataset in self._new]

    def commit_tx(self) -> bool:
        self._rows += [(self._tx.write_pointer, dataset) for dataset in self._new]
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        self._rows = [row for row in self._rows if row[0] not in self._tx.pointers]
        return True

    def of(self, dataset: str) -> int:
        """Its version, as the transaction sees it; 0 for what comes from elsewhere."""
        visible = [name for pointer, name in self._rows if self._tx.is_visible(pointer)]
        return [*visible, *self._new].count(dataset)

    def raised(self, dataset: str) -> int:
        """Its next version, which is there with the commit."""
        self._new.append(dataset)
        return self.of(dataset)


def run(
    step: Step, *, messaging: txaware.Messaging, versions: Versions, clock: Clock
) -> None:
    """A step, its version and its two events are one transaction."""
    audit, lineage = messaging.publisher("audit"), messaging.publisher("lineage")
    with messaging.transaction(versions, timeout_s=3600):
        inputs = [
            f"{name} v{versions.of(name)}" if versions.of(name) else name
            for name in step.inputs
        ]
        told = {"dataset": step.dataset, "version": versions.raised(step.dataset)}
        audit.publish(event(who=step.who, what="write", **told))
        clock.now += timedelta(minutes=step.minutes)  # here the work is done
        if step.fails:
            raise RuntimeError(f"{step.dataset} failed")
        seconds = step.minutes * 60
        lineage.publish(event(inputs=inputs, rows=step.rows, seconds=seconds, **told))


def event(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def work(messaging: txaware.Messaging, clock: Clock) -> None:
    """The three days of the workflow."""
    for topic in ("audit", "lineage"):
        messaging.create_topic(topic, ttl_s=FOREVER_S)
    versions = Versions()
    for day, steps in DAYS.items():
        clock.now = day
        for step in steps:
            try:
                run(step, messaging=messaging, versions=versions, clock=clock)
            except RuntimeError as error:
                print(f"{day:%Y-%m-%d}: {error}, and nobody hears of it")
    with messaging.transaction(versions):
        names = sorted({step.dataset for steps in DAYS.values() for step in steps})
        changes = sum(versions.of(name) for name in names)
        told = [len(messaging.consumer(name).poll()) for name in ("audit", "lineage")]
    assert told == [changes, changes], f"{changes} changes, and {told} events"
    print(
        f"{len(names)} datasets changed {changes} times: {told[0]} audit and "
        f"{told[1]} lineage events tell of it"
    )


def keep(spark: SparkSession, *, url: str, tables: Path) -> None:
    """Both topics of one snapshot as Parquet tables, with a folder for each day."""
    events = (
        spark.read.format("txaware")
        .option("url", url)
        .option("topics", "audit, lineage")
        .load()
        .persist()  # or each of the tables would be of a snapshot of its own
    )
    for topic, schema in (("audit", AUDIT), ("lineage", LINEAGE)):
        fields = f.from_json(f.col("payload").cast("string"), schema)
        (
            events.where(f.col("topic") == topic)
            .select(f.to_date("publish_time").alias("day"), fields.alias("event"))
            .select("day", "event.*")
            .write.mode("overwrite")
            .partitionBy("day")
            .parquet(str(tables / topic))
        )
    events.unpersist()


def report(spark: SparkSession, tables: Path) -> list[Row]:
    """A row for each dataset that changed on a day."""
    audit = spark.read.parquet(str(tables / "audit"))
    lineage = spark.read.parquet(str(tables / "lineage"))
    daily = (
        lineage.join(audit, ["day", "dataset", "version"])
        .groupBy("day", "dataset")
        .agg(
            f.max("version").alias("version"),
            f.sum("rows").alias("rows"),
            (f.sum("seconds") / 60).cast("int").alias("minutes"),
            f.array_join(f.array_sort(f.collect_set("who")), ", ").alias("who"),
            f.array_join(f.max_by("inputs", "version"), ", ").alias("inputs"),
        )
    )
    return daily.orderBy("day", "dataset").collect()


def show(rows: list[Row]) -> None:
    print("day         dataset    version   rows  minutes  changed by   made from")
    for row in rows:
        print(
            f"{row.day}  {row.dataset:9}  {row.version:7}  {row.rows:5,}  "
            f"{row.minutes:7}  {row.who:11}  {row.inputs}"
        )


def draw(rows: list[Row], path: Path) -> str:
    """Bars for each day, one a dataset: what was written, and how long it took."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "not drawn: pip install '.[examples]' brings matplotlib"
    days = sorted({row.day for row in rows})
    datasets = sorted({row.dataset for row in rows})
    width = 0.8 / len(datasets)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    figure.suptitle("What the workflow wrote, by day and dataset")
    left, right = figure.subplots(1, 2)
    for axes, column in ((left, "rows"), (right, "minutes")):
        for number, dataset in enumerate(datasets):
            mine = [row for row in rows if row.dataset == dataset]
            shift = (number - (len(datasets) - 1) / 2) * width
            places = [days.index(row.day) + shift for row in mine]
            bars = axes.bar(places, [row[column] for row in mine], width, label=dataset)
            axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=2)
        axes.set_xticks(range(len(days)), [f"{day:%a %d %b %Y}" for day in days])
        axes.set_xlabel("day (UTC)")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("rows written")
    left.yaxis.set_major_formatter("{x:,.0f}")
    right.set_ylabel("minutes of work")
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=9
    )
    figure.savefig(path, dpi=120)
    return f"drawn: {path.name}"


def main(data: Path, out: Path) -> None:
    clock = Clock()
    with (
        txaware.connect(f"leveldb:{data}", clock_ms=clock.ms) as messaging,
        messaging.serve() as server,
        session() as spark,
    ):
        work(messaging, clock)
        keep(spark, url=server.url, tables=out)
        rows = report(spark, out)
    show(rows)
    print(draw(rows, out / "lineage.png"))


def session() -> SparkSession:
    """Spark in this process, which says nothing but errors."""
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
        parser.add_argument("--data", type=Path, default=Path(scratch, "data"))
        parser.add_argument("--out", type=Path, default=Path(scratch, "out"))
        main(**vars(parser.parse_args()))
