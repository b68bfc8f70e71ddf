"""Several servers over the shards of a store under faults: no history is wrong."""

import os
from pathlib import Path

import pytest

from tests.support.anomaly_check import numbered
from tests.support.cluster_run import run

SECONDS = 8
# `ANOMALY_MINUTES=10 python -m pytest -m soak tests/crash/test_cluster_anomalies.py`.
SOAK_MINUTES = float(os.environ.get("ANOMALY_MINUTES", "1"))


def run_without_anomalies(place: Path, seconds: float) -> None:
    outcome = run(place, seconds)
    print(outcome)
    found = outcome.history.anomalies()
    assert not found, [numbered(one) for one in found[:20]]
    assert outcome.acknowledged > 50
    assert sum(outcome.faults.values()) > 0


def test_no_anomaly_over_shards_under_faults(tmp_path: Path) -> None:
    run_without_anomalies(tmp_path, SECONDS)


@pytest.mark.soak
def test_no_anomaly_over_shards_under_faults_for_long(tmp_path: Path) -> None:
    for minute in range(max(1, round(SOAK_MINUTES))):
        place = tmp_path / str(minute)
        place.mkdir()
        run_without_anomalies(place, 60)
