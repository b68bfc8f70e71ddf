"""Rows of a table as a DataFrame: read as of a transaction, written with its commit."""

import math
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    DataType,
    NumericType,
    StringType,
    StructType,
)

from coordinator import codec
from coordinator.outcome import Outcome
from coordinator.transaction import Transaction, TransactionType
from txaware.client import HttpTables
from txaware.errors import BadRequest, MisusedTransaction, Unavailable
from txaware.messaging import MessagingTransaction
from txaware.model.rows import RowChange, checked_key
from txaware.spark.addresses import StoreAddress
from txaware.spark.dataframes import SparkJobs
from txaware.spark.storing import ATTEMPT_BYTES, time_outs_told
from txaware.tables.table_changes import Conflicts

ROWS = "key binary, value binary"
_RECEIPTS = "attempt binary, count bigint"
# What attempts of tasks have stored; of these rows only a receipt leads to a table's.
STAGED = "txaware:spark-rows"
# Longer than any transaction; clean-ups remove them then.
STAGED_TTL_S = 2 * 86_400.0
SAVED_ROWS, SAVED_BYTES = 1000, 2 << 20
_HEAD = struct.Struct(">d?I")
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "key": ((BinaryType, StringType), "binary or string"),
    "value": ((BinaryType, StringType), "binary or string"),
    "ttl_s": ((NumericType,), "a number of seconds"),
}


def table_frame(
    spark: SparkSession,
    table: str,
    tx: MessagingTransaction,
    *,
    splits: Sequence[bytes] = (),
) -> DataFrame:
    """Returns the rows of a table as `tx` sees them: columns key and value, binary.

    All tasks and their repeats read by the snapshot of the block, so an action on the
    frame belongs inside of it; one behind it is refused. What the block itself has put
    is not there before its commit. At each key of `splits` another task begins.
    """
    messaging = tx.messaging
    name = messaging.table(table).name
    address = StoreAddress.of(messaging.reach()).for_tasks()
    bounds = [None, *sorted({checked_key(key) for key in splits}), None]
    ranges = [(start, stop) for start, stop in pairwise(bounds)]
    reading = RowReading(address, name, codec.encode(tx.transaction))
    planned = spark.createDataFrame(ranges, "start binary, stop binary")
    return planned.repartition(len(ranges)).mapInArrow(partial(_read, reading), ROWS)


def store_rows(
    frame: DataFrame,
    table: str,
    tx: MessagingTransaction,
    *,
    conflicts: Conflicts = "row",
) -> int:
    """Writes the rows of a DataFrame to a table with `tx`; returns their number.

    It has the columns `key` and `value`, of which a null deletes the row, and may have
    `ttl_s`. Tasks store their rows first, and each accepted attempt is a receipt. Then
    tasks write to the table what the receipts name, so that rows of an attempt that
    failed, or was run twice, are never there. A key that comes twice is refused. A
    transaction that is rolled back behind it is invalid, and not aborted.
    """
    messaging = tx.messaging
    name = messaging.table(table, conflicts=conflicts).name
    _check(frame.schema)
    address = StoreAddress.of(messaging.reach()).for_tasks()
    jobs = tx.joined(("Spark rows", name), partial(RowJobs, name, conflicts))
    messaging.persist_stored(tx.transaction)  # before a row of it is on disk
    writing = RowWriting(address, name, codec.encode(tx.transaction))
    with jobs:
        stored = frame.mapInArrow(partial(_stored, writing), _RECEIPTS).collect()
        receipts = [(bytes(row["attempt"]), row["count"]) for row in stored]
        if receipts:
            named = frame.sparkSession.createDataFrame(receipts, _RECEIPTS)
            written = named.repartition(len(receipts)).mapInArrow(
                partial(_written, writing), "key binary"
            )
            jobs.add([bytes(row["key"]) for row in written.collect()])
    return sum(count for _, count in receipts)


class RowJobs(SparkJobs):
    """The participant for the rows that tasks write to a table.

    A copy of a task may still write after its job, so a rollback takes nothing back,
    and the transaction is invalid then.
    """

    def __init__(self, table: str, conflicts: Conflicts) -> None:
        super().__init__()
        self.transaction_aware_name = f"Spark rows of table {table}"
        self._table = table
        self._conflicts = conflicts
        self._keys: set[bytes] = set()
        self._wrote = False

    def __enter__(self) -> None:
        self._wrote = True
        super().__enter__()

    def add(self, keys: Sequence[bytes]) -> None:
        """Adds keys that were written; raises `BadRequest` where one comes twice."""
        before = len(self._keys)
        self._keys.update(keys)
        if len(self._keys) < before + len(keys):
            raise BadRequest(
                f"a key comes twice in the rows for table {self._table}, and nobody "
                f"could tell which of them counts; group them by key first"
            )

    def start_tx(self, tx: Transaction) -> None:
        """Refuses long transactions, where rows conflict."""
        if tx.type is TransactionType.LONG and self._conflicts == "row":
            raise MisusedTransaction(
                f"table {self._table} cannot be changed in a long transaction: two of "
                f"them could change a row at once without a conflict. Use a short one "
                f'with timeout_s=, or conflicts="none"'
            )

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns a key for each row, as the table's own changes do."""
        if self._conflicts == "none":
            return ()
        prefix = f"table:{self._table}:".encode("ascii")
        return [prefix + key for key in self._keys]

    def rollback_tx(self) -> bool:
        """Tells that rows may be there, unless no job was begun."""
        return not self._wrote


@attrs.frozen
class RowReading:
    """The orders of a task that reads: the address, the table and the snapshot."""

    address: StoreAddress
    table: str
    transaction: bytes

    def pages(
        self, start: bytes | None, stop: bytes | None
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Reads a range of keys; refuses where its transaction has ended meanwhile.

        What an open transaction sees is never removed.
        """
        tx = codec.decode(self.transaction)
        with self.address.tables() as service:
            yield from _scanned(service, self.table, tx, start=start, stop=stop)
        with self.address.open() as messaging:
            if messaging.coordinator.outcome(tx) is not Outcome.IN_PROGRESS:
                raise Unavailable(
                    f"table {self.table} was read behind the block of transaction "
                    f"{tx.transaction_id}, or it timed out: rows may be missing. Do "
                    f"what reads the frame inside of the block"
                )


@attrs.frozen
class RowWriting:
    """The orders of a task that writes: the address, the table and the transaction."""

    address: StoreAddress
    table: str
    transaction: bytes

    def store(self, batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
        """Stores the rows of an attempt of a task under a name that only it has."""
        attempt, count = os.urandom(ATTEMPT_BYTES), 0
        tx = codec.decode(self.transaction)
        begin = self._begin(tx, attempt)
        with time_outs_told(), self.address.tables() as service:
            for changes in _bounded(_changes(batches)):
                staged = [
                    RowChange(
                        begin + number.to_bytes(8, "big"), _packed(change), STAGED_TTL_S
                    )
                    for number, change in enumerate(changes, count)
                ]
                service.save_rows(STAGED, staged, transaction=tx.transaction_id)
                count += len(staged)
        return attempt, count

    def write(self, attempt: bytes, count: int) -> Iterator[list[bytes]]:
        """Writes to the table what an attempt stored; yields its keys.

        Whoever does it again writes the same.
        """
        tx, found = codec.decode(self.transaction), 0
        with time_outs_told(), self.address.tables() as service:
            begin = self._begin(tx, attempt)
            for page in _scanned(service, STAGED, tx, prefix=begin):
                for changes in _bounded(_unpacked(value) for _, value in page):
                    service.save_rows(
                        self.table, changes, transaction=tx.transaction_id
                    )
                    yield [change.key for change in changes]
                found += len(page)
        if found != count:
            raise Unavailable(
                f"of {count} rows that a task stored {found} are there; run it again"
            )

    def _begin(self, tx: Transaction, attempt: bytes) -> bytes:
        return tx.transaction_id.to_bytes(8, "big") + attempt


def _scanned(
    service: HttpTables,
    table: str,
    tx: Transaction,
    *,
    prefix: bytes = b"",
    start: bytes | None = None,
    stop: bytes | None = None,
) -> Iterator[list[tuple[bytes, bytes]]]:
    while True:
        page = service.scan_rows(
            table, prefix=prefix, start=start, stop=stop, transaction=tx
        )
        yield page.rows
        if page.next is None:
            return
        start = page.next


def _changes(batches: Iterable[pa.RecordBatch]) -> Iterator[RowChange]:
    for batch in batches:
        keys, values = _bytes(batch, "key"), _bytes(batch, "value")
        times: Sequence[float | None] = [None] * len(keys)
        if "ttl_s" in batch.schema.names:
            times = batch.column("ttl_s").to_pylist()
        for key, value, ttl_s in zip(keys, values, times, strict=True):
            if key is None:
                raise BadRequest("a row has no key")
            seconds = None if ttl_s is None or value is None else float(ttl_s)
            yield RowChange(key, value, seconds)


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    values: list[bytes | None] = batch.column(name).cast(pa.large_binary()).to_pylist()
    return values


def _bounded(changes: Iterable[RowChange]) -> Iterator[list[RowChange]]:
    """Cuts changes into requests of a bounded size."""
    held: list[RowChange] = []
    size_bytes = 0
    for change in changes:
        held.append(change)
        size_bytes += len(change.key) + len(change.value or b"")
        if len(held) >= SAVED_ROWS or size_bytes >= SAVED_BYTES:
            yield held
            held, size_bytes = [], 0
    if held:
        yield held


def _packed(change: RowChange) -> bytes:
    ttl_s = math.nan if change.expire_after_s is None else change.expire_after_s
    head = _HEAD.pack(ttl_s, change.value is not None, len(change.key))
    return head + change.key + (change.value or b"")


def _unpacked(data: bytes) -> RowChange:
    ttl_s, has_value, key_bytes = _HEAD.unpack_from(data)
    behind = _HEAD.size + key_bytes
    return RowChange(
        data[_HEAD.size : behind],
        data[behind:] if has_value else None,
        None if math.isnan(ttl_s) else ttl_s,
    )


def _read(
    reading: RowReading, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            for page in reading.pages(row["start"], row["stop"]):
                yield _of_columns(
                    key=[key for key, _ in page], value=[value for _, value in page]
                )


def _stored(
    writing: RowWriting, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    attempt, count = writing.store(batches)
    counts = pa.array([count], pa.int64())
    attempts = pa.array([attempt], pa.binary())
    yield pa.RecordBatch.from_pydict({"attempt": attempts, "count": counts})


def _written(
    writing: RowWriting, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            for keys in writing.write(row["attempt"], row["count"]):
                yield _of_columns(key=keys)


def _of_columns(**columns: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, pa.binary()) for name, values in columns.items()}
    )


def _check(schema: StructType) -> None:
    """Refuses a frame that lacks a column, or has one that is nothing here."""
    names = set(schema.names)
    if not {"key", "value"} <= names <= set(_TYPES):
        raise BadRequest(
            f"a DataFrame of rows has the columns key and value (binary or string), "
            f"and may have ttl_s; this one has {', '.join(schema.names)}"
        )
    for field in schema.fields:
        kinds, words = _TYPES[field.name]
        if not isinstance(field.dataType, kinds):
            raise BadRequest(
                f"column {field.name} is {words}, not {field.dataType.simpleString()}"
            )
