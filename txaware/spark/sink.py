"""`df.write.format("txaware")`: one transaction for each save."""

from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.messages import Receipt
from txaware.messaging import Messaging
from txaware.spark.committing import Once, commit, give_up
from txaware.spark.options import Options
from txaware.spark.rows import Columns
from txaware.spark.storing import Storing
from txaware.topics import checked_group

# How long a save may take that is done once and has to be short, unless it says so.
TIMEOUT_S = 3600.0


@attrs.frozen
class Stored(WriterCommitMessage):
    """What one attempt of a task has stored."""

    receipts: list[Receipt]


class Sink(DataSourceArrowWriter):
    """Begins at planning, stores in tasks, publishes and commits in the driver.

    Only what accepted attempts stored is published. Spark calls `abort` after a
    `commit` that failed in whatever way, so that must not undo a commit.
    """

    def __init__(
        self, options: Options, schema: StructType, *, overwrite: bool
    ) -> None:
        if overwrite:
            raise BadRequest('topics are only added to: use mode("append")')
        topic, save_id = options.text("topic"), options.text("save_id")
        columns = Columns.of(schema, topic)
        self._address = options.address().resolved()
        self._once = None if save_id is None else _once(topic, save_id)
        with self._address.open() as messaging:
            if columns.topic is not None:
                generation = messaging.topic(columns.topic).generation
                if (
                    self._once is not None
                ):  # done in a topic that is no more is not done
                    self._once = attrs.evolve(self._once, number=generation)
            self._is_done = self._once is not None and self._once.is_done(messaging)
            self._tx = self._begun(messaging, options.seconds("timeout_s"))
        tasks = self._address.for_tasks()
        self._storing = Storing(tasks, self._tx.transaction_id, columns)

    def _begun(self, messaging: Messaging, timeout_s: float | None) -> Transaction:
        """Long, unless it has a time-out or something to conflict on."""
        coordinator = messaging.coordinator
        if timeout_s is None and self._once is None:
            tx = coordinator.start_long(outlives_process=True)
        else:
            timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
            tx = coordinator.start_short(timeout_s, outlives_process=True)
        coordinator.persist(tx)  # before a row of it is on disk
        return tx

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        """Stores the rows of one attempt of a task."""
        return Stored([] if self._is_done else self._storing.store(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes what the accepted attempts stored, all of it or nothing."""
        receipts = [
            receipt
            for stored in messages
            if isinstance(stored, Stored)
            for receipt in stored.receipts
        ]
        with self._address.open() as messaging:
            commit(messaging, self._tx, receipts=receipts, once=self._once)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends the transaction, unless it is committed."""
        with self._address.open() as messaging:
            give_up(messaging, self._tx, is_unpublished=None in messages)


def _once(topic: str | None, save_id: str) -> Once:
    if topic is None:
        raise BadRequest(
            "option save_id needs option topic: there it is remembered which save is "
            "done"
        )
    try:
        return Once(topic, checked_group(f"spark-save-{save_id}"), 0)
    except BadRequest as error:
        raise BadRequest(
            f"{save_id!r} is no save_id; letters, digits, - _ and . make one"
        ) from error
