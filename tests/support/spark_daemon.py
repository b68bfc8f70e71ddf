"""What forks the Python workers of a Spark session, with txaware imported already.

Each worker would import it anew: a second of a processor, several times a query. What
PyArrow has is left to them, as it starts threads.
"""

import gc
import importlib

from pyspark.daemon import manager

IMPORTED = (
    *("txaware", "txaware.messaging.remote_parts", "txaware.client.service"),
    *("pyspark.sql.datasource", "pyspark.sql.streaming.datasource", "pyspark.worker"),
)

if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    manager()
