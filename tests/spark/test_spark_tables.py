"""Tables in Spark: read by the snapshot of a block, written by tasks with receipts."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tests.support.spark_faults import STORED, Fault, rows_with_fault
from tests.support.spark_fixtures import Shared
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    TransactionConflict,
)
from txaware.messaging import MessagingTransaction
from txaware.spark import store_rows, table_frame, table_frames
from txaware.tables import Table

pytestmark = pytest.mark.spark
PATIENCE_S = 600


@pytest.fixture
def accounts(shared: Shared) -> Table:
    return shared.messaging.table("accounts")


def begun(shared: Shared, **options: Any) -> MessagingTransaction:
    return shared.messaging.transaction(**{"timeout_s": PATIENCE_S} | options)


def rows(shared: Shared, count: int, *, tasks: int = 2) -> DataFrame:
    numbers = shared.spark.range(0, count, 1, tasks)
    text = f.format_string("%05d", "id")
    return numbers.select(text.alias("key"), f.col("id").cast("string").alias("value"))


def test_rows_are_written_and_read_with_all_else_in_a_transaction(
    shared: Shared, accounts: Table
) -> None:
    """More rows than a page has, one of them deleted, one with a time to live."""
    accounts.put(b"00007", b"old")
    more = shared.spark.createDataFrame(
        [(b"00007", None, None), (b"\0a", b"", 3600.0)],
        "key binary, value binary, ttl_s double",
    )
    with begun(shared) as tx:
        frame = rows(shared, 2500).where("key != '00007'")
        assert store_rows(frame, "accounts", tx) == 2499
        assert store_rows(more, "accounts", tx) == 2
        shared.messaging.publisher("t").publish(b"stored")
        assert accounts.get(b"00003") == b"3"  # its own
    assert shared.published("t") == [b"stored"]
    assert accounts.get(b"00007") is None
    assert len(list(accounts.items())) == 2500
    with begun(shared) as tx:
        found = table_frame(shared.spark, "accounts", tx, splits=[b"01000", b"02000"])
        accounts.put(b"new", b"not seen")
        assert found.columns == ["key", "value"]
        assert [(bytes(k), bytes(v)) for k, v in found.sort("key").collect()] == [
            (key, value) for key, value in accounts.items() if key != b"new"
        ]
    with pytest.raises(Exception, match="inside of the block"):
        found.count()


def test_rows_of_a_block_that_raises_or_conflicts_are_never_there(
    shared: Shared, accounts: Table
) -> None:
    frame = rows(shared, 3)

    def away() -> None:
        raise KeyError("away")

    def theirs() -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(accounts.put, b"00001", b"theirs").result()

    twice = frame.union(frame)
    for wrong, then, error in (
        (frame, away, KeyError),
        (twice, away, BadRequest),
        (frame, theirs, TransactionConflict),
    ):
        with pytest.raises(error), begun(shared) as tx:  # noqa: PT012
            store_rows(wrong, "accounts", tx)
            then()
    assert list(accounts.items()) == [(b"00001", b"theirs")]


def test_only_rows_of_accepted_attempts_are_there(
    shared: Shared, accounts: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has rows with other keys; one fails when it has stored them."""
    fault = Fault(tmp_path, STORED, "raises")
    monkeypatch.setattr(table_frames, "_stored", partial(rows_with_fault, fault))
    frame = rows(shared, 20)
    drawn = frame.mapInArrow(with_keys_of_its_own, frame.schema)
    with begun(shared) as tx:
        assert store_rows(drawn, "accounts", tx) == 20
    assert fault.attempts == 3
    assert len(list(accounts.items())) == 20


def with_keys_of_its_own(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Rows with keys that no other attempt has; Spark draws the same ones again."""
    for batch in batches:
        keys = pa.array([uuid.uuid4().hex for _ in range(batch.num_rows)])
        yield pa.RecordBatch.from_pydict({"key": keys, "value": batch.column("value")})


def test_what_is_no_frame_of_rows_is_one_sentence(shared: Shared) -> None:
    frame = rows(shared, 3)
    with begun(shared) as tx:
        for wrong, words in (
            (frame.select("key"), "columns key and value"),
            (frame.withColumn("more", f.lit(1)), "may have ttl_s"),
            (frame.withColumn("value", f.lit(1)), "column value is binary or string"),
        ):
            with pytest.raises(BadRequest, match=words):
                store_rows(wrong, "accounts", tx)
        with pytest.raises(BadRequest, match="no table name"):
            store_rows(frame, "a b", tx)
    with (
        pytest.raises(MisusedTransaction, match="long transaction"),
        begun(shared, timeout_s=None, long=True) as tx,
    ):
        store_rows(frame, "accounts", tx)
