"""Several servers of one store in a real HBase under faults: no history is wrong."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.anomaly_run import run_without_anomalies
from tests.support.hbase_cluster_run import HBaseServers
from txaware.local_hbase import LocalHBase

SECONDS = 40


@pytest.mark.hbase
@pytest.mark.soak
def test_no_anomaly_over_shards_in_hbase_under_faults(
    shared_hbase: LocalHBase, tmp_path: Path
) -> None:
    served = partial(HBaseServers, hbase=shared_hbase, prefix="histories")
    run_without_anomalies(tmp_path, SECONDS, served)
