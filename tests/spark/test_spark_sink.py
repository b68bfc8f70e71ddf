"""`df.write.format("txaware")`: one transaction for each save, all of it or nothing."""

from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import txaware
from tests.support.concurrency import until
from tests.support.spark_fixtures import Shared
from tests.support.traces import Traces, id_of, parent_of, trace_of

pytestmark = pytest.mark.spark
MIB = 1 << 20


def numbers(payloads: Iterable[bytes]) -> list[int]:
    return sorted(map(int, payloads))


def test_a_save_publishes_all_rows_at_once(shared: Shared) -> None:
    shared.save(shared.numbers(1000))
    assert numbers(shared.published("t")) == list(range(1000))
    assert len(shared.messaging.peek("t")) == 1
    assert not shared.messaging.coordinator.open_transactions()  # type: ignore[attr-defined]


def test_the_rows_of_a_task_keep_their_order(shared: Shared) -> None:
    shared.save(shared.numbers(300, tasks=1))
    assert [int(each) for each in shared.published("t")] == list(range(300))


def test_saves_come_one_behind_the_other(shared: Shared) -> None:
    shared.save(shared.frame("1"))
    shared.messaging.direct_publisher("t").publish(b"2")
    shared.save(shared.frame("3"), url=shared.messaging.reach().url)
    assert shared.published("t") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("tasks", [1, 3])
def test_few_rows_or_none_may_be_spread_over_many_tasks(
    shared: Shared, tasks: int
) -> None:
    shared.save(shared.numbers(1, tasks))
    shared.save(shared.numbers(0, tasks))
    shared.save(shared.spark.createDataFrame([], "payload binary"))
    assert shared.published("t") == [b"0"]
    assert len(shared.messaging.peek("t")) == 1


def test_a_column_chooses_the_topic_and_the_option_is_for_rows_without(
    shared: Shared,
) -> None:
    for number in range(12):
        shared.messaging.create_topic(f"of-{number}")
    topic = f.when(f.col("payload") < 12, f.concat(f.lit("of-"), "payload"))
    shared.save(shared.numbers(20).withColumn("topic", topic))
    for number in range(12):
        assert shared.published(f"of-{number}") == [b"%d" % number]
    assert numbers(shared.published("t")) == list(range(12, 20))


def test_a_column_of_seconds_chooses_the_lifetime(shared: Shared) -> None:
    short_s = f.when(f.col("payload") % 2 == 0, 0.5)
    frame = shared.numbers(10).withColumn("expire_after_s", short_s)
    shared.save(frame)
    assert until(lambda: len(shared.published("t")) <= 5, timeout_s=30)
    assert numbers(shared.published("t")) == [1, 3, 5, 7, 9]


def test_texts_bytes_and_large_payloads_arrive_as_they_were(shared: Shared) -> None:
    shared.save(shared.frame(b"\0\xff", b"", tasks=1))
    shared.save(shared.spark.createDataFrame([("grün",)], "payload string"))
    large = f.expr(f"repeat(cast(id % 10 as string), {MIB})").alias("payload")
    shared.save(shared.spark.range(0, 24, 1, 1).select(large))
    first, *found = shared.published("t")
    assert [first, *found[:2]] == [b"\0\xff", b"", "grün".encode()]
    assert found[2:] == [b"%d" % (number % 10) * MIB for number in range(24)]


# What is wrong is told by one sentence, at the end of what Spark tells


def cast_to(kind: str, name: str = "payload") -> Callable[[DataFrame], DataFrame]:
    return lambda frame: frame.withColumn(name, f.lit(1).cast(kind))


def unchanged(frame: DataFrame) -> DataFrame:
    return frame


NOT_PLANNED: list[tuple[dict[str, Any], Any, str]] = [
    ({"url": None}, unchanged, "BadRequest: option url is missing: http://HOST:PORT"),
    ({"url": "memory:"}, unchanged, "BadRequest: memory: is inside one process, and "),
    ({"url": "leveldb:/none"}, unchanged, "Unavailable: leveldb:/none is served by no"),
    ({"topic": None}, unchanged, "BadRequest: no topic is named: there is neither"),
    ({"topic": "none"}, unchanged, "TopicNotFound: topic none does not exist"),
    ({"topics": "t"}, unchanged, "BadRequest: option topics is for read, readStream"),
    ({"timeout": 5}, unchanged, "BadRequest: there is no option timeout; timeout_s is"),
    ({"timeout_s": "0"}, unchanged, "BadRequest: timeout_s is a number of seconds ab"),
    ({"save_id": "a b"}, unchanged, "BadRequest: 'a b' is no save_id; letters, digit"),
    ({"save_id": "a", "topic": None}, cast_to("string", "topic"), "needs option topic"),
    ({}, cast_to("int"), "BadRequest: column payload is binary or string, not int;"),
    ({}, cast_to("int", "topic"), "BadRequest: column topic is string, not int"),
    ({}, cast_to("int", "key"), "BadRequest: column key is binary or string, not int"),
    ({}, cast_to("int", "kee"), "has a column payload (binary or string), and may ha"),
]


@pytest.mark.parametrize(("options", "change", "told"), NOT_PLANNED)
def test_what_is_wrong_is_told_before_any_task_runs(
    shared: Shared, options: dict[str, Any], change: Any, told: str
) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        shared.save(change(shared.frame("1")), **options)
    assert told in str(caught.value)
    assert shared.published("t") == []
    assert not shared.messaging.coordinator.open_transactions()  # type: ignore[attr-defined]


def test_topics_are_not_overwritten(shared: Shared) -> None:
    shared.save(shared.frame("1"))
    writer = shared.frame("2").write.format("txaware").options(url=shared.url)
    with pytest.raises(Exception, match=r'only added to: use mode\("append"\)'):
        writer.option("topic", "t").mode("overwrite").save()
    assert shared.published("t") == [b"1"]


NO_ROWS: list[tuple[str, str, object, str]] = [
    ("payload", "string", None, "BadRequest: 1 rows have no payload"),
    ("topic", "string", None, "BadRequest: a row has no topic; option topic names the"),
    ("topic", "string", "none", "TopicNotFound: topic none does not exist"),
    ("expire_after_s", "int", 0, "BadRequest: expire_after_s is above 0, not 0.0"),
]


@pytest.mark.parametrize(("column", "kind", "value", "told"), NO_ROWS)
def test_one_row_that_cannot_be_published_keeps_all_from_being_published(
    shared: Shared, column: str, kind: str, value: object, told: str
) -> None:
    good = f.when(f.col("payload") < 9, {"expire_after_s": 60}.get(column, "t"))
    frame = shared.numbers(10).withColumn(
        column, good.otherwise(f.lit(value)).cast(kind)
    )
    topic = None if column == "topic" else "t"
    with pytest.raises(Exception, match="thrown from the Python worker") as caught:
        shared.save(frame, topic=topic)
    assert told in str(caught.value)
    assert shared.published("t") == []
    assert not shared.messaging.coordinator.open_transactions()  # type: ignore[attr-defined]


# A save that has a name is done once


def test_a_save_is_done_once_for_each_save_id(shared: Shared) -> None:
    for save_id in ("monday", "monday", "tuesday", "2026-11-21_23.00"):
        shared.save(shared.frame("1"), save_id=save_id)
    assert shared.published("t") == [b"1"] * 3


def test_a_save_id_that_comes_again_with_other_rows_is_refused(shared: Shared) -> None:
    shared.save(shared.frame("1", "2", "3"), save_id="a")
    told = "save_id a in topic t was published with 3 rows, and comes again with"
    for other in (["1", "2"], ["1", "2", "4"]):
        with pytest.raises(Exception, match=told):
            shared.save(shared.frame(*other), save_id="a")
    shared.save(shared.frame("3", "2", "1", tasks=3), save_id="a")
    shared.save(shared.frame("4"), save_id="a", repeat_by="number")
    assert sorted(shared.published("t")) == [b"1", b"2", b"3"]
    assert not shared.messaging.coordinator.open_transactions()  # type: ignore[attr-defined]


def test_a_topic_that_is_made_anew_has_no_saves_that_are_done(shared: Shared) -> None:
    shared.save(shared.frame("1"), save_id="a")
    shared.messaging.delete_topic("t")
    shared.messaging.create_topic("t")
    for _ in range(2):
        shared.save(shared.frame("2"), save_id="a")
    assert shared.published("t") == [b"2"]


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_keys_and_headers_go_there_and_back(shared: Shared, kind: str) -> None:
    rows = [("a", "ann", {"source": "till 3"}), ("b", None, None), ("c", "", {})]
    frame = shared.spark.createDataFrame(
        rows, "payload string, key string, headers map<string, string>"
    ).select("payload", f.col("key").cast(kind), f.expr(_headers_as(kind)))
    shared.save(frame.coalesce(1))
    page = shared.messaging.poll("t", isolation="committed")
    assert [(one.payload, one.key, one.headers) for one in page] == [
        (b"a", b"ann", {"source": b"till 3"}),
        (b"b", None, {}),
        (b"c", b"", {}),
    ]
    reader = shared.reader(topic="t")
    read = reader.load().select("payload", "key", "headers", "time").collect()
    assert [(bytes(row.payload), row.key, row.headers) for row in read] == [
        (one.payload, one.key, one.headers) for one in page
    ]
    assert [row.time.astimezone(UTC) for row in read] == [one.time for one in page]


def test_a_trace_goes_through_spark(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows have the context of the publisher in their headers, and take it along."""
    shared.messaging.create_topic("paid")
    with Traces.of_a_test(monkeypatch) as traces:
        shared.messaging.publisher("t").publish(b"a", key=b"k", headers={"h": b"1"})
        read = shared.reader(topic="t").load().select("payload", "key", "headers")
        shared.save(read, topic="paid")

        def handle(message: txaware.Message) -> None:
            assert (message.key, message.headers["h"]) == (b"k", b"1")

        assert shared.messaging.subscribe("paid", handle, group="g").run_once() == 1
        publish, process = map(traces.one, ("publish t", "process paid"))
    assert parent_of(process) == id_of(publish)
    assert trace_of(process) == trace_of(publish)


def _headers_as(kind: str) -> str:
    return f"transform_values(headers, (name, value) -> cast(value as {kind})) headers"
