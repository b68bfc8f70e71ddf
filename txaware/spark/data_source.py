"""The data source `txaware` of PySpark: topics to read from and to write to."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from txaware.spark.columns import SCHEMA
from txaware.spark.options import READ, READ_STREAM, WRITE, WRITE_STREAM, Options
from txaware.spark.sink import Sink
from txaware.spark.source import NarrowedSource, Source
from txaware.spark.stream_sink import StreamSink
from txaware.spark.stream_source import StreamSource


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
        options = Options.of(self.options, WRITE)
        return Sink(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """Writes micro-batches, each in one transaction."""
        return StreamSink(Options.of(self.options, WRITE_STREAM), schema)
