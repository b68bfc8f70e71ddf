"""`df.write.format("txaware")`: one transaction for each save."""

from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from txaware.errors import BadRequest
from txaware.model.messages import Receipt
from txaware.spark.committing import (
    Once,
    begin_for,
    commit,
    give_up,
    short_timeout_s,
)
from txaware.spark.options import Options
from txaware.spark.storing import Extent, Storing, WrittenColumns, measure, sum_up


@attrs.frozen
class StoredRows(WriterCommitMessage):
    """The answer of a task: what one attempt of it has stored."""

    receipts: list[Receipt]
    extent: Extent | None = None


class TopicSink(DataSourceArrowWriter):
    """A sink that stores in tasks, and publishes and commits in the driver.

    Its transaction begins at planning. Only what accepted attempts stored is published.
    Spark calls `abort` after any `commit` that failed, so `abort` must not undo a
    commit.
    """

    def __init__(
        self, options: Options, schema: StructType, *, overwrite: bool
    ) -> None:
        if overwrite:
            raise BadRequest('topics are only added to: use mode("append")')
        topic, save_id = options.text("topic"), options.text("save_id")
        queue = options.text("queue")
        if queue is None:
            columns = WrittenColumns.of(schema, topic)
        else:
            columns = WrittenColumns.of_queue(schema, queue)
        self._address = options.address().resolved()
        if topic is None and save_id is not None:
            raise BadRequest(
                "option save_id needs option topic: there it is remembered which save "
                "is done"
            )
        if topic is not None and queue is not None and save_id is None:
            raise BadRequest(
                "rows go to a topic or to a queue: beside option queue, topic is where "
                "a save_id is remembered, and there is none"
            )
        repeat_by = options.repeat_by()
        self._once: Once | None = None
        with self._address.open() as messaging:
            if topic is not None:
                generation = messaging.topic(topic).generation
                if save_id is not None:
                    self._once = Once.of_save(topic, save_id, generation, repeat_by)
            self._is_done = (
                self._once is not None and self._once.published(messaging) is not None
            )
            timeout_s = options.seconds("timeout_s")
            if self._once is not None:  # what can conflict has to be short
                timeout_s = short_timeout_s(messaging, timeout_s)
            self._tx, pipe = begin_for(messaging, queue, timeout_s)
        tasks = self._address.for_tasks()
        measures = self._once is not None and repeat_by == "rows"
        pointer = self._tx.transaction_id
        self._storing = Storing(tasks, pointer, columns, measures, pipe)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StoredRows:
        """Stores the rows of one attempt of a task; only measures a repeated save."""
        if not self._is_done:
            attempt = self._storing.store(iterator)
            return StoredRows(attempt.receipts, attempt.extent)
        if not self._storing.measures:
            return StoredRows([])
        return StoredRows([], measure(self._storing.columns, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publishes what the accepted attempts stored, all of it or nothing."""
        stored = [each for each in messages if isinstance(each, StoredRows)]
        receipts = [receipt for each in stored for receipt in each.receipts]
        extent = sum_up(each.extent for each in stored)
        with self._address.open() as messaging:
            commit(
                messaging, self._tx, receipts=receipts, once=self._once, extent=extent
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Ends the transaction, unless it is committed."""
        with self._address.open() as messaging:
            give_up(messaging, self._tx, is_unpublished=None in messages)
