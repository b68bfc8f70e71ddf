"""Topics in PySpark: executors store, the driver publishes and commits."""

from coordinator.errors import install_with

try:
    import pyarrow
    import pyspark
except ImportError as error:
    raise ImportError(
        f"txaware.spark needs PySpark and PyArrow: {install_with('spark')}"
    ) from error

from txaware.spark.data_source import TxAwareDataSource
from txaware.spark.dataframes import once_per_batch, publish_batches, store_frame

del pyarrow, pyspark

__all__ = ["TxAwareDataSource", "once_per_batch", "publish_batches", "store_frame"]
