"""Partitions and compressed batches in a real HBase."""

import pytest

import txaware
from tests.support.partition_round import go_round
from txaware.model.settings import Settings

pytestmark = pytest.mark.hbase


def test_partitions_keep_what_they_promise(hbase_url: str) -> None:
    settings = Settings(janitor_interval_s=0)
    go_round(lambda: txaware.connect(hbase_url, settings=settings))
