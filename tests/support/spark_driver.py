"""A driver of its own that saves, and waits in the middle: `URL FAULT`.

Run by tests, which end it there.
"""

import sys

from tests.support.spark_faults import Faulty
from tests.support.spark_fixtures import session


def main(url: str, fault: str) -> None:
    spark = session("local[2]")
    spark.dataSource.register(Faulty)
    # In one part: a fault waits in the first one, and a second would have the row.
    rows = spark.createDataFrame([("of the dead",)], "payload string").coalesce(1)
    writer = rows.write.format("faulty").mode("append").option("fault", fault)
    writer.options(url=url, topic="t", timeout_s="600").save()


if __name__ == "__main__":
    main(*sys.argv[1:])
