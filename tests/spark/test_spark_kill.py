"""Kills the driver of a stream, and its server: all is copied exactly once."""

import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.spark_pipeline import After, At, pipeline
from tests.support.spark_stream_job import (
    FOR_EACH_BATCH,
    FORMAT,
    MESSAGES_A_BATCH,
    STEPS,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_java")]

ONLY_STEPS_OF_FORMAT = {"when the transaction has begun"}


def steps(way: str) -> list[str]:
    """All of them but one that only transactions of the sink's own have."""
    return [step for step in STEPS if way == FORMAT or step not in ONLY_STEPS_OF_FORMAT]


def killed_at(
    directory: Path, way: str, kills: Sequence[At], data: str | None = None
) -> None:
    """One driver after the other is killed, each at its step."""
    with pipeline(directory, way, data=data) as stream:
        for kill in kills:
            stream.publish(2 * MESSAGES_A_BATCH)
            assert stream.run(kill) == -signal.SIGKILL, kill


@pytest.mark.parametrize(
    ("way", "step"),
    [
        (FORMAT, "after the coordinator's commit"),
        pytest.param(FOR_EACH_BATCH, "after the publish", marks=pytest.mark.soak),
    ],
)
@pytest.mark.long
def test_kill_9_of_a_driver_loses_and_doubles_nothing(
    way: str, step: str, tmp_path: Path
) -> None:
    killed_at(tmp_path, way, [At(step)])


def random_kill(way: str) -> At | After:
    """Any step, or any time of the driver or of the server."""
    if random.random() < 0.6:
        return At(random.choice(steps(way)), random.choice([1, 2]))
    return After(random.uniform(0, 8), server=random.random() < 0.5)


@pytest.fixture(params=["leveldb", pytest.param("hbase", marks=pytest.mark.hbase)])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the server keeps the topics."""
    if request.param == "leveldb":
        return str(tmp_path / "data")
    return str(request.getfixturevalue("hbase_url"))


@pytest.mark.soak
@pytest.mark.parametrize("way", [FORMAT, FOR_EACH_BATCH])
def test_kill_9_at_every_step(way: str, data: str, tmp_path: Path) -> None:
    killed_at(tmp_path, way, [At(step) for step in steps(way)], data)


@pytest.mark.soak
@pytest.mark.parametrize("way", [FORMAT, FOR_EACH_BATCH])
def test_fifteen_rounds_of_kill_9_of_driver_or_server(
    way: str, data: str, tmp_path: Path
) -> None:
    with pipeline(tmp_path, way, data=data) as stream:
        for _ in range(15):
            kill = random_kill(way)
            stream.publish(random.randint(1, 3 * MESSAGES_A_BATCH))
            print(kill, stream.run(kill), flush=True)
