"""Makes `format("txaware")` known to PySpark, which finds this module by its name."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source `txaware`, without `spark.dataSource.register`.

    Spark's first look-up of any source in Python imports this module in a process that
    does nothing else. So the rest of txaware is imported only once it is used.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name that `format` takes."""
        return "txaware"

    def schema(self) -> StructType | str:
        """Returns the columns of a message."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of a batch query."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Returns the reader of a streaming query."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer of a save, which is one transaction."""
        return self._source().writer(schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Returns the writer of micro-batches, each in one transaction."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> DataSource:
        from txaware.spark.data_source import TxAwareDataSource

        return TxAwareDataSource(self.options)
