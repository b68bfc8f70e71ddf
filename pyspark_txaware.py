"""Makes `format("txaware")` known to PySpark, which finds this module by its name."""

from txaware.spark import TxAwareDataSource


class DefaultSource(TxAwareDataSource):
    """The data source `txaware`, without `spark.dataSource.register`."""
