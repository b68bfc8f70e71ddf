"""DataFrames in a transaction of the driver, beside whatever else takes part in it."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from coordinator import TransactionAware
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, ParticipantFailed
from txaware.messages import Receipt
from txaware.messaging import Messaging, MessagingTransaction, connect
from txaware.spark.addresses import Address
from txaware.spark.committing import Once, publish
from txaware.spark.rows import Columns
from txaware.spark.sink import TIMEOUT_S
from txaware.spark.storing import Storing
from txaware.spark.stream_sink import QUERY_ID

_RECEIPTS = "topic string, attempt binary, count bigint"

# What is done with a micro-batch in its transaction.
Work = Callable[[DataFrame, MessagingTransaction], object]


def store_frame(frame: DataFrame, topic: str | None, tx: MessagingTransaction) -> int:
    """Publishes the rows of a DataFrame with the commit of `tx`; answers how many.

    `with messaging.transaction(table) as tx: store_frame(df, "topic", tx)`. The job
    runs here: its tasks store the rows ahead of the commit, which then publishes what
    the accepted attempts stored. A job that fails or is interrupted leaves nothing but
    a transaction that can only be rolled back. Columns are those of the sink. Begin it
    with a `timeout_s` that the job keeps to, or `long=True`.
    """
    messaging = tx.messaging
    columns = Columns.of(frame.schema, topic)
    address = Address.of(messaging.reach()).for_tasks()
    job = tx.joined("Spark jobs", SparkJobs)
    if columns.topic is not None:
        messaging.publisher(columns.topic).publish_stored(())  # there is such a topic
    tx.store_held()  # the order is that of the storing
    tx.coordinator.persist(tx.transaction)  # before a row of it is on disk
    storing = Storing(address, tx.transaction.transaction_id, columns)
    with job:
        rows = frame.mapInArrow(partial(_stored, storing), _RECEIPTS).collect()
        receipts = [
            Receipt(storing.pointer, row["topic"], bytes(row["attempt"]), row["count"])
            for row in rows
        ]
        publish(messaging, receipts)
    return sum(receipt.count for receipt in receipts)


def publish_batches(
    where: Messaging | str, topic: str, *, timeout_s: float = TIMEOUT_S
) -> Callable[[DataFrame, int], None]:
    """`stream.writeStream.foreachBatch(publish_batches(messaging, "topic"))`.

    Every micro-batch is published exactly once, also over restarts.
    """

    def work(frame: DataFrame, tx: MessagingTransaction) -> None:
        store_frame(frame, topic, tx)

    return once_per_batch(where, topic, work, timeout_s=timeout_s)


def once_per_batch(
    where: Messaging | str,
    topic: str,
    work: Work,
    *participants: TransactionAware,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[DataFrame, int], None]:
    """Has `work(frame, tx)` done in one transaction for each micro-batch, exactly once.

    For `foreachBatch`. In `topic` it is remembered which batches of the query are done;
    where the commit of one is repeated after a crash, `work` is not called again.
    """

    def run(frame: DataFrame, batch_id: int) -> None:
        once = Once(topic, f"spark-{_query_id(frame)}", batch_id)
        opened = connect(where) if isinstance(where, str) else nullcontext(where)
        with (
            opened as messaging,
            messaging.transaction(*participants, timeout_s=timeout_s) as tx,
        ):
            once.fence(messaging, tx.transaction)
            if not once.is_done(messaging):
                work(frame, tx)
                once.mark_done(messaging, tx.transaction)
                return
            tx.abort()
        # A query with state fails unless each of its batches is computed to the end.
        frame.write.format("noop").mode("overwrite").save()

    return run


class SparkJobs:
    """Takes part for the tasks of a transaction: after a job that failed, they may
    still be storing, so that it can neither commit nor count as undone."""

    shares_journal = True
    transaction_aware_name = "Spark jobs"

    def __init__(self) -> None:
        self._unfinished = 0

    def __enter__(self) -> None:
        self._unfinished += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._unfinished -= 1

    def start_tx(self, tx: Transaction) -> None:
        """Nothing was stored yet."""

    def update_tx(self, tx: Transaction) -> None:
        """Tasks go on with the first pointer."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """None."""
        return ()

    def commit_tx(self) -> bool:
        """Refuses what would commit without the rows of a job that failed."""
        if self._unfinished:
            raise ParticipantFailed(
                "a Spark job failed in this transaction, which can only be rolled back"
            )
        return True

    def post_tx_commit(self) -> None:
        """Its publisher has published what was stored."""

    def rollback_tx(self) -> bool:
        """Whether no task is storing any more."""
        return not self._unfinished


def _stored(
    storing: Storing, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    receipts = storing.store(batches)
    yield pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([each.topic for each in receipts], pa.string()),
            "attempt": pa.array([each.attempt for each in receipts], pa.binary()),
            "count": pa.array([each.count for each in receipts], pa.int64()),
        }
    )


def _query_id(frame: DataFrame) -> str:
    session = frame.sparkSession
    if not hasattr(session, "_jsparkSession"):  # of Spark Connect
        active = [query.id for query in session.streams.active]
        if len(active) == 1:
            return str(active[0])
        raise BadRequest(
            f"{len(active)} queries run in this session, and Spark Connect does not "
            f'tell which one this batch is of; use writeStream.format("txaware")'
        )
    query_id: str | None = session.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise BadRequest("this is for foreachBatch, and no streaming query runs here")
    return query_id
