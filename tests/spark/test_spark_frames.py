"""`store_frame`: the rows of a DataFrame commit with all else in a transaction."""

import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import txaware
from coordinator import TransactionAware
from tests.support.doubles import Clock
from tests.support.http_access import guarded
from tests.support.spark_faults import STORED, STORING, Fault, at, stored_with_fault
from tests.support.spark_fixtures import Shared, remind_spark_of_its_session, sharing
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    NotAuthorized,
    ParticipantFailed,
    TransactionNotInProgress,
    Unavailable,
)
from txaware.messaging import MessagingTransaction
from txaware.spark import dataframes as frames
from txaware.spark import store_frame
from txaware.tables import Table

pytestmark = pytest.mark.spark
TEN = list(range(10))
PATIENCE_S = 600


def published(shared: Shared, topic: str = "t") -> list[int]:
    return sorted(map(int, shared.published(topic)))


def seen_by_others(shared: Shared, topic: str) -> list[int]:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(published, shared, topic).result()


def open_count(shared: Shared) -> int:
    coordinator: Any = shared.messaging.coordinator
    return len(coordinator.open_transactions())


def begun(shared: Shared, *participants: TransactionAware) -> MessagingTransaction:
    return shared.messaging.transaction(*participants, timeout_s=PATIENCE_S)


def with_fault(frame: DataFrame, fault: Fault) -> DataFrame:
    """The same rows; the first task comes to a fault before or behind its own."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fault.in_task(STORING)
        yield from batches
        fault.in_task(STORED)

    return frame.mapInArrow(passed, "payload string")


@pytest.fixture
def accounts(shared: Shared) -> Table[int]:
    """Balances of this test alone."""
    return shared.messaging.table(
        f"accounts-{uuid.uuid4()}", encode=lambda amount: b"%d" % amount, decode=int
    )


def balance(accounts: Table[int]) -> int:
    """What ann has, as others see it."""
    return accounts.get(b"ann") or 0


# Together


def test_a_frame_a_table_and_a_message_commit_together(
    shared: Shared, accounts: Table[int]
) -> None:
    shared.messaging.create_topic("done")
    with begun(shared, accounts) as tx:
        accounts.put(b"ann", 10)
        assert store_frame(shared.numbers(10), "t", tx) == 10
        shared.messaging.publisher("done").publish(b"0")
        assert seen_by_others(shared, "t") == []
    assert published(shared) == TEN
    assert published(shared, "done") == [0]
    assert balance(accounts) == 10


def test_when_the_block_raises_all_of_it_is_undone(
    shared: Shared, accounts: Table[int]
) -> None:
    def block() -> None:
        with begun(shared, accounts) as tx:
            accounts.put(b"ann", 10)
            store_frame(shared.numbers(10), "t", tx)
            shared.messaging.publisher("t").publish(b"10")
            raise LookupError

    with pytest.raises(LookupError):
        block()
    assert published(shared) == []
    assert balance(accounts) == 0
    assert open_count(shared) == 0


def test_what_was_published_before_and_after_stays_in_its_order(
    shared: Shared,
) -> None:
    with begun(shared) as tx:
        publisher = shared.messaging.publisher("t")
        publisher.publish(b"before")
        store_frame(shared.numbers(3, tasks=1), "t", tx)
        publisher.publish(b"between")
        store_frame(shared.numbers(2, tasks=1), "t", tx)
        publisher.publish(b"after")
    assert shared.published("t") == [
        *(b"before", b"0", b"1", b"2", b"between"),
        *(b"0", b"1", b"after"),
    ]


def test_a_column_of_topics_keeps_the_order_too(shared: Shared) -> None:
    shared.messaging.create_topic("u")
    half = f.when(f.col("payload") < 2, "t").otherwise("u")
    with begun(shared) as tx:
        for topic in ("t", "u"):
            shared.messaging.publisher(topic).publish(b"before")
        frame = shared.numbers(4, tasks=1).withColumn("topic", half)
        assert store_frame(frame, None, tx) == 4
        for topic in ("t", "u"):
            shared.messaging.publisher(topic).publish(b"after")
    assert shared.published("t") == [b"before", b"0", b"1", b"after"]
    assert shared.published("u") == [b"before", b"2", b"3", b"after"]


@pytest.mark.parametrize("how", ["raises", "dies"])
def test_an_attempt_that_fails_after_storing_is_repeated_and_counts_once(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    fault = Fault(tmp_path, STORED, how)
    monkeypatch.setattr(frames, "_stored", partial(stored_with_fault, fault))
    with begun(shared) as tx:
        assert store_frame(shared.numbers(10), "t", tx) == 10
    assert fault.attempts == 3
    assert shared.messaging.inspect("t").stored == 15
    assert published(shared) == TEN


def test_no_rows_are_nothing_to_publish(shared: Shared) -> None:
    with begun(shared) as tx:
        assert store_frame(shared.numbers(0), "t", tx) == 0
    assert shared.messaging.peek("t") == []


# A job that fails


def failing(shared: Shared, tmp_path: Path) -> DataFrame:
    fault = Fault(tmp_path, STORED, "raises", once=False)
    return with_fault(shared.numbers(10), fault)


def test_when_the_job_fails_all_of_it_is_undone(
    shared: Shared, tmp_path: Path, accounts: Table[int]
) -> None:
    def block() -> None:
        with begun(shared, accounts) as tx:
            accounts.put(b"ann", 10)
            shared.messaging.publisher("t").publish(b"10")
            store_frame(failing(shared, tmp_path), "t", tx)

    with pytest.raises(Exception, match="planned: stored"):
        block()
    assert published(shared) == []
    assert balance(accounts) == 0
    assert open_count(shared) == 0
    assert shared.messaging.coordinator.invalid_size() == 1


def test_who_goes_on_after_a_job_that_failed_cannot_commit(
    shared: Shared, tmp_path: Path, accounts: Table[int]
) -> None:
    def block() -> None:
        with begun(shared, accounts) as tx:
            accounts.put(b"ann", 10)
            with pytest.raises(Exception, match="planned: stored"):
                store_frame(failing(shared, tmp_path), "t", tx)
            assert store_frame(shared.numbers(10), "t", tx) == 10

    with pytest.raises(ParticipantFailed, match="a Spark job failed in this trans"):
        block()
    assert published(shared) == []
    assert balance(accounts) == 0
    assert open_count(shared) == 0


def test_ctrl_c_during_the_job_undoes_all_of_it(
    shared: Shared, tmp_path: Path, accounts: Table[int]
) -> None:
    fault = Fault(tmp_path, STORED, "waits", once=False)

    def block() -> None:
        with begun(shared, accounts) as tx:
            accounts.put(b"ann", 10)
            store_frame(with_fault(shared.numbers(10), fault), "t", tx)

    interrupt = partial(os.kill, os.getpid(), signal.SIGINT)
    with at(fault, interrupt), pytest.raises(KeyboardInterrupt):
        block()
    assert published(shared) == []
    assert balance(accounts) == 0
    assert open_count(shared) == 0
    remind_spark_of_its_session(shared.spark)  # the tests after this one want it too
    with begun(shared) as tx:
        store_frame(shared.numbers(10), "t", tx)
    assert published(shared) == TEN


# Time-outs


def test_a_job_that_took_too_long_is_told_which_time_out_that_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock, fault = Clock(), Fault(tmp_path, STORING, "waits")
    with sharing(spark, tmp_path, clock_ms=clock) as shared:
        with (
            at(fault, lambda: clock.advance_s(31)),
            pytest.raises(Exception, match="timed out") as told,
            shared.messaging.transaction() as tx,
        ):
            store_frame(with_fault(shared.numbers(10), fault), "t", tx)
        assert "timeout_s says how long all of it may take" in str(told.value)
        assert published(shared) == []
        assert open_count(shared) == 0


@pytest.mark.parametrize("options", [{"timeout_s": 90}, {"long": True}])
def test_a_job_may_take_as_long_as_its_transaction(
    spark: SparkSession, tmp_path: Path, options: dict[str, float]
) -> None:
    clock, fault = Clock(), Fault(tmp_path, STORED, "waits")
    with sharing(spark, tmp_path, clock_ms=clock) as shared:
        with (
            at(fault, lambda: clock.advance_s(60)),
            shared.messaging.transaction(**options) as tx,  # type: ignore[arg-type]
        ):
            store_frame(with_fault(shared.numbers(10), fault), "t", tx)
        assert published(shared) == TEN


def test_a_transaction_that_timed_out_after_the_job_commits_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = Clock()
    with sharing(spark, tmp_path, clock_ms=clock) as shared:

        def block() -> None:
            with shared.messaging.transaction() as tx:
                store_frame(shared.numbers(10), "t", tx)
                clock.advance_s(31)

        with pytest.raises(TransactionNotInProgress):
            block()
        assert published(shared) == []


# Where, and by whom


def test_data_that_nobody_serves_is_told_in_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([("1",)], "payload string")
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        with (
            pytest.raises(Unavailable, match="other processes cannot reach this data"),
            messaging.transaction() as tx,
        ):
            store_frame(frame, "t", tx)
        with messaging.serve(), messaging.transaction(timeout_s=PATIENCE_S) as tx:
            store_frame(frame, "t", tx)
        assert [each.payload for each in messaging.consumer("t").poll()] == [b"1"]


def test_outside_of_its_block_nothing_is_stored(shared: Shared) -> None:
    with begun(shared) as tx:
        pass
    with pytest.raises(MisusedTransaction):
        store_frame(shared.numbers(10), "t", tx)
    with (
        begun(shared) as tx,
        ThreadPoolExecutor(1) as thread,
        pytest.raises(MisusedTransaction),
    ):
        thread.submit(store_frame, shared.numbers(10), "t", tx).result()
    assert shared.messaging.inspect("t").stored == 0


def test_columns_and_topics_are_checked_before_the_job(shared: Shared) -> None:
    frame = shared.numbers(10)
    with (
        pytest.raises(BadRequest, match="neither an option topic nor a column"),
        begun(shared) as tx,
    ):
        store_frame(frame, None, tx)
    with (
        pytest.raises(txaware.errors.TopicNotFound),
        begun(shared) as tx,
    ):
        store_frame(frame, "none", tx)


def test_a_driver_elsewhere_needs_the_address_of_a_server_and_a_token(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) as payload")
    with guarded(tmp_path) as site:

        def store(token: str) -> None:
            with (
                txaware.connect(site.server.url, token=token) as messaging,
                messaging.transaction(timeout_s=PATIENCE_S) as tx,
            ):
                store_frame(frame, "orders", tx)

        store(site.tokens["writer"])
        with pytest.raises(NotAuthorized):
            store(site.tokens["consumer"])
        page = site.messaging.consumer("orders").poll(100)
        assert sorted(int(each.payload) for each in page) == TEN
