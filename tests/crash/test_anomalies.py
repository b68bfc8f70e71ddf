"""Several processes under faults: no history of theirs has an anomaly."""

import os
from pathlib import Path

import pytest

from tests.support.anomaly_run import run_without_anomalies

SECONDS = 8
# `ANOMALY_MINUTES=30 python -m pytest -m soak tests/crash/test_anomalies.py`.
SOAK_MINUTES = float(os.environ.get("ANOMALY_MINUTES", "2"))


def test_no_anomaly_under_faults(tmp_path: Path) -> None:
    run_without_anomalies(tmp_path, SECONDS)


@pytest.mark.soak
def test_no_anomaly_under_faults_for_long(tmp_path: Path) -> None:
    for minute in range(max(1, round(SOAK_MINUTES))):
        place = tmp_path / str(minute)
        place.mkdir()
        run_without_anomalies(place, 60)
