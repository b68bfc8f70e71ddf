"""`spark.readStream.format("txaware")`: offsets in the checkpoint, the rows again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.doubles import Clock
from tests.support.messagings import commit, publish
from tests.support.spark_fixtures import Shared, sharing

pytestmark = pytest.mark.spark

TIMEOUT_S = 120


@attrs.define
class Stream:
    """A query whose rows are collected, by batch; it may be run again and again."""

    shared: Shared
    checkpoint: Path
    batches: dict[int, list[bytes]] = attrs.field(factory=dict)
    progress: list[Any] = attrs.field(factory=list)
    before_batch: Callable[[], object] = lambda: None

    def frame(self, **options: object) -> DataFrame:
        reader = self.shared.spark.readStream.format("txaware")
        texts = {"url": self.shared.url, **options}
        return reader.options(**{k: str(text) for k, text in texts.items()}).load()

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        self.before_batch()
        self.batches[batch_id] = [bytes(row["payload"]) for row in frame.collect()]

    def start(self, *, now: bool = False, **options: object) -> StreamingQuery:
        """Starts it; `now` has it end with what is there."""
        writer = self.frame(**options).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        trigger: dict[str, Any] = (
            {"availableNow": True} if now else {"processingTime": "0 seconds"}
        )
        return writer.trigger(**trigger).start()

    def run(self, **options: object) -> list[list[bytes]]:
        """Reads what is there, and answers the batches of this run that have rows."""
        self.batches.clear()
        query = self.start(now=True, **options)
        try:
            assert query.awaitTermination(TIMEOUT_S)
            self.progress = list(query.recentProgress)
        finally:
            query.stop()
        return [rows for _, rows in sorted(self.batches.items()) if rows]

    @property
    def rows(self) -> list[bytes]:
        """What was read since the start, in its order."""
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def last_offset(self) -> dict[str, str]:
        """What the checkpoint says of the last batch."""
        last = max((self.checkpoint / "offsets").glob("[0-9]*"), key=_number)
        offset: dict[str, str] = json.loads(last.read_text().splitlines()[-1])
        return offset

    def forget_last_commit(self) -> None:
        """As if the driver had been killed just before the end of the last batch."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=_number)
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def _number(path: Path) -> int:
    return int(path.name)


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


@pytest.fixture
def stream(shared: Shared, tmp_path: Path) -> Stream:
    """A query that has not been started."""
    return Stream(shared, tmp_path / "checkpoint")


def test_batches_have_at_most_so_many_messages(stream: Stream) -> None:
    stream.shared.messaging.publish("t", numbered(*range(12)))
    rounds = stream.run(topic="t", max_messages=5)
    assert rounds == [numbered(*range(5)), numbered(*range(5, 10)), numbered(10, 11)]
    counts = [progress["numInputRows"] for progress in stream.progress]
    assert [count for count in counts if count] == [5, 5, 2]
    assert stream.run(topic="t", max_messages=5) == []


def test_offsets_are_kept_by_topic_and_go_on_after_a_restart(stream: Stream) -> None:
    messaging = stream.shared.messaging
    messaging.create_topic("u")
    messaging.publish("t", [b"1"])
    messaging.publish("u", [b"2"])
    assert sorted(stream.run(topics="t,u")) in ([[b"1", b"2"]], [[b"2", b"1"]])
    nexts = {name: str(messaging.bounds(name).next) for name in ("t", "u")}
    assert stream.last_offset == nexts
    messaging.publish("u", [b"3"])
    assert stream.run(topics="t,u") == [[b"3"]]
    source = stream.progress[-1]["sources"][0]
    end, latest = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
    assert end == latest == stream.last_offset
    assert json.loads(source["startOffset"]) == nexts


def test_a_batch_that_is_repeated_after_a_crash_has_the_same_rows(
    stream: Stream,
) -> None:
    messaging = stream.shared.messaging
    messaging.publish("t", numbered(1, 2))
    tx = messaging.coordinator.start_short(600)
    publish(messaging, b"3", transaction=tx)
    messaging.publish("t", numbered(4))
    assert stream.run(topic="t") == [numbered(1, 2)]
    stream.forget_last_commit()
    commit(messaging, tx)
    messaging.publish("t", numbered(5))
    assert stream.run(topic="t") == [numbered(1, 2), numbered(3, 4, 5)]


def test_an_open_transaction_holds_up_what_is_behind_it(stream: Stream) -> None:
    messaging = stream.shared.messaging
    query = stream.start(topic="t")
    try:
        first = messaging.coordinator.start_short(600)
        publish(messaging, b"2", transaction=first)
        second = messaging.coordinator.start_short(600)
        publish(messaging, b"never", transaction=second)
        messaging.publish("t", numbered(3))
        query.processAllAvailable()
        assert stream.rows == []
        progress = query.lastProgress
        assert progress is not None
        waiting = json.loads(progress["sources"][0]["latestOffset"])["t"]
        assert waiting == str(messaging.bounds("t").next)
        commit(messaging, first)
        query.processAllAvailable()
        assert stream.rows == numbered(2)
        messaging.coordinator.invalidate(second)
        query.processAllAvailable()
        assert stream.rows == numbered(2, 3)
    finally:
        query.stop()


def test_available_now_ends_though_others_go_on_publishing(stream: Stream) -> None:
    messaging = stream.shared.messaging
    messaging.publish("t", numbered(*range(4)))
    stream.before_batch = lambda: messaging.publish("t", [b"later"])
    assert stream.run(topic="t", max_messages=2) == [numbered(0, 1), numbered(2, 3)]


def test_topics_come_and_go_while_a_query_runs(stream: Stream) -> None:
    messaging = stream.shared.messaging
    query = stream.start(topic_pattern="t*", start="next")
    try:
        query.processAllAvailable()
        messaging.create_topic("t2")
        messaging.publish("t2", numbered(1))
        query.processAllAvailable()
        messaging.delete_topic("t")
        messaging.publish("t2", numbered(2))
        query.processAllAvailable()
        messaging.delete_topic("t2")
        messaging.create_topic("t2")
        messaging.publish("t2", numbered(3))
        query.processAllAvailable()
        assert stream.rows == numbered(1, 2, 3)
    finally:
        query.stop()


def test_a_named_topic_that_is_deleted_ends_the_query(stream: Stream) -> None:
    query = stream.start(topic="t")
    try:
        query.processAllAvailable()
        stream.shared.messaging.delete_topic("t")
        with pytest.raises(StreamingQueryException, match="TopicNotFound"):
            query.awaitTermination(TIMEOUT_S)
    finally:
        query.stop()


def test_a_repeated_batch_lacks_only_what_has_expired(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock()
    with sharing(spark, tmp_path, clock_ms=clock) as shared:
        stream = Stream(shared, tmp_path / "checkpoint")
        shared.messaging.update_topic("t", ttl_s=60)
        shared.messaging.publish("t", numbered(1))
        clock.advance_s(50)
        shared.messaging.publish("t", numbered(2))
        assert stream.run(topic="t") == [numbered(1, 2)]
        stream.forget_last_commit()
        clock.advance_s(20)
        assert stream.run(topic="t") == [numbered(2)]


@pytest.mark.parametrize("start", ["next", "first", "time"])
def test_a_new_query_begins_where_it_is_told(stream: Stream, start: str) -> None:
    messaging = stream.shared.messaging
    messaging.publish("t", numbered(1))
    behind = messaging.bounds("t").next.publish_time_ms + 1
    text = str(behind) if start == "time" else start
    query = stream.start(topic="t", start=text)
    try:
        query.processAllAvailable()
        while messaging.bounds("t").next.publish_time_ms < behind:
            messaging.publish("t", numbered(2))
        query.processAllAvailable()
        found = stream.rows
    finally:
        query.stop()
    assert (b"1" in found, found[-1]) == (start == "first", b"2")


def test_from_topic_to_topic(stream: Stream) -> None:
    messaging = stream.shared.messaging
    messaging.create_topic("copy")
    messaging.publish("t", numbered(*range(20)))
    for more in ((), range(20, 30)):
        if more:
            messaging.publish("t", numbered(*more))
        frame = stream.frame(topic="t", max_messages=8, part_bytes=50)
        writer = frame.select("payload").writeStream.format("txaware")
        writer = writer.option("url", stream.shared.url).option("topic", "copy")
        writer = writer.option("checkpointLocation", str(stream.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
    assert sorted(map(int, stream.shared.published("copy"))) == list(range(30))
