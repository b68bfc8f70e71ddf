"""The lineage of the audit trail in Spark: the same as that of its reader."""

import pytest
from pyspark.sql import SparkSession

import txaware
from examples.audit_trail.datasets import Datasets
from examples.audit_trail.readers import READERS, made_from
from examples.audit_trail.spark_lineage import made_from as made_from_in_spark

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_java")]


def test_spark_finds_what_the_reader_found(spark: SparkSession) -> None:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        datasets = Datasets(messaging)
        for source, made in (("shop", "orders"), ("orders", "revenue"), ("crm", "x")):
            with datasets.run("ann", f"make {made}") as run:
                run.read(source)
                run.write(made)
        READERS["lineage"].catch_up(messaging)
        for asked in ("orders@1", "nothing"):
            found = made_from_in_spark(spark, server.url, asked)
            assert found == [*made_from(messaging, asked)]
        through_two = made_from_in_spark(spark, server.url, "shop")
        assert through_two == [*made_from(messaging, "shop")]
        assert through_two == ["orders@1", "revenue@1"]
