"""The floors of queues: `pytest -m benchmark -s`, or `tests.benchmarks queue`."""

from pathlib import Path

import pytest

from tests.benchmarks import queue
from tests.benchmarks.measure import are_kept
from txaware.bench.trial import Trial

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", queue.LETTERS)
def test_the_floor_is_kept(letter: str, tmp_path: Path) -> None:
    assert are_kept(queue.figures(Trial(directory=tmp_path), letter))
