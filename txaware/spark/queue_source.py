"""A batch read of a queue: what waits in it, and stays there."""

from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from txaware.errors import BadRequest
from txaware.queues import MOST_POPPED, Waiting
from txaware.spark.columns import Table
from txaware.spark.options import Options
from txaware.topics import QueueName


@attrs.frozen
class Peek(InputPartition):
    """The only part of a read: the oldest items of a queue."""

    queue: str


class QueueSource(DataSourceReader):
    """A read of the oldest items that wait and are due; none of them is popped.

    A queue has no snapshot: each attempt reads what waits at that moment.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        for name in ("topic", "topics", "topic_pattern", "start", "end", "pushdown"):
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
        self._table = Table(schema)
        with address.open() as messaging:
            _ = messaging.queue(self._queue).descriptor  # it has to be there

    def partitions(self) -> Sequence[InputPartition]:
        """Plans one task."""
        return [Peek(self._queue)]

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
