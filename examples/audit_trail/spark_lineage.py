"""What came from a data set, as a job of Spark that reads the topic itself.

`python -m examples.audit_trail.spark_lineage crm --url http://127.0.0.1:11015`
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.audit_trail.datasets import ACCESSES

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

ACCESS = "dataset string, version int, made_from array<string>"


def edges(spark: SparkSession, url: str) -> DataFrame:
    """Returns the edges of all accesses that one snapshot sees."""
    accesses = spark.read.format("txaware").option("url", url)
    events = accesses.option("topic", ACCESSES).load()
    event = f.from_json(f.col("payload").cast("string"), ACCESS)
    made = f.concat_ws("@", f.col("event.dataset"), f.col("event.version"))
    return events.select(event.alias("event")).select(
        f.explode("event.made_from").alias("source"), made.alias("made")
    )


def made_from(spark: SparkSession, url: str, dataset: str) -> list[str]:
    """Returns all versions that came from a data set, step by step."""
    table = edges(spark, url).persist()  # or each step would be of another snapshot
    is_version = "@" in dataset
    found: set[str] = set()
    begins = f.col("source").startswith(dataset if is_version else f"{dataset}@")
    rows = table.where(f.col("source") == dataset if is_version else begins)
    while new := {row.made for row in rows.select("made").collect()} - found:
        found |= new
        rows = table.where(f.col("source").isin(*new))
    table.unpersist()
    return sorted(found)


def main() -> None:
    """Prints what came from a data set."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("--url", default="http://127.0.0.1:11015")
    options = parser.parse_args()
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    for made in made_from(spark, options.url, options.dataset):
        print(made)
    spark.stop()


if __name__ == "__main__":
    main()
