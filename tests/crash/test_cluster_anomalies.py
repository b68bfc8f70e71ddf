"""Several servers over the shards of a store under faults: no history is wrong."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import txaware
from tests.support.anomaly_run import run, run_without_anomalies
from tests.support.cli_runs import PROGRAM
from tests.support.cluster_faults import FAULTY
from tests.support.cluster_run import ClusterServer
from tests.support.clusters import clustered
from tests.support.told import Told

SECONDS = 8
# `ANOMALY_MINUTES=10 python -m pytest -m soak tests/crash/test_cluster_anomalies.py`.
SOAK_MINUTES = float(os.environ.get("ANOMALY_MINUTES", "1"))


def test_no_anomaly_over_shards_under_faults(tmp_path: Path) -> None:
    run_without_anomalies(tmp_path, SECONDS, ClusterServer)


def found(place: Path, program: Sequence[str]) -> set[str]:
    """What is wrong with servers that have a mistake on purpose."""
    try:
        served = partial(ClusterServer, program=program)
        outcome = run(place, SECONDS, served, ["client"])
    except AssertionError as error:  # a group has passed what it did not copy
        return set(str(error).partition("\n")[0].split(" ", 1)[1:])
    return {one.kind for one in outcome.history.anomalies()}


@pytest.mark.parametrize("is_planted", [True, False])
def test_rows_that_come_after_their_commit_are_found(
    tmp_path: Path, is_planted: bool
) -> None:
    """Without the mistake nothing is wrong with the same steps."""
    (tmp_path / "held").touch()
    program, told = [*FAULTY, "late"] if is_planted else PROGRAM, Told()
    with (
        clustered(tmp_path / "data", 2, program=program) as cluster,
        txaware.connect(cluster.owner_of(0)) as messaging,
    ):
        messaging.create_topic("here", shards=[0])
        messaging.create_topic("there", shards=[1])
        told.publish(messaging, ["here", "there"], "both")
        for topic in ("here", "there"):
            told.poll(messaging, topic, "reader")
    assert told.wrong() == ({"lost", "torn"} if is_planted else set())


@pytest.mark.soak
def test_rows_that_come_after_their_commit_are_found_in_a_random_history(
    tmp_path: Path,
) -> None:
    wrong = {"copied something else", "torn", "lost", "skipped", "internal skip"}
    assert found(tmp_path, [*FAULTY, "late"]) & wrong


@pytest.mark.soak
def test_no_anomaly_over_shards_under_faults_for_long(tmp_path: Path) -> None:
    for minute in range(max(1, round(SOAK_MINUTES))):
        place = tmp_path / str(minute)
        place.mkdir()
        run_without_anomalies(place, 60, ClusterServer)
