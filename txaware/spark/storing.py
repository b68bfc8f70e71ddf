"""What a task does: stores its rows ahead of the commit, and answers receipts."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs
import pyarrow as pa

from txaware.errors import TransactionNotInProgress
from txaware.messages import Receipt
from txaware.spark.addresses import Address
from txaware.spark.rows import Columns

ATTEMPT_BYTES = 16


@attrs.frozen
class Storing:
    """Where, for which transaction, and what the columns mean."""

    address: Address
    pointer: int
    columns: Columns

    def store(self, batches: Iterable[pa.RecordBatch]) -> list[Receipt]:
        """Stores all rows of one attempt of a task; a receipt for each topic.

        The attempt has a name of its own, so that what a second attempt of the same
        task stores is never read with it: a reference names attempts.
        """
        attempt = os.urandom(ATTEMPT_BYTES)
        counts: dict[str, int] = {}
        with time_outs_told(), self.address.open() as messaging:
            for batch in batches:
                for topic, messages in self.columns.messages(batch):
                    receipt = messaging.store(
                        topic, messages, transaction=self.pointer, attempt=attempt
                    )
                    counts[topic] = counts.get(topic, 0) + receipt.count
        return [
            Receipt(self.pointer, topic, attempt, count)
            for topic, count in counts.items()
        ]


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
