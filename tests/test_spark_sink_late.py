"""What comes late, twice or at once: the calls of a sink in orders that Spark makes."""

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import types

import txaware
from coordinator import EmbeddedCoordinator
from tests.doubles import Clock
from txaware.errors import (
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
)
from txaware.spark.options import Options
from txaware.spark.sink import Sink

pytestmark = pytest.mark.spark


def planned(url: str, **options: object) -> Sink:
    """A sink as tasks and the driver get it."""
    texts = {name: str(value) for name, value in options.items()}
    fields = [types.StructField("payload", types.StringType())]
    sink = Sink(
        Options.of({"url": url, "topic": "t", **texts}),
        types.StructType(fields),
        overwrite=False,
    )
    copy: Sink = pickle.loads(pickle.dumps(sink))
    return copy


def rows(*payloads: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"payload": list(payloads)})])


def payloads(messaging: txaware.Messaging) -> list[bytes]:
    return [message.payload for message in messaging.consumer("t").poll(100)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb:{tmp_path / 'alone'}"


@pytest.mark.parametrize("ended", ["commit", "abort"])
def test_an_attempt_that_stores_after_the_end_is_refused(url: str, ended: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        sink = planned(url)
        stored = sink.write(rows("1"))
        sink.write(rows("of an attempt that was not accepted"))
        getattr(sink, ended)([stored, None] if ended == "abort" else [stored])
        with pytest.raises(TransactionNotInProgress):
            sink.write(rows("late"))
        assert payloads(messaging) == ([b"1"] if ended == "commit" else [])


@pytest.mark.parametrize("ended", ["commit", "abort"])
def test_what_cannot_be_refused_after_the_end_never_appears(
    url: str, ended: str
) -> None:
    with (
        EmbeddedCoordinator() as elsewhere,
        txaware.connect(url, coordinator=elsewhere) as messaging,
        messaging.serve(),
    ):
        messaging.create_topic("t")
        sink = planned(url)
        stored = sink.write(rows("1"))
        getattr(sink, ended)([stored, None] if ended == "abort" else [stored])
        sink.write(rows("late"))
        assert messaging.inspect("t").stored == 2
        messaging.publisher("t").publish(b"next")
        expected = [b"1"] if ended == "commit" else []
        assert payloads(messaging) == [*expected, b"next"]


def test_a_driver_that_dies_before_the_commit_holds_readers_up_until_the_time_out(
    url: str,
) -> None:
    clock = Clock()
    with txaware.connect(url, clock_ms=clock) as messaging, messaging.serve():
        messaging.create_topic("t")
        sink = planned(url, timeout_s=60)
        [receipt] = sink.write(rows("1")).receipts
        messaging.publish("t", [], transaction=receipt.pointer, receipts=[receipt])
        messaging.publisher("t").publish(b"2")
        assert payloads(messaging) == []
        clock.advance_s(61)
        assert payloads(messaging) == [b"2"]


def test_a_save_without_a_time_out_whose_driver_died_is_ended_by_an_operator(
    url: str,
) -> None:
    """Its transaction is a long one: readers would wait for the rest of its day."""
    clock = Clock()
    with txaware.connect(url, clock_ms=clock) as messaging, messaging.serve():
        messaging.create_topic("t")
        [receipt] = planned(url).write(rows("1")).receipts
        messaging.publish("t", [], transaction=receipt.pointer, receipts=[receipt])
        messaging.publisher("t").publish(b"2")
        clock.advance_s(12 * 3600)
        assert payloads(messaging) == []
        blocked_by = messaging.poll("t", isolation="committed").blocked_by
        assert blocked_by is not None
        assert messaging.coordinator.invalidate(blocked_by.pointer)
        assert payloads(messaging) == [b"2"]


def test_what_was_published_and_not_committed_is_never_seen(url: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        sink = planned(url, timeout_s=60)
        stored = sink.write(rows("1"))
        [receipt] = stored.receipts
        messaging.publish("t", [], transaction=receipt.pointer, receipts=[receipt])
        sink.abort([stored])
        messaging.publisher("t").publish(b"2")
        assert payloads(messaging) == [b"2"]


def test_spark_calls_abort_after_a_commit_that_took_place(url: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        sink = planned(url)
        stored = sink.write(rows("1"))
        sink.commit([stored])
        sink.abort([stored])
        sink.abort([stored])
        with pytest.raises(TransactionNotInProgress):
            sink.commit([stored])
        assert payloads(messaging) == [b"1"]


def test_of_two_saves_of_one_id_at_once_one_is_refused(url: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        first, second, later = (planned(url, save_id="a") for _ in range(3))
        stored = [sink.write(rows("1")) for sink in (first, second)]
        second.commit([stored[1]])
        with pytest.raises(TransactionConflict):
            first.commit([stored[0]])
        first.abort([stored[0]])
        with suppress(TransactionRefused):
            later.commit([later.write(rows("1"))])
        done = planned(url, save_id="a")
        done.commit([done.write(rows("1"))])
        assert payloads(messaging) == [b"1"]


def test_of_many_saves_of_one_id_in_threads_one_is_published(url: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        sinks = [planned(url, save_id="a") for _ in range(6)]
        together = threading.Barrier(len(sinks))

        def save(sink: Sink) -> bool:
            stored = sink.write(rows("1", "2"))
            together.wait()
            with suppress(TransactionRefused):
                sink.commit([stored])
                return True
            sink.abort([stored])
            return False

        with ThreadPoolExecutor(len(sinks)) as threads:
            assert list(threads.map(save, sinks)).count(True) == 1
        assert payloads(messaging) == [b"1", b"2"]
