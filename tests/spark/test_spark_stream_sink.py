"""`df.writeStream.format("txaware")`: every micro-batch once, whoever repeats it."""

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.support.spark_fixtures import (
    PATIENCE_S,
    Shared,
    Stream,
    remind_spark_of_its_session,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(shared: Shared, tmp_path: Path) -> Stream:
    """With the messages `0` to `4`, which are two batches."""
    shared.messaging.create_topic("in")
    shared.messaging.publish("in", [b"%d" % number for number in range(5)])
    return Stream(shared, tmp_path / "checkpoint")


def failing_once(flag: Path) -> Callable[[DataFrame], DataFrame]:
    """Fails tasks that have a `4` while a file is there, when half of it is stored."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if flag.exists() and b"4" in batch.column("payload").to_pylist():
                raise ValueError("this task fails")

    return lambda frame: frame.mapInArrow(check, "payload binary")


def test_a_stream_goes_on_after_its_last_commit_was_not_noted(stream: Stream) -> None:
    stream.run()
    assert stream.shared.published("t") == [b"0", b"1", b"2", b"3", b"4"]
    assert len(stream.shared.messaging.peek("t")) == 2  # a row for each batch
    stream.forget_last_commit()
    stream.shared.messaging.publish("in", [b"5"])
    stream.run()
    assert stream.shared.published("t") == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_in_a_new_thread_a_frame_makes_spark_find_the_source(stream: Stream) -> None:
    def run() -> None:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            stream.run()
        remind_spark_of_its_session(stream.shared.spark)
        stream.run()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result()
    assert len(stream.shared.published("t")) == 5


def test_a_task_that_fails_ends_the_stream_and_a_restart_publishes_once(
    stream: Stream, tmp_path: Path
) -> None:
    flag = tmp_path / "fails"
    flag.touch()
    with pytest.raises(StreamingQueryException, match="this task fails"):
        stream.run(failing_once(flag))
    assert stream.shared.published("t") == [b"0", b"1", b"2"]
    flag.unlink()
    stream.run(failing_once(flag))
    assert stream.shared.published("t") == [b"0", b"1", b"2", b"3", b"4"]


def test_two_streams_into_one_topic_and_a_new_checkpoint_publish_all_of_theirs(
    stream: Stream, tmp_path: Path
) -> None:
    other = attrs.evolve(stream, checkpoint=tmp_path / "another")
    queries = [stream.start(), other.start()]
    assert all(query.awaitTermination(PATIENCE_S) for query in queries)
    published = stream.shared.published("t")
    assert sorted(published) == sorted([b"0", b"1", b"2", b"3", b"4"] * 2)


def test_a_stream_that_is_stopped_in_mid_batch_goes_on_with_that_batch(
    stream: Stream, tmp_path: Path
) -> None:
    began, goes_on = tmp_path / "began", tmp_path / "goes on"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            began.touch()
            while not goes_on.exists():
                time.sleep(0.05)

    def held(frame: DataFrame) -> DataFrame:
        return frame.mapInArrow(hold, "payload binary")

    query = stream.start(held)
    until_s = time.monotonic() + PATIENCE_S
    while not began.exists():
        assert query.isActive, query.exception()
        assert time.monotonic() < until_s
        time.sleep(0.05)
    query.stop()
    goes_on.touch()
    assert stream.shared.published("t") == []
    stream.run(held)
    assert stream.shared.published("t") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_column_names_the_topic_of_a_row(stream: Stream) -> None:
    stream.shared.messaging.create_topic("others")
    is_other = f.col("payload").cast("string") >= "2"
    topic = f.when(is_other, "others").alias("topic")
    stream.run(lambda frame: frame.select("payload", topic))
    assert stream.shared.published("t") == [b"0", b"1"]
    assert stream.shared.published("others") == [b"2", b"3", b"4"]


@pytest.mark.parametrize("batches_lost", [1, 2])
def test_a_checkpoint_restored_from_an_earlier_copy_loses_nothing_unsaid(
    stream: Stream, tmp_path: Path, batches_lost: int
) -> None:
    """What comes after it has the numbers of batches that were published, not more."""
    messaging = stream.shared.messaging
    stream.run()
    earlier = tmp_path / "earlier"
    shutil.copytree(stream.checkpoint, earlier)
    for number in range(batches_lost):
        messaging.publish("in", [b"after the copy %d" % number])
        stream.run()
    messaging.publish("in", [b"later"])
    before = stream.shared.published("t")
    restored = attrs.evolve(stream, checkpoint=earlier)
    with pytest.raises(StreamingQueryException, match="Nothing of it is published"):
        restored.run()
    assert stream.shared.published("t") == before
    restored.run(name="restored")
    again = stream.shared.published("t")[len(before) :]
    assert again[-1] == b"later"
    assert len(again) == batches_lost + 1
