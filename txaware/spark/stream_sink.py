"""`df.writeStream.format("txaware")`: one transaction for each micro-batch."""

from collections.abc import Iterable, Iterator
from typing import Any, Self

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, Unavailable
from txaware.model.markers import query_marker
from txaware.model.messages import Receipt
from txaware.spark.committing import (
    Once,
    begin_for,
    commit,
    give_up,
    short_timeout_s,
)
from txaware.spark.options import Options
from txaware.spark.storing import Extent, Storing, WrittenColumns, sum_up

QUERY_ID = "sql.streaming.queryId"


@attrs.frozen
class StoredForBatch(WriterCommitMessage):
    """The receipts of tasks, with their transaction and their query.

    The driver learns the transaction and the query from the tasks only.
    """

    transaction: bytes
    query_id: str
    receipts: list[Receipt]
    extent: Extent | None = None

    @classmethod
    def of(cls, messages: Iterable[WriterCommitMessage | None]) -> Self | None:
        """Joins what all tasks of a batch have stored; None if no task answered."""
        stored = [each for each in messages if isinstance(each, cls)]
        if not stored:
            return None
        receipts = [receipt for each in stored for receipt in each.receipts]
        extent = sum_up(each.extent for each in stored)
        return attrs.evolve(stored[0], receipts=receipts, extent=extent)

    @property
    def tx(self) -> Transaction:
        """The transaction, decoded."""
        return codec.decode(self.transaction)


class StreamSink(DataSourceStreamArrowWriter):
    """A sink that stores micro-batches in tasks, and commits each in the driver.

    The commit also saves which batch it was. Spark makes one sink when it plans a
    micro-batch, and another one for its commit. Only the first one is sent to the
    tasks, so the transaction begins with that one.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        topic = options.text("topic")
        if topic is None:
            raise BadRequest(
                "a stream needs option topic: there it is remembered which batches are "
                "published. A column topic may name others for the rows"
            )
        self._topic = topic
        self._name, self._repeat_by = options.text("name"), options.repeat_by()
        query_marker("q", self._name)  # is a name, or is refused here
        self._queue = options.text("queue")
        self._pipe: str | None = None
        if self._queue is None:
            self._columns = WrittenColumns.of(schema, topic)
        else:
            self._columns = WrittenColumns.of_queue(schema, self._queue)
        self._timeout_s = options.seconds("timeout_s")
        self._address = options.address().resolved()
        self._tasks = self._address.for_tasks()
        self._tx: Transaction | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state that is sent to the tasks."""
        if self._tx is None:
            with self._address.open() as messaging:
                messaging.topic(self._topic)  # it has to be there
                timeout_s = short_timeout_s(messaging, self._timeout_s)
                self._tx, self._pipe = begin_for(messaging, self._queue, timeout_s)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StoredForBatch:
        """Stores the rows of one attempt of a task."""
        assert self._tx is not None, "a task has what was sent to it"
        storing = Storing(
            self._tasks,
            self._tx.transaction_id,
            self._columns,
            measures=self._repeat_by == "rows",
            pipe=self._pipe,
        )
        stored = storing.store(iterator)
        return StoredForBatch(
            codec.encode(self._tx), _query_id(), stored.receipts, stored.extent
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publishes what the accepted attempts stored, once for each batch."""
        stored = StoredForBatch.of(messages)
        if stored is None:
            return
        once = Once.of_batch(
            self._topic,
            stored.query_id,
            batchId,
            name=self._name,
            repeat_by=self._repeat_by,
        )
        receipts, extent = stored.receipts, stored.extent
        with self._address.open() as messaging:
            if receipts:
                commit(
                    messaging, stored.tx, receipts=receipts, once=once, extent=extent
                )
            else:
                give_up(messaging, stored.tx, is_unpublished=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Ends the transaction, unless it is committed.

        If no task tells which transaction it was, its time-out ends it.
        """
        stored = StoredForBatch.of(messages)
        if stored is None:
            return
        with self._address.open() as messaging:
            give_up(messaging, stored.tx, is_unpublished=None in messages)


def _query_id() -> str:
    """Returns the id of the query, which a checkpoint keeps over all restarts."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise Unavailable(
            f"Spark does not tell which query this is: no {QUERY_ID} in the task"
        )
    return query_id
