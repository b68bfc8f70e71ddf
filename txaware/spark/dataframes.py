"""DataFrames in a transaction of the driver, together with its other participants."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, Row

from coordinator import TransactionAware
from coordinator.interfaces import Participant
from txaware.errors import BadRequest, ParticipantFailed
from txaware.messaging import Messaging, MessagingTransaction, connect
from txaware.model.markers import query_marker
from txaware.model.messages import Receipt
from txaware.model.partitions import full_name
from txaware.queue import Queue
from txaware.spark.addresses import StoreAddress
from txaware.spark.committing import Once, publish, short_timeout_s
from txaware.spark.options import RepeatBy, checked_repeat_by
from txaware.spark.storing import (
    Extent,
    Storing,
    StoringAttempt,
    WrittenColumns,
    measure,
)
from txaware.spark.stream_sink import QUERY_ID

_RECEIPTS = "topic string, attempt binary, count bigint"
_EXTENT = "rows bigint, total string"  # a total has more bits than a bigint
_STORED = f"{_RECEIPTS}, {_EXTENT}"

# A function for `foreachBatch` publishes to this: a messaging, an address, or a
# function that connects.
Where = Messaging | str | Callable[[], Messaging]
# The work that is done with a micro-batch in its transaction.
Work = Callable[[DataFrame, MessagingTransaction], object]


def store_frame(
    frame: DataFrame, topic: str | Queue | None, tx: MessagingTransaction
) -> int:
    """Publishes the rows of a DataFrame with the commit of `tx`; returns their number.

    `with messaging.transaction(table) as tx: store_frame(df, "topic", tx)`. To a queue
    they are pushed: `store_frame(df, messaging.queue("mail"), tx)`. The job
    runs here: its tasks store the rows ahead of the commit, which then publishes what
    the accepted attempts stored. A job that fails or is interrupted leaves nothing but
    a transaction that can only be rolled back. The columns are those of the sink. Begin
    the transaction with a `timeout_s` that the job keeps to, or with `long=True`.
    """
    receipts = _store(frame, topic, tx, measures=False).receipts
    return sum(receipt.count for receipt in receipts)


def _store(
    frame: DataFrame,
    topic: str | Queue | None,
    tx: MessagingTransaction,
    *,
    measures: bool,
) -> StoringAttempt:
    """Stores the rows; returns what all tasks stored together."""
    messaging = tx.messaging
    pipe: str | None = None
    if isinstance(topic, Queue):
        columns = WrittenColumns.of_queue(frame.schema, topic.name)
    else:
        columns = WrittenColumns.of(frame.schema, topic)
    address = StoreAddress.of(messaging.reach()).for_tasks()
    job = tx.joined("Spark jobs", SparkJobs)
    if isinstance(topic, Queue):
        pipe = topic.reserve(tx.transaction)
    elif columns.topic is not None:
        messaging.publisher(columns.topic).publish_stored(())  # there is such a topic
    tx.store_held()  # the order is that of the storing
    messaging.persist_stored(tx.transaction)  # before a row of it is on disk
    pointer = tx.transaction.transaction_id
    storing = Storing(address, pointer, columns, measures, pipe)
    with job:
        rows = frame.mapInArrow(partial(_stored, storing), _STORED).collect()
        receipts = [
            Receipt(storing.pointer, row["topic"], bytes(row["attempt"]), row["count"])
            for row in rows
        ]
        publish(messaging, receipts)
    return StoringAttempt(receipts, _together(rows) if measures else None)


def publish_batches(
    where: Where,
    topic: str,
    *,
    timeout_s: float | None = None,
    checkpoint: str | None = None,
    name: str | None = None,
    repeat_by: RepeatBy = "rows",
) -> Callable[[DataFrame, int], None]:
    """Returns a function for `foreachBatch` that publishes each micro-batch once.

    `stream.writeStream.foreachBatch(publish_batches(messaging, "topic"))`. Every
    micro-batch is published exactly once, also over restarts. With Spark Connect
    `where` is an address, or a function that connects (with a token, or another
    coordinator), and `checkpoint` is the query's checkpointLocation. If parts of a
    batch are published to one topic, each part gets a `name`. A batch that comes again
    is a repeat if it has the same rows, and is refused otherwise; with
    `repeat_by="number"` other rows of the same number are a repeat too.
    """

    def do(frame: DataFrame, tx: MessagingTransaction) -> Extent | None:
        return _store(frame, topic, tx, measures=repeat_by == "rows").extent

    def measured(frame: DataFrame) -> Extent:
        columns = WrittenColumns.of(frame.schema, topic)
        rows = frame.mapInArrow(partial(_measured, columns), _EXTENT).collect()
        return _together(rows)

    batches = _Batches(where, topic, do, measured, (), timeout_s, checkpoint, name)
    return batches.function(repeat_by)


def once_per_batch(
    where: Where,
    topic: str,
    work: Work,
    *participants: TransactionAware,
    timeout_s: float | None = None,
    checkpoint: str | None = None,
    name: str | None = None,
    repeat_by: RepeatBy = "rows",
) -> Callable[[DataFrame, int], None]:
    """Returns a function for `foreachBatch` that does `work(frame, tx)` exactly once.

    Each micro-batch has one transaction. `topic` remembers which batches of the query
    are done: if one is repeated after a crash, `work` is not called again.
    `checkpoint` is as for `publish_batches`. Two functions for one topic in a query
    need a `name` each, or the second would find every batch done. A batch that comes
    again with other rows is refused: to tell, the frame is cached and measured before
    `work` is called. With `repeat_by="number"` it is neither cached nor measured, and a
    batch is known by its number alone.
    """

    def do(frame: DataFrame, tx: MessagingTransaction) -> Extent | None:
        if repeat_by == "number":
            work(frame, tx)
            return None
        frame.persist()  # so that measuring and `work` compute it once
        try:
            extent = _measured_frame(frame)
            work(frame, tx)
        finally:
            frame.unpersist()
        return extent

    batches = _Batches(
        *(where, topic, do, _measured_frame, participants),
        *(timeout_s, checkpoint, name),
    )
    return batches.function(repeat_by)


@attrs.frozen
class _Batches:
    """The work that is done once for each batch, and the measure of a repeated one."""

    where: Where
    topic: str
    do: Callable[[DataFrame, MessagingTransaction], Extent | None]
    measured: Callable[[DataFrame], Extent]
    participants: tuple[TransactionAware, ...]
    timeout_s: float | None
    checkpoint: str | None
    name: str | None

    def function(self, repeat_by: RepeatBy) -> Callable[[DataFrame, int], None]:
        """Returns the function that `foreachBatch` calls."""
        checked_repeat_by(repeat_by)
        query_marker("q", self.name)  # is a name, or is refused here

        def run(frame: DataFrame, batch_id: int) -> None:
            query_id = _query_id(frame, self.checkpoint)
            once = Once.of_batch(
                *(self.topic, query_id, batch_id),
                name=self.name,
                repeat_by=repeat_by,
            )
            self._run(frame, once)

        return run

    def _run(self, frame: DataFrame, once: Once) -> None:
        done_here = _DoneHere(frame, once)
        done_here.refuse_again()
        with (
            _opened(self.where) as messaging,
            once.told_who_else(messaging),
            messaging.transaction(
                *self.participants,
                timeout_s=short_timeout_s(messaging, self.timeout_s),
            ) as tx,
        ):
            once.fence(messaging, tx.transaction)
            published = once.published(messaging)
            if published is None:
                extent = self.do(frame, tx)
                once.mark_done(messaging, tx.transaction, extent)
            else:
                tx.abort()
        if published is None:
            done_here.remember()
        # A query with state fails unless each of its batches is computed.
        elif once.compares(published):
            once.require_same(published, self.measured(frame))
        else:
            frame.write.format("noop").mode("overwrite").save()


def _opened(where: Where) -> AbstractContextManager[Messaging]:
    if isinstance(where, Messaging):
        return nullcontext(where)
    return connect(where) if isinstance(where, str) else where()


class _DoneHere:
    """A note in the thread of a query about the batch that this run has done.

    A new run has a new thread. Spark Connect has no place for such a note.
    """

    def __init__(self, frame: DataFrame, once: Once) -> None:
        is_classic = hasattr(frame.sparkSession, "_jsparkSession")
        self._context = frame.sparkSession.sparkContext if is_classic else None
        self._once = once
        self._property = f"txaware.done.{full_name(once.topic)}.{once.name}"

    def refuse_again(self) -> None:
        """Refuses a second batch of one run, which would be dropped as a repeat."""
        if self._context is None:
            return
        if self._context.getLocalProperty(self._property) == str(self._once.number):
            raise BadRequest(
                f"batch {self._once.number} is published to {self._once.topic} twice "
                f"in one run, and the second time would be taken for a repeat; give "
                f"each a name of its own"
            )

    def remember(self) -> None:
        """Notes that the batch is done."""
        if self._context is not None:
            self._context.setLocalProperty(self._property, str(self._once.number))


class SparkJobs(Participant):
    """The participant for the tasks of a transaction.

    After a job that failed, its tasks may still be storing. So the transaction can
    neither commit nor count as undone.
    """

    shares_journal = True
    transaction_aware_name = "Spark jobs"

    def __init__(self) -> None:
        self._unfinished = 0

    def __enter__(self) -> None:
        self._unfinished += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._unfinished -= 1

    def commit_tx(self) -> bool:
        """Refuses a commit that would lack the rows of a job that failed."""
        if self._unfinished:
            raise ParticipantFailed(
                "a Spark job failed in this transaction, which can only be rolled back"
            )
        return True

    def rollback_tx(self) -> bool:
        """Tells whether no task can be storing any more."""
        return not self._unfinished


def _stored(
    storing: Storing, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    stored = storing.store(batches)
    receipts = stored.receipts
    # The extent of all topics stands beside the first one.
    extents = [stored.extent or Extent()] + [Extent()] * len(receipts)
    yield pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([each.topic for each in receipts], pa.string()),
            "attempt": pa.array([each.attempt for each in receipts], pa.binary()),
            "count": pa.array([each.count for each in receipts], pa.int64()),
            **_columns(extents[: len(receipts)]),
        }
    )


def _measured(
    columns: WrittenColumns, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(_columns([measure(columns, batches)]))


def _columns(extents: list[Extent]) -> dict[str, pa.Array]:
    return {
        "rows": pa.array([each.rows for each in extents], pa.int64()),
        "total": pa.array([str(each.total) for each in extents], pa.string()),
    }


def _together(rows: Iterable[Row]) -> Extent:
    extents = [Extent(row["rows"], int(row["total"])) for row in rows]
    return sum(extents, Extent())


def _measured_frame(frame: DataFrame) -> Extent:
    """Measures any columns; maps become JSON first, as Spark cannot hash them."""
    whole = any("map<" in kind or "variant" in kind for _, kind in frame.dtypes)
    row = "to_json(struct(*))" if whole else "*"
    [found] = frame.selectExpr(
        "count(1) AS rows", f"sum(xxhash64({row}) & {0xFFFFFFFF}L) AS total"
    ).collect()
    return Extent(found["rows"], found["total"] or 0)


def _query_id(frame: DataFrame, checkpoint: str | None) -> str:
    session = frame.sparkSession
    if checkpoint is not None:  # wherever that is, Spark can read it
        [metadata] = session.read.text(f"{checkpoint}/metadata").collect()
        return str(json.loads(metadata["value"])["id"])
    if not hasattr(session, "_jsparkSession"):
        raise BadRequest(
            "Spark Connect does not tell which query this batch is of: say where it "
            'has its checkpoint, publish_batches(URL, "topic", checkpoint=LOCATION)'
        )
    query_id: str | None = session.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise BadRequest("this is for foreachBatch, and no streaming query runs here")
    return query_id
