"""`spark.read.format("txaware")`: one consistent snapshot, in parts of equal size."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from tests.support.doubles import Clock
from tests.support.messagings import commit, publish
from tests.support.spark_fixtures import Shared, sharing
from txaware.model.messages import MessageId

pytestmark = pytest.mark.spark

EU_US = ("eu", "us")


def payloads_of(rows: Iterable[Any]) -> list[bytes]:
    return [bytes(row["payload"]) for row in rows]


def publish_each(shared: Shared, count: int, topic: str = "t") -> list[MessageId]:
    """Publishes `0`, `1`, ... and answers their ids."""
    for number in range(count):
        shared.messaging.publish(topic, [b"%d" % number])
    return [message.id for message in shared.messaging.poll(topic, limit=1000)]


def test_messages_have_these_columns(shared: Shared) -> None:
    shared.messaging.publish("t", [b"plain"])
    shared.save(shared.frame("stored"))
    plain, stored = shared.messaging.poll("t")
    rows = shared.reader(topic="t").load().collect()
    for row, message in zip(rows, (plain, stored), strict=True):
        time = datetime.fromtimestamp(message.id.publish_time_ms / 1000, UTC)
        assert row["topic"] == "t"
        assert bytes(row["id"]) == message.id
        assert row["publish_time"].astimezone(UTC) == time
        assert bytes(row["payload"]) == message.payload
    written = datetime.fromtimestamp(stored.id.write_time_ms / 1000, UTC)
    assert rows[0]["write_time"] is None
    assert rows[1]["write_time"].astimezone(UTC) == written


def test_a_schema_asks_for_fewer_columns(shared: Shared) -> None:
    publish_each(shared, 3)
    rows = shared.reader(topic="t").schema("payload binary").load().collect()
    assert [tuple(row) for row in rows] == [(b"0",), (b"1",), (b"2",)]
    reader = shared.reader(topic="t").schema("write_time timestamp, topic string")
    assert reader.load().collect() == [Row(write_time=None, topic="t")] * 3


def test_what_is_committed_after_the_planning_is_not_seen(shared: Shared) -> None:
    messaging = shared.messaging
    committed = messaging.coordinator.start_short(600)
    publish(messaging, b"1", transaction=committed)
    commit(messaging, committed)
    open_now = messaging.coordinator.start_short(600)
    publish(messaging, b"2", transaction=open_now)
    messaging.publish("t", [b"behind it"])
    rdd = shared.reader(topic="t", part_bytes=1).load().rdd
    assert rdd.getNumPartitions() == 1
    commit(messaging, open_now)
    with messaging.transaction():
        messaging.publisher("t").publish(b"later")
    assert payloads_of(rdd.collect()) == [b"1"]
    assert payloads_of(rdd.collect()) == [b"1"]


def test_a_frame_keeps_the_snapshot_of_its_first_action(shared: Shared) -> None:
    frame = shared.reader(topic="t").load()
    shared.messaging.publish("t", [b"1"])
    assert frame.count() == 1
    shared.messaging.publish("t", [b"2"])
    assert frame.count() == 1
    assert payloads_of(frame.select("payload").collect()) == [b"1"]
    assert shared.reader(topic="t").load().count() == 2


def test_a_task_that_is_repeated_reads_the_same_rows(shared: Shared) -> None:
    publish_each(shared, 6)

    def fail_once(rows: Iterable[Row]) -> Iterable[bytes]:
        found = [bytes(row["payload"]) for row in rows]
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("the first attempt of each task")
        return found

    rdd = shared.reader(topic="t", part_bytes=40).load().rdd
    assert rdd.getNumPartitions() > 1
    assert rdd.mapPartitions(fail_once).collect() == [b"%d" % n for n in range(6)]


def test_a_topic_is_cut_into_parts_of_equal_size(shared: Shared) -> None:
    shared.save(shared.numbers(400))  # one reference
    for part_bytes in (2_000, 10**6):
        rdd = shared.reader(topic="t", part_bytes=part_bytes).load().rdd
        sizes = rdd.mapPartitions(lambda rows: iter([len(list(rows))])).collect()
        assert sum(sizes) == 400
        assert (len(sizes) > 3) == (part_bytes == 2_000)
        assert max(sizes) <= 2 * 400 / len(sizes)


def test_several_topics_of_several_namespaces_are_read_at_once(
    shared: Shared,
) -> None:
    for name in ("shop:orders-eu", "shop:orders-us", "shop:other", "empty"):
        shared.messaging.create_topic(name)
        if name != "empty":
            shared.messaging.publish(name, [name.encode()])

    def read(**options: str) -> list[tuple[str, bytes]]:
        frame = shared.reader(**options).schema("topic string, payload binary").load()
        return sorted((row["topic"], bytes(row["payload"])) for row in frame.collect())

    eu, us = [(f"shop:orders-{it}", b"shop:orders-%b" % it.encode()) for it in EU_US]
    assert read(topics="shop:orders-us, empty,shop:orders-eu") == [eu, us]
    assert read(topic_pattern="shop:orders-*") == [eu, us]
    assert read(topic_pattern="none-*") == []
    assert read(topic="empty") == []


def test_where_it_begins_and_ends_is_an_id_or_a_time(shared: Shared) -> None:
    ids = publish_each(shared, 6)
    part = shared.reader(topic="t", start=ids[2], end=ids[4]).load()
    assert payloads_of(part.collect()) == [b"2", b"3"]
    time_ms = ids[3].publish_time_ms
    iso = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    since = shared.reader(topic="t", start=iso).load()
    expected = [n for n, one in enumerate(ids) if one.publish_time_ms >= time_ms]
    assert payloads_of(since.collect()) == [b"%d" % n for n in expected]
    assert shared.reader(topic="t", start="next").load().count() == 0


def test_who_asks_for_it_gets_what_is_not_committed(shared: Shared) -> None:
    messaging = shared.messaging
    tx = messaging.coordinator.start_short()
    response = publish(messaging, b"rolled back", transaction=tx)
    messaging.rollback("t", response)
    messaging.coordinator.abort(tx)
    publish(messaging, b"open", transaction=messaging.coordinator.start_short())
    messaging.publish("t", [b"plain"])
    everything = shared.reader(topic="t", isolation="uncommitted").load()
    assert payloads_of(everything.collect()) == [b"rolled back", b"open", b"plain"]
    assert shared.reader(topic="t").load().count() == 0


def test_a_topic_that_is_deleted_after_the_planning_fails_the_query(
    shared: Shared,
) -> None:
    publish_each(shared, 2)
    rdd = shared.reader(topic="t").load().rdd
    assert rdd.getNumPartitions() == 1
    shared.messaging.delete_topic("t")
    with pytest.raises(PySparkException, match="TopicNotFound"):
        rdd.collect()
    with pytest.raises(PySparkException, match="TopicNotFound"):
        shared.reader(topic="t").load().count()


def test_what_the_time_to_live_removed_since_is_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock()
    with sharing(spark, tmp_path, clock_ms=clock) as shared:
        shared.messaging.update_topic("t", ttl_s=60)
        shared.messaging.publish("t", [b"old"])
        clock.advance_s(50)
        shared.messaging.publish("t", [b"young"])
        rdd = shared.reader(topic="t").load().rdd
        assert rdd.getNumPartitions() == 1
        clock.advance_s(20)
        assert payloads_of(rdd.collect()) == [b"young"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "one of the options topic, topics"),
        ({"topic": "t", "url": ""}, "option url is missing"),
        ({"topic": "t", "url": "memory:"}, "memory: is inside one process"),
        ({"topic": "t", "strat": "first"}, "there is no option strat; start is one"),
        ({"topic": "t", "start": "soon"}, "'soon' is no place in a topic"),
        ({"topic": "t", "isolation": "x"}, "isolation is committed or uncommitted"),
        ({"topic": "nowhere"}, "nowhere"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(
    shared: Shared, options: dict[str, str], why: str
) -> None:
    with pytest.raises(PySparkException, match=why):
        shared.reader(**options).load().count()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("kee binary", "messages have no column kee; they have topic, id"),
        ("payload string", "column payload is binary, not string"),
    ],
)
def test_wrong_columns_are_told_in_a_sentence(
    shared: Shared, schema: str, why: str
) -> None:
    with pytest.raises(PySparkException, match=why):
        shared.reader(topic="t").schema(schema).load().count()
