"""The data source `txaware` of PySpark: topics to read from and to write to."""

import sys
from functools import cache

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from txaware.spark.columns import SCHEMA
from txaware.spark.options import READ, READ_STREAM, WRITE, WRITE_STREAM, Options
from txaware.spark.sink import Sink
from txaware.spark.source import NarrowedSource, Source
from txaware.spark.stream_sink import StreamSink
from txaware.spark.stream_source import StreamSource


@cache
def say_that_spark_starts() -> None:
    """Says once a process why the first save takes so long.

    Spark shows the driver's user what this process writes there, and no log of it.
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
        """What `format` is given."""
        return "txaware"

    def schema(self) -> str:
        """The columns of a message; `.schema("id binary, ...")` asks for fewer."""
        return SCHEMA

    def reader(self, schema: StructType) -> Source:
        """Reads once."""
        options = Options.of(self.options, READ)
        kind = NarrowedSource if options.is_on("pushdown") else Source
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> StreamSource:
        """Reads on and on."""
        return StreamSource(Options.of(self.options, READ_STREAM), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Sink:
        """Saves in one transaction."""
        say_that_spark_starts()
        options = Options.of(self.options, WRITE)
        return Sink(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Writes micro-batches, each in one transaction."""
        return StreamSink(Options.of(self.options, WRITE_STREAM), schema)
