"""The data source `txaware` of PySpark: topics to read from and to write to."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from txaware.errors import BadRequest
from txaware.model.queues import MOST_POPPED, Waiting
from txaware.model.topics import QueueName
from txaware.spark.columns import TableMaker, schema_text
from txaware.spark.filters import Narrowed
from txaware.spark.options import (
    OF_TOPICS,
    READ,
    READ_STREAM,
    WRITE,
    WRITE_STREAM,
    Options,
)
from txaware.spark.partitions import Span, read
from txaware.spark.selection import QuerySelection
from txaware.spark.sink import TopicSink
from txaware.spark.stream_sink import StreamSink
from txaware.spark.stream_source import StreamSource


class Source(DataSourceReader):
    """A batch read: it takes a snapshot at planning, and all tasks read with that.

    Repeated tasks read with it, too. The whole range is the one that a consumer in a
    transaction would have got: up to the first message that was not decided.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._selection = QuerySelection.of(options)
        self._address = options.address().resolved()
        self._tasks = self._address.for_tasks()
        self._table = TableMaker(schema)
        self._narrowed = Narrowed()

    def partitions(self) -> Sequence[InputPartition]:
        """Plans ranges of ids of about the same size."""
        with self._address.open() as messaging:
            names = self._selection.names(messaging)
            wanted = self._narrowed.topics
            if wanted is not None:
                names = [name for name in names if name in wanted]
            snapshot, ranges = self._selection.seen_by_one(messaging, names)
            first, behind = self._narrowed.start, self._narrowed.stop
            narrowed = {
                name: (max(start, first), min(stop, behind))
                for name, (start, stop) in ranges.items()
            }
            return self._selection.spans(messaging, snapshot, narrowed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the messages of one range; the placeholder for no range has none."""
        if isinstance(partition, Span):
            with self._tasks.service() as service:
                yield from read(service, partition, self._table)


class NarrowedSource(Source):
    """A batch read for sessions that push filters down.

    Spark refuses a reader with `pushFilters` while its setting is off. And Spark 4.3
    keeps one plan for each `load()`, that of the last filter: a second query of the
    same DataFrame with another filter misses rows. So each query needs its own
    `load()`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrows the range by filters; Spark applies all of them again."""
        self._narrowed = Narrowed.by(filters)
        return filters


@attrs.frozen
class PeekPartition(InputPartition):
    """The only part of a read: the oldest items of a queue."""

    queue: str


class QueueSource(DataSourceReader):
    """A read of the oldest items that wait and are due; none of them is popped.

    A queue has no snapshot: each attempt reads what waits at that moment.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        for name in OF_TOPICS:
            if options.text(name) is not None:
                raise BadRequest(f"a queue is read as it stands: leave out {name}")
        self._queue = str(QueueName.parse(options.text("queue")))
        self._most = options.number("max_messages") or MOST_POPPED
        if self._most > MOST_POPPED:
            raise BadRequest(
                f"max_messages of a queue is up to {MOST_POPPED}, not {self._most}"
            )
        address = options.address().resolved()
        self._tasks = address.for_tasks()
        self._table = TableMaker(schema)
        with address.open() as messaging:
            _ = messaging.queue(self._queue).descriptor  # it has to be there

    def partitions(self) -> Sequence[InputPartition]:
        """Plans one task."""
        return [PeekPartition(self._queue)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the oldest items, in their order."""
        with self._tasks.open() as messaging:
            found = messaging.queue(self._queue).peek(self._most)
        columns = {
            "topic": [self._queue] * len(found),
            "id": [bytes.fromhex(item.id) for item in found],
            "publish_time": [item.pushed_at for item in found],
            "write_time": [None] * len(found),
            "payload": [item.payload for item in found],
            "key": [item.key for item in found],
            "headers": [_pairs(item) for item in found],
            "time": [item.pushed_at for item in found],
        }
        schema = self._table.schema
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pairs(item: Waiting) -> list[tuple[str, bytes]]:
    return list(item.headers.items())


@cache
def say_that_spark_starts() -> None:
    """Says once a process why the first save takes so long.

    Spark shows the user what this process writes to standard error, but not its log.
    """
    print(
        "txaware: the first save or read of a Spark session takes seconds, on a busy "
        "machine many: Spark starts Python processes for each of its steps. The next "
        "ones find them there.",
        file=sys.stderr,
        flush=True,
    )


class TxAwareDataSource(DataSource):
    """`spark.read.format("txaware")` and its three counterparts; see README.md."""

    @classmethod
    def name(cls) -> str:
        """Returns the name that `format` takes."""
        return "txaware"

    def schema(self) -> str:
        """Returns the columns of a message; `.schema("id binary")` asks for fewer."""
        return schema_text()

    def reader(self, schema: StructType) -> Source | QueueSource:
        """Returns the reader of a batch query."""
        options = Options.of(self.options, READ)
        if options.text("queue") is not None:
            return QueueSource(options, schema)
        kind = NarrowedSource if options.is_on("pushdown") else Source
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> StreamSource:
        """Returns the reader of a streaming query."""
        return StreamSource(Options.of(self.options, READ_STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicSink:
        """Returns the writer of a save, which is one transaction."""
        say_that_spark_starts()
        options = Options.of(self.options, WRITE)
        return TopicSink(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Returns the writer of micro-batches, each in one transaction."""
        return StreamSink(Options.of(self.options, WRITE_STREAM), schema)
