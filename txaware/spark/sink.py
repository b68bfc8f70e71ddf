"""`df.write.format("txaware")`: one transaction for each save."""

from collections.abc import Iterator

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from txaware.errors import BadRequest
from txaware.messages import Receipt
from txaware.spark.committing import TIMEOUT_S, Once, begin, commit, give_up
from txaware.spark.options import Options
from txaware.spark.rows import Columns
from txaware.spark.storing import Storing
from txaware.topics import checked_group


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
        group = None if save_id is None else _group(topic, save_id)
        self._once = None
        with self._address.open() as messaging:
            if columns.topic is not None:
                generation = messaging.topic(columns.topic).generation
                if group is not None:
                    # What was done in a topic that is no more is not done.
                    self._once = Once(columns.topic, group, generation)
            self._is_done = self._once is not None and self._once.is_done(messaging)
            # What can conflict has to be short.
            longest_s = None if self._once is None else TIMEOUT_S
            self._tx = begin(messaging, options.seconds("timeout_s") or longest_s)
        tasks = self._address.for_tasks()
        self._storing = Storing(tasks, self._tx.transaction_id, columns)

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


def _group(topic: str | None, save_id: str) -> str:
    """Whose position in the topic says whether the save is done."""
    if topic is None:
        raise BadRequest(
            "option save_id needs option topic: there it is remembered which save is "
            "done"
        )
    try:
        return checked_group(f"spark-save-{save_id}")
    except BadRequest as error:
        raise BadRequest(
            f"{save_id!r} is no save_id; letters, digits, - _ and . make one"
        ) from error
