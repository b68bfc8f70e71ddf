"""`publish_batches` and `once_per_batch`: exactly once with `foreachBatch`."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import txaware
from coordinator.remote.client import RemoteCoordinator
from tests.support.doubles import Recorder
from tests.support.spark_fixtures import Shared
from txaware.errors import (
    BadRequest,
    ParticipantFailed,
    TransactionConflict,
    Unavailable,
)
from txaware.messaging import MessagingTransaction
from txaware.publish.outbox import TopicOutbox
from txaware.spark import once_per_batch, publish_batches, store_frame
from txaware.spark.stream_sink import QUERY_ID

pytestmark = pytest.mark.spark

PATIENCE_S = 300


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def in_query(spark: SparkSession) -> Iterator[None]:
    """What is called in the test is called by a query."""
    spark.sparkContext.setLocalProperty(QUERY_ID, uuid4().hex)
    yield
    spark.sparkContext.setLocalProperty(QUERY_ID, None)  # type: ignore[arg-type]


def in_new_run(shared: Shared, work: Callable[[], None]) -> None:
    """As a query does that was started again: what its thread knew is gone."""
    context = shared.spark.sparkContext
    query_id = str(context.getLocalProperty(QUERY_ID))

    def run() -> None:
        context.setLocalProperty(QUERY_ID, query_id)
        context.setLocalProperty(f"txaware.done.t.spark-{query_id}", None)  # type: ignore[arg-type]
        work()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(run).result()


@attrs.define
class Counting:
    """Publishes, and counts how often it is called."""

    calls: int = 0

    def __call__(self, frame: DataFrame, tx: MessagingTransaction) -> None:
        self.calls += 1
        store_frame(frame, "t", tx)


@pytest.mark.usefixtures("in_query")
def test_a_batch_that_is_repeated_calls_nobody_and_publishes_nothing(
    shared: Shared,
) -> None:
    work, table = Counting(), Recorder()
    run = once_per_batch(shared.messaging, "t", work, table)
    run(shared.frame("a", tasks=1), 0)
    table.log.clear()
    in_new_run(shared, lambda: run(shared.frame("a", tasks=1), 0))
    assert table.log == ["start_tx table", "rollback_tx table"]
    run(shared.frame("b", tasks=1), 1)
    assert table.log[-1] == "post_tx_commit table"
    assert work.calls == 2
    assert shared.published("t") == [b"a", b"b"]


@pytest.mark.usefixtures("in_query")
def test_the_table_of_the_user_commits_with_the_rows(shared: Shared) -> None:
    def is_first() -> bool:
        return not shared.messaging.poll("t", isolation="committed")

    table = Recorder(commit_tx=is_first)
    once_per_batch(shared.messaging, "t", Counting(), table)(shared.frame("a"), 0)
    assert table.log == [
        "start_tx table",
        "get_tx_changes table",
        "commit_tx table",
        "post_tx_commit table",
    ]
    assert shared.published("t") == [b"a"]


@pytest.mark.usefixtures("in_query")
def test_work_that_raises_rolls_all_back_and_the_batch_may_come_again(
    shared: Shared,
) -> None:
    table, frame = Recorder(), shared.frame("a")

    def fails(frame: DataFrame, tx: MessagingTransaction) -> None:
        store_frame(frame, "t", tx)
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        once_per_batch(shared.messaging, "t", fails, table)(frame, 0)
    assert table.log == ["start_tx table", "rollback_tx table"]
    assert shared.published("t") == []
    once_per_batch(shared.messaging, "t", Counting(), table)(frame, 0)
    assert shared.published("t") == [b"a"]


@pytest.mark.usefixtures("in_query")
def test_a_table_that_refuses_takes_the_rows_back(shared: Shared) -> None:
    table = Recorder(commit_tx=False)
    with pytest.raises(ParticipantFailed):
        once_per_batch(shared.messaging, "t", Counting(), table)(shared.frame("a"), 0)
    assert shared.published("t") == []


@pytest.mark.usefixtures("in_query")
def test_a_run_that_another_one_overtook_is_refused(shared: Shared) -> None:
    frame = shared.frame("a")

    def overtaken(frame: DataFrame, tx: MessagingTransaction) -> None:
        store_frame(frame, "t", tx)
        tx.joined("overtakes", Overtakes)

    class Overtakes(Recorder):
        """Has another process do the same batch, when this one has done all."""

        def get_tx_changes(self) -> list[bytes]:
            with txaware.connect(shared.messaging.reach().url) as another:
                publish_batches(another, "t")(frame, 0)
            return []

    with pytest.raises(TransactionConflict):
        once_per_batch(shared.messaging, "t", overtaken)(frame, 0)
    assert shared.published("t") == [b"a"]


@pytest.mark.usefixtures("in_query")
def test_readers_do_not_wait_for_a_driver_that_died_before_its_commit(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, frame = shared.messaging.reach().url, shared.frame("a")

    def died(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        for call in ("_commit", "abort", "invalidate"):
            patched.setattr(RemoteCoordinator, call, died)
        patched.setattr(TopicOutbox, "rollback", died)
        with pytest.raises(Killed):
            publish_batches(url, "t")(frame, 0)
    assert shared.messaging.consumer("t").poll().blocked_by is not None
    publish_batches(url, "t")(frame, 0)
    assert shared.published("t") == [b"a"]


def test_outside_of_a_query_it_says_what_it_is_for(shared: Shared) -> None:
    with pytest.raises(BadRequest, match="for foreachBatch, and no streaming query"):
        publish_batches(shared.messaging, "t")(shared.frame("a"), 0)


@pytest.mark.usefixtures("in_query")
def test_data_that_nobody_serves_is_refused(spark: SparkSession) -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        frame = spark.createDataFrame([(b"a",)], "payload binary")
        with pytest.raises(Unavailable, match="while nobody serves it"):
            publish_batches(messaging, "t")(frame, 0)
        assert not messaging.coordinator.snapshot().in_progress


def copy(shared: Shared, checkpoint: Path, batch_function: Any) -> None:
    """Has a query give the topic `in`, three messages a batch, to a function."""
    reader = shared.spark.readStream.format("txaware").option("topic", "in")
    reader = reader.options(url=shared.url, max_messages=3)
    writer = reader.load().select("payload").writeStream.foreachBatch(batch_function)
    writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(PATIENCE_S)
    finally:
        query.stop()


@pytest.mark.parametrize("by_url", [False, True])
def test_a_query_that_failed_after_its_commit_goes_on_with_the_next_batch(
    shared: Shared, tmp_path: Path, by_url: bool
) -> None:
    shared.messaging.create_topic("in")
    shared.messaging.publish("in", [b"%d" % number for number in range(5)])
    where = shared.messaging.reach().url if by_url else shared.messaging
    publish = publish_batches(where, "t")

    def fails_late(frame: DataFrame, batch_id: int) -> None:
        publish(frame, batch_id)
        raise ValueError("after the commit")

    with pytest.raises(StreamingQueryException, match="after the commit"):
        copy(shared, tmp_path / "checkpoint", fails_late)
    assert shared.published("t") == [b"0", b"1", b"2"]
    copy(shared, tmp_path / "checkpoint", publish)
    assert shared.published("t") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_is_published_twice_to_one_topic_only_with_names(
    shared: Shared, tmp_path: Path
) -> None:
    """The second would be taken for a repeat, and its rows be dropped."""
    names: list[str | None] = ["good", "bad"]

    def both(frame: DataFrame, batch_id: int) -> None:
        for name in names:
            publish = publish_batches(shared.messaging, "t", name=name)
            publish(frame.select("payload"), batch_id)

    def run(folder: str) -> None:
        query = (
            shared.spark.readStream.format("txaware")
            .options(url=shared.url, topic="clicks")
            .load()
            .writeStream.foreachBatch(both)
            .option("checkpointLocation", str(tmp_path / folder))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)

    shared.messaging.create_topic("clicks")
    shared.messaging.publish("clicks", [b"1"])
    run("named")
    assert shared.published("t") == [b"1", b"1"]
    names[:] = [None, None]
    with pytest.raises(StreamingQueryException, match="twice in one run"):
        run("not named")
    assert shared.published("t") == [b"1"] * 3


@pytest.mark.usefixtures("in_query")
def test_any_frame_is_measured_in_whatever_order_its_rows_come(shared: Shared) -> None:
    rows = shared.spark.range(20).selectExpr(
        *("id", "map('key', id) AS counts", "unhex(string(id)) AS bytes"),
        *("array(id / 3) AS numbers", "if(id > 10, NULL, id) AS some"),
    )
    seen: list[DataFrame] = []
    once = once_per_batch(shared.messaging, "t", lambda frame, _: seen.append(frame))
    once(rows, 0)
    in_new_run(shared, lambda: once(rows.orderBy("id", ascending=False), 0))
    refused = pytest.raises(BadRequest, match="with 20 rows, and comes again with as")
    with refused:
        in_new_run(shared, lambda: once(rows.withColumn("some", rows.id), 0))
    assert len(seen) == 1
    assert not seen[0].is_cached
