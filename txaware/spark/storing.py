"""The work of a task: stores its rows ahead of the commit, and returns receipts."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from zlib import crc32

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
)

from txaware.errors import BadRequest, TransactionNotInProgress
from txaware.model.labels import packed
from txaware.model.messages import Outgoing, Receipt
from txaware.model.partitions import full_name
from txaware.model.queues import row_name
from txaware.model.requests import Payload
from txaware.spark.addresses import StoreAddress

PAYLOAD, TOPIC, EXPIRY = "payload", "topic", "expire_after_s"
KEY, HEADERS = "key", "headers"
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    PAYLOAD: ((BinaryType, StringType), "binary or string"),
    TOPIC: ((StringType,), "string"),
    EXPIRY: ((NumericType,), "a number of seconds"),
    KEY: ((BinaryType, StringType), "binary or string"),
    HEADERS: ((MapType,), "a map of string to binary or string"),
}
_BESIDE = {KEY, HEADERS, EXPIRY}
# About the size of one store: large enough for the disk, small enough for memory.
STORE_MESSAGES, STORE_BYTES = 10_000, 2 << 20


@attrs.frozen
class WrittenColumns:
    """The columns of a DataFrame as messages; `topic` is for rows that name none."""

    topic: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> "WrittenColumns":
        """Checks a schema; refuses unknown columns, and rows without a topic."""
        _check_columns(schema)
        if topic is None and TOPIC not in schema.names:
            raise BadRequest(
                "no topic is named: there is neither an option topic nor a column topic"
            )
        return cls(None if topic is None else full_name(topic))

    @classmethod
    def of_queue(cls, schema: StructType, queue: str) -> "WrittenColumns":
        """Checks a schema whose rows are all pushed to one queue."""
        if TOPIC in schema.names:
            raise BadRequest(
                f"all rows go to queue {queue}: drop('topic') leaves out the column "
                f"topic"
            )
        place = str(row_name(queue))
        _check_columns(schema)
        return cls(place)

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Payload]]]:
        """Yields the messages of a batch by topic, in their order."""
        fitting = STORE_BYTES * batch.num_rows // max(1, batch.nbytes)
        rows = max(1, min(STORE_MESSAGES, fitting))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            if TOPIC not in piece.schema.names:
                yield self._required(), _messages(piece)
                continue
            topics = piece.column(TOPIC)
            if topics.null_count:
                topics = pc.fill_null(topics, self._required())
            for topic in pc.unique(topics):
                chosen = piece.filter(pc.equal(topics, topic))
                yield full_name(topic.as_py()), _messages(chosen)

    def _required(self) -> str:
        if self.topic is None:
            raise BadRequest(
                "a row has no topic; option topic names the one for such rows"
            )
        return self.topic


def _check_columns(schema: StructType) -> None:
    """Refuses unknown columns, and those of other types."""
    found = schema.names
    unknown = [name for name in found if name not in _TYPES]
    if PAYLOAD not in found or unknown:
        raise BadRequest(
            f"a DataFrame of messages has a column payload (binary or string), and "
            f"may have topic, key, headers and expire_after_s; this one has "
            f"{', '.join(found)}. "
            f"{_mended(found, unknown)}"
        )
    for field in schema.fields:
        kinds, words = _TYPES[field.name]
        if not isinstance(field.dataType, kinds) or not _is_map(field.dataType):
            raise BadRequest(
                f"column {field.name} is {words}, not "
                f"{field.dataType.simpleString()}; cast it, or use to_json"
            )


def _mended(found: Sequence[str], unknown: Sequence[str]) -> str:
    if PAYLOAD in found:
        return f"drop({', '.join(map(repr, unknown))}) leaves out what is more"
    return "select(to_json(struct('*')).alias('payload')) makes one of any"


def _messages(batch: pa.RecordBatch) -> list[Payload]:
    payloads = batch.column(PAYLOAD)
    if payloads.null_count:
        raise BadRequest(f"{payloads.null_count} rows have no payload")
    listed = _bytes(payloads)
    if not _BESIDE.intersection(batch.schema.names):
        return list(listed)
    beside = [*map(partial(_beside, batch), (KEY, HEADERS, EXPIRY))]
    return [
        Outgoing(
            payload,
            key,
            None if headers is None else _header_bytes(headers),
            None if after_s is None else float(after_s),
        )
        if (key, headers, after_s) != (None, None, None)
        else payload
        for payload, key, headers, after_s in zip(listed, *beside, strict=True)
    ]


def _bytes(column: pa.Array) -> list[Any]:
    """Returns binary values as they are, and texts in UTF-8."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    values: list[Any] = column.to_pylist()
    return values


def _beside(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    return _bytes(batch.column(name))


def _header_bytes(pairs: list[tuple[str, Any]]) -> dict[str, bytes]:
    return {
        name: value.encode() if isinstance(value, str) else value
        for name, value in pairs
    }


def _is_map(kind: DataType) -> bool:
    """Tells whether a map has names and values of headers; others are none."""
    return not isinstance(kind, MapType) or (
        isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, (BinaryType, StringType))
    )


ATTEMPT_BYTES = 16
_MASK = 2**64 - 1


def _sum_of(message: Outgoing, begin: int) -> int:
    if message.key is not None:
        begin = crc32(message.key, begin ^ 1)  # an empty one is not none
    return crc32(message.payload, crc32(packed(message.headers), begin))


_MIXING = 0x9E3779B97F4A7C15  # makes every bit of a sum change the high ones


@attrs.frozen
class Extent:
    """The number of rows, and a sum over them that does not depend on their order.

    It tells a batch that comes again from another batch of the same number. It stays
    the same however Spark deals the rows out to tasks. The sum is not linear in the
    rows, so it changes if rows have exchanged parts.
    """

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, topic: str, messages: Sequence[Payload]) -> Self:
        """Measures messages for a topic, without expiries, which a clock may decide.

        A message without key and headers has the sum that it always had.
        """
        begin = crc32(topic.encode())
        sums = [
            _sum_of(each, begin) if isinstance(each, Outgoing) else crc32(each, begin)
            for each in messages
        ]
        return cls(len(messages), sum([each * each for each in sums]))

    def __add__(self, other: "Extent") -> "Extent":
        """Adds another part."""
        return Extent(self.rows + other.rows, self.total + other.total)

    @property
    def digest(self) -> int:
        """The sum, reduced to 32 bits."""
        return (self.total * _MIXING & _MASK) >> 32


@attrs.frozen
class StoringAttempt:
    """The receipts of one attempt of a task, and the extent of what it stored."""

    receipts: list[Receipt]
    extent: Extent | None


@attrs.frozen
class Storing:
    """The orders of a task: the address, the transaction, and the columns.

    Rows for a queue are all stored in one `pipe`.
    """

    address: StoreAddress
    pointer: int
    columns: WrittenColumns
    measures: bool = False
    pipe: str | None = None

    def store(self, batches: Iterable[pa.RecordBatch]) -> StoringAttempt:
        """Stores all rows of one attempt of a task; returns a receipt for each topic.

        The attempt has a name of its own, so that what a second attempt of the same
        task stores is never read with it: a reference names attempts.
        """
        attempt = os.urandom(ATTEMPT_BYTES)
        counts: dict[str, int] = {}
        extent = Extent()
        with time_outs_told(), self.address.open() as messaging:
            for batch in batches:
                for topic, messages in self.columns.messages(batch):
                    place = self.pipe or topic
                    receipt = messaging.store(
                        place, messages, transaction=self.pointer, attempt=attempt
                    )
                    counts[place] = counts.get(place, 0) + receipt.count
                    if self.measures:
                        extent += Extent.of(topic, messages)
        receipts = [
            Receipt(self.pointer, topic, attempt, count)
            for topic, count in counts.items()
        ]
        return StoringAttempt(receipts, extent if self.measures else None)


def measure(columns: WrittenColumns, batches: Iterable[pa.RecordBatch]) -> Extent:
    """Measures rows that are not stored, since they seem to be published already."""
    found = (
        Extent.of(topic, messages)
        for batch in batches
        for topic, messages in columns.messages(batch)
    )
    return sum(found, Extent())


def sum_up(extents: Iterable[Extent | None]) -> Extent | None:
    """Sums up what tasks have measured; None if one of them did not measure."""
    known = list(extents)
    found = [each for each in known if each is not None]
    return sum(found, Extent()) if len(found) == len(known) else None


@contextmanager
def time_outs_told() -> Iterator[None]:
    """Adds advice to the error of a transaction that ended before the job."""
    try:
        yield
    except TransactionNotInProgress as error:
        error.add_note("timeout_s says how long all of it may take")
        raise


def by_topic(receipts: Iterable[Receipt]) -> dict[str, list[Receipt]]:
    """Groups receipts of all tasks by topic, the topics in order."""
    found: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault(receipt.topic, []).append(receipt)
    return dict(sorted(found.items()))
