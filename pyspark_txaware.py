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

    Spark's first look-up of any source in Python imports this, in a process of its own
    that is good for nothing else: so all of txaware is imported by those that use it.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "txaware"

    def schema(self) -> StructType | str:
        """The columns of a message."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads once."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Reads on and on."""
        return self._source().streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Saves in one transaction."""
        return self._source().writer(schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Writes micro-batches, each in one transaction."""
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> DataSource:
        from txaware.spark.data_source import TxAwareDataSource

        return TxAwareDataSource(self.options)
