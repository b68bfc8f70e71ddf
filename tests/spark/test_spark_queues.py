"""Queues in Spark: rows are pushed, what waits is read, and jobs are worked on."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

import txaware
from tests.support.queues import made, numbered, popped, taken, waiting
from tests.support.spark_fixtures import PATIENCE_S, Shared
from txaware.queue import Queue
from txaware.spark import once_per_batch, store_frame

pytestmark = pytest.mark.spark


@pytest.fixture
def mail(shared: Shared) -> Queue:
    shared.messaging.create_queue("mail", lease_s=3600)  # Spark may take its time
    return shared.messaging.queue("mail")


def test_a_save_pushes_all_rows_at_once(shared: Shared, mail: Queue) -> None:
    frame = shared.numbers(1000, tasks=3).withColumn("key", f.lit("k"))
    frame = frame.withColumn("headers", f.create_map(f.lit("h"), f.lit(b"v")))
    shared.save(frame, topic=None, queue="mail")
    assert mail.stats().pushed == 1000
    job = popped(mail)
    assert (job.key, job.headers) == (b"k", {"h": b"v"})
    job.rollback()
    assert sorted(map(int, taken(mail))) == list(range(1000))
    shared.messaging.clean_up()
    assert shared.messaging.check().problems == ()


def test_a_save_that_fails_pushes_nothing(shared: Shared, mail: Queue) -> None:
    bad = shared.numbers(10).withColumn(
        "payload", f.when(f.col("payload") != "7", f.col("payload"))
    )
    with pytest.raises(Exception, match="1 rows have no payload"):
        shared.save(bad, topic=None, queue="mail")
    assert (mail.pop(), mail.stats().pushed) == (None, 0)


def test_a_save_with_an_id_is_pushed_once(shared: Shared, mail: Queue) -> None:
    for _ in range(2):
        shared.save(shared.numbers(5), queue="mail", save_id="day-1")
    assert sorted(waiting(mail)) == numbered(5, "")
    with pytest.raises(Exception, match="was published with 5 rows, and comes again"):
        shared.save(shared.numbers(6), queue="mail", save_id="day-1")
    assert mail.stats().pushed == 5
    assert shared.published("t") == []


NOT_PLANNED: list[tuple[dict[str, Any], str]] = [
    ({"queue": "none", "topic": None}, "QueueNotFound: queue none does not exist"),
    ({"queue": "a b", "topic": None}, "'a b' is no queue name"),
    ({"queue": "mail"}, "rows go to a topic or to a queue"),
    ({"queue": "mail", "topic": None, "save_id": "x"}, "save_id needs option topic"),
]


@pytest.mark.parametrize(("options", "told"), NOT_PLANNED)
def test_what_is_wrong_is_told_before_any_task_runs(
    shared: Shared, mail: Queue, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        shared.save(shared.frame("1"), **options)
    assert told in str(caught.value)
    assert mail.stats().pushed == 0


def test_what_waits_is_read_and_stays(shared: Shared, mail: Queue) -> None:
    mail.push_all(numbered(3))
    mail.push(b"a", key=b"k", headers={"h": b"1"})
    popped(mail)
    found = shared.reader(queue="mail").load().collect()
    assert [bytes(row["payload"]) for row in found] == [b"m1", b"m2", b"a"]
    last = found[-1]
    assert (last["topic"], bytes(last["key"]), last["write_time"]) == (
        *("mail", b"k"),
        None,
    )
    assert {name: bytes(value) for name, value in last["headers"].items()} == {
        "h": b"1"
    }
    assert last["id"].hex() == mail.peek()[-1].id
    few = shared.reader(queue="mail", max_messages=1).load().select("payload")
    assert [bytes(row["payload"]) for row in few.collect()] == [b"m1"]
    assert mail.stats().depth == 3
    for options, told in (
        ({"topic": "t"}, "leave out topic"),
        ({"max_messages": 20_000}, "is up to 10000"),
        ({"queue": "none"}, "queue none does not exist"),
    ):
        with pytest.raises(Exception, match=told):
            shared.reader(**{"queue": "mail", **options}).load().collect()


def test_jobs_are_worked_on_in_spark_exactly_once(shared: Shared, mail: Queue) -> None:
    messaging, done = shared.messaging, made(shared.messaging, "done")
    mail.push_all(numbered(20, ""))
    for fails in (True, False):
        with _failing_where(fails=fails), messaging.transaction(timeout_s=300) as tx:
            jobs = mail.pop_many(20)
            frame = shared.frame(*(job.payload for job in jobs))
            doubled = frame.select((f.col("payload").cast("string") * 2).cast("int"))
            text = doubled.toDF("n").select(f.col("n").cast("string").alias("payload"))
            assert store_frame(text, done, tx) == 20
            if fails:
                raise ZeroDivisionError
    assert sorted(map(int, taken(done))) == [2 * number for number in range(20)]
    assert (mail.stats().committed, mail.stats().depth) == (20, 0)


def _failing_where(*, fails: bool) -> Any:
    return pytest.raises(ZeroDivisionError) if fails else nullcontext()


def test_a_stream_pushes_each_batch_once(shared: Shared, tmp_path: Path) -> None:
    messaging, mail = shared.messaging, made(shared.messaging)
    other = made(messaging, "other")
    messaging.create_topic("in")

    def work(frame: Any, tx: txaware.MessagingTransaction) -> None:
        store_frame(frame.select("payload"), other, tx)

    def run(sink: Any, checkpoint: str) -> None:
        query = (
            sink.option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)

    for number in range(2):
        messaging.direct_publisher("in").publish(b"%d" % number)
        stream = shared.spark.readStream.format("txaware").option("url", shared.url)
        rows = stream.option("topic", "in").load().select("payload")
        sink = rows.writeStream.format("txaware").option("url", shared.url)
        run(sink.option("topic", "t").option("queue", "mail"), "one")
        run(rows.writeStream.foreachBatch(once_per_batch(messaging, "t", work)), "two")
    for queue in (mail, other):
        assert taken(queue) == [b"0", b"1"]
    assert shared.published("t") == []
