"""Topics in PySpark: executors store, the driver publishes and commits."""

try:
    import pyarrow
    import pyspark
except ImportError as error:
    raise ImportError(
        "txaware.spark needs PySpark and PyArrow: pip install 'txaware[spark]'"
    ) from error

from txaware.spark.data_source import TxAwareDataSource
from txaware.spark.frames import once_per_batch, publish_batches, store_frame

del pyarrow, pyspark

__all__ = ["TxAwareDataSource", "once_per_batch", "publish_batches", "store_frame"]
