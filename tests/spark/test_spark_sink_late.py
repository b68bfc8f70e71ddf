"""What comes late, twice or at once: the calls of a sink in orders that Spark makes."""

import pickle
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.remote.calls import ROOT
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.messagings import committed
from txaware.client.calls.call import Call
from txaware.client.transport import Transport
from txaware.errors import (
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    Unavailable,
)
from txaware.spark.options import Options
from txaware.spark.sink import TopicSink

pytestmark = pytest.mark.spark


def planned(url: str, **options: object) -> TopicSink:
    """A sink as tasks and the driver get it."""
    texts = {name: str(value) for name, value in options.items()}
    fields = [types.StructField("payload", types.StringType())]
    sink = TopicSink(
        Options.of({"url": url, "topic": "t", **texts}),
        types.StructType(fields),
        overwrite=False,
    )
    copy: TopicSink = pickle.loads(pickle.dumps(sink))
    return copy


def rows(*payloads: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"payload": list(payloads)})])


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
        assert committed(messaging) == ([b"1"] if ended == "commit" else [])


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
        assert committed(messaging) == [*expected, b"next"]


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
        assert committed(messaging) == []
        clock.advance_s(61)
        assert committed(messaging) == [b"2"]


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
        assert committed(messaging) == []
        blocked_by = messaging.poll("t", isolation="committed").blocked_by
        assert blocked_by is not None
        assert messaging.coordinator.invalidate(blocked_by.pointer)
        assert committed(messaging) == [b"2"]


@pytest.mark.parametrize("options", [{}, {"save_id": "a"}])
@pytest.mark.parametrize("call", ["start", "persist"])
def test_a_save_begins_again_where_its_server_died_before_anything_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, options: dict[str, str]
) -> None:
    """What was begun is not on disk; or nobody knows whether it is."""
    directory, with_nothing = tmp_path / "data", tmp_path / "as it died"
    with txaware.connect(f"leveldb:{directory}") as messaging:
        messaging.create_topic("t")
    shutil.copytree(directory, with_nothing)
    owners, died = ExitStack(), list[int]()

    def owned(path: Path, port: int = 0) -> str:
        messaging = owners.enter_context(txaware.connect(f"leveldb:{path}"))
        return owners.enter_context(messaging.serve(port=port)).url

    def dies() -> None:
        if not died:
            died.append(1)
            owners.close()
            owned(with_nothing, int(url.rpartition(":")[2]))

    def persist(coordinator: RemoteCoordinator, tx: Transaction) -> None:
        if call == "persist":
            dies()
        found(coordinator, tx)

    def send(transport: Transport, asked: Call[Any]) -> Any:
        answer = perform(transport, asked)
        if call == "start" and asked.path == ROOT:
            was_dead = bool(died)
            dies()
            if not was_dead:
                raise Unavailable("the answer is lost")
        return answer

    found, perform = RemoteCoordinator.persist, Transport.perform
    with owners:
        url = owned(directory)
        monkeypatch.setattr(RemoteCoordinator, "persist", persist)
        monkeypatch.setattr(Transport, "perform", send)
        sink = planned(url, **options)
        sink.commit([sink.write(rows("1"))])
        with txaware.connect(url) as messaging:
            assert committed(messaging) == [b"1"]
            assert not messaging.coordinator.snapshot().in_progress
    assert died


def test_a_save_goes_on_where_its_server_died_before_the_first_write(
    tmp_path: Path,
) -> None:
    directory, as_it_died = tmp_path / "data", tmp_path / "as it died"
    with txaware.connect(f"leveldb:{directory}") as messaging, messaging.serve() as it:
        messaging.create_topic("t")
        sink, port = planned(it.url), int(it.url.rpartition(":")[2])
        shutil.copytree(directory, as_it_died)
    with (
        txaware.connect(f"leveldb:{as_it_died}") as messaging,
        messaging.serve(port=port),
    ):
        sink.commit([sink.write(rows("1"))])
        assert committed(messaging) == [b"1"]


def test_a_save_whose_server_stays_away_is_not_begun_for_ever(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = list[int]()

    def away(*_: Any) -> None:
        tries.append(1)
        raise Unavailable("away")

    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        monkeypatch.setattr(RemoteCoordinator, "persist", away)
        with pytest.raises(Unavailable, match="away"):
            planned(url)
        assert len(tries) == 3
        assert not messaging.coordinator.snapshot().in_progress


def test_what_was_published_and_not_committed_is_never_seen(url: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        sink = planned(url, timeout_s=60)
        stored = sink.write(rows("1"))
        [receipt] = stored.receipts
        messaging.publish("t", [], transaction=receipt.pointer, receipts=[receipt])
        sink.abort([stored])
        messaging.publisher("t").publish(b"2")
        assert committed(messaging) == [b"2"]


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
        assert committed(messaging) == [b"1"]


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
        assert committed(messaging) == [b"1"]


def test_of_many_saves_of_one_id_in_threads_one_is_published(url: str) -> None:
    with txaware.connect(url) as messaging, messaging.serve():
        messaging.create_topic("t")
        sinks = [planned(url, save_id="a") for _ in range(6)]
        together = threading.Barrier(len(sinks))

        def save(sink: TopicSink) -> bool:
            stored = sink.write(rows("1", "2"))
            together.wait()
            with suppress(TransactionRefused):
                sink.commit([stored])
                return True
            sink.abort([stored])
            return False

        with ThreadPoolExecutor(len(sinks)) as threads:
            assert list(threads.map(save, sinks)).count(True) == 1
        assert committed(messaging) == [b"1", b"2"]
