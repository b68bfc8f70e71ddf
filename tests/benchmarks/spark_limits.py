"""The limits of Spark and Python: a sink that keeps nothing, and made-up rows."""

from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from txaware.model.messages import NO_PAYLOAD_ROW
from txaware.spark.columns import MessageColumns, TableMaker, schema_text

BATCH_ROWS = 40_000
_PAYLOAD = (
    b'{"order": %08d, "customer": "c000042", "amount": 12.34, "note": "' + b"x" * 33
)


@attrs.frozen
class Thrown(WriterCommitMessage):
    """The number of rows that a task has seen."""

    rows: int


class ThrowAway(DataSourceArrowWriter):
    """A sink that looks at every batch, and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Thrown:
        """Counts the rows."""
        return Thrown(sum(batch.num_rows for batch in iterator))


@attrs.frozen
class Numbers(InputPartition):
    """The rows that one task makes up."""

    first: int
    behind: int


class MadeUp(DataSourceReader):
    """The columns of a message, with a payload that is different in each row."""

    def __init__(self, schema: StructType, rows: int, parts: int) -> None:
        self._table = TableMaker(schema)
        self._rows, self._parts = rows, parts

    def partitions(self) -> Sequence[InputPartition]:
        """Plans equal parts."""
        size = -(-self._rows // self._parts)
        firsts = range(0, self._rows, size)
        return [Numbers(first, min(first + size, self._rows)) for first in firsts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Makes ids and payloads up, and batches of their columns."""
        assert isinstance(partition, Numbers)
        for first in range(partition.first, partition.behind, BATCH_ROWS):
            numbers = range(first, min(first + BATCH_ROWS, partition.behind))
            ids = b"".join([n.to_bytes(10, "big") + NO_PAYLOAD_ROW for n in numbers])
            payloads = pa.array([_PAYLOAD % number for number in numbers], pa.binary())
            yield self._table.of(MessageColumns("made-up", ids, payloads))


class SparkLimits(DataSource):
    """`txaware-limits`: writes nowhere, and reads what it makes up."""

    @classmethod
    def name(cls) -> str:
        """Returns the name that `format` takes."""
        return "txaware-limits"

    def schema(self) -> str:
        """Returns the schema of messages."""
        return schema_text()

    def reader(self, schema: StructType) -> MadeUp:
        """Returns a reader for the options `rows` and `parts`."""
        return MadeUp(schema, int(self.options["rows"]), int(self.options["parts"]))

    def writer(self, schema: StructType, overwrite: bool) -> ThrowAway:
        """Returns a writer that takes any rows."""
        return ThrowAway()
