"""Topics and tables in PySpark: executors store and read, the driver commits."""

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
from txaware.spark.table_frames import store_rows, table_frame

del pyarrow, pyspark

__all__ = [
    "TxAwareDataSource",
    "once_per_batch",
    "publish_batches",
    "store_frame",
    "store_rows",
    "table_frame",
]
