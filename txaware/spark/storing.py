"""What a task does: stores its rows ahead of the commit, and answers receipts."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Self
from zlib import crc32

import attrs
import pyarrow as pa

from txaware.errors import TransactionNotInProgress
from txaware.messages import Outgoing, Receipt
from txaware.requests import Payload
from txaware.spark.addresses import Address
from txaware.spark.rows import Columns

ATTEMPT_BYTES = 16
_MASK = 2**64 - 1
_MIXING = 0x9E3779B97F4A7C15  # has every bit of a sum change the high ones


@attrs.frozen
class Extent:
    """How many rows there are, and a sum over them that comes in any order.

    By it a batch that comes again is told from another one of the same number. However
    Spark deals the rows out to tasks, it stays the same. What is summed up is not
    linear in the rows, so that parts which rows have exchanged are noticed.
    """

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, topic: str, messages: Sequence[Payload]) -> Self:
        """Measures messages for a topic, without expiries, which a clock may decide."""
        payloads = [
            each.payload if isinstance(each, Outgoing) else each for each in messages
        ]
        sums = map(crc32, payloads, repeat(crc32(topic.encode())))
        return cls(len(payloads), sum([each * each for each in sums]))

    def __add__(self, other: "Extent") -> "Extent":
        """Adds another part."""
        return Extent(self.rows + other.rows, self.total + other.total)

    @property
    def digest(self) -> int:
        """32 bits of the sum."""
        return (self.total * _MIXING & _MASK) >> 32


@attrs.frozen
class Attempt:
    """Receipts for what one attempt of a task has stored, and the extent of that."""

    receipts: list[Receipt]
    extent: Extent | None


@attrs.frozen
class Storing:
    """Where, for which transaction, and what the columns mean."""

    address: Address
    pointer: int
    columns: Columns
    measures: bool = False

    def store(self, batches: Iterable[pa.RecordBatch]) -> Attempt:
        """Stores all rows of one attempt of a task; a receipt for each topic.

        The attempt has a name of its own, so that what a second attempt of the same
        task stores is never read with it: a reference names attempts.
        """
        attempt = os.urandom(ATTEMPT_BYTES)
        counts: dict[str, int] = {}
        extent = Extent()
        with time_outs_told(), self.address.open() as messaging:
            for batch in batches:
                for topic, messages in self.columns.messages(batch):
                    receipt = messaging.store(
                        topic, messages, transaction=self.pointer, attempt=attempt
                    )
                    counts[topic] = counts.get(topic, 0) + receipt.count
                    if self.measures:
                        extent += Extent.of(topic, messages)
        receipts = [
            Receipt(self.pointer, topic, attempt, count)
            for topic, count in counts.items()
        ]
        return Attempt(receipts, extent if self.measures else None)


def measure(columns: Columns, batches: Iterable[pa.RecordBatch]) -> Extent:
    """Measures rows that are not stored, since they seem to be published already."""
    found = (
        Extent.of(topic, messages)
        for batch in batches
        for topic, messages in columns.messages(batch)
    )
    return sum(found, Extent())


def sum_up(extents: Iterable[Extent | None]) -> Extent | None:
    """Sums up what tasks have measured; None where one of them did not."""
    known = list(extents)
    found = [each for each in known if each is not None]
    return sum(found, Extent()) if len(found) == len(known) else None


@contextmanager
def time_outs_told() -> Iterator[None]:
    """Says what to do where a transaction has ended before the job."""
    try:
        yield
    except TransactionNotInProgress as error:
        error.add_note("timeout_s says how long all of it may take")
        raise


def by_topic(receipts: Iterable[Receipt]) -> dict[str, list[Receipt]]:
    """Receipts of all tasks, by their topics in order."""
    found: dict[str, list[Receipt]] = {}
    for receipt in receipts:
        found.setdefault(receipt.topic, []).append(receipt)
    return dict(sorted(found.items()))
