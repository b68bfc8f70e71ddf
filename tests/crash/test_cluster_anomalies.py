"""Several servers over the shards of a store under faults: no history is wrong."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.anomaly_run import run, run_without_anomalies
from tests.support.cluster_run import ClusterServer

SECONDS = 8
# `ANOMALY_MINUTES=10 python -m pytest -m soak tests/crash/test_cluster_anomalies.py`.
SOAK_MINUTES = float(os.environ.get("ANOMALY_MINUTES", "1"))


def test_no_anomaly_over_shards_under_faults(tmp_path: Path) -> None:
    run_without_anomalies(tmp_path, SECONDS, ClusterServer)


def found(place: Path, program: list[str]) -> set[str]:
    """What is wrong with servers that have a mistake on purpose."""
    try:
        served = partial(ClusterServer, program=program)
        outcome = run(place, SECONDS, served, ["client"])
    except AssertionError as error:  # a group has passed what it did not copy
        return set(str(error).partition("\n")[0].split(" ", 1)[1:])
    return {one.kind for one in outcome.history.anomalies()}


def test_rows_that_come_after_their_commit_are_found(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.support.cluster_faults", "late"]
    wrong = {"copied something else", "torn", "lost", "skipped", "internal skip"}
    assert found(tmp_path, program) & wrong


@pytest.mark.soak
def test_no_anomaly_over_shards_under_faults_for_long(tmp_path: Path) -> None:
    for minute in range(max(1, round(SOAK_MINUTES))):
        place = tmp_path / str(minute)
        place.mkdir()
        run_without_anomalies(place, 60, ClusterServer)
