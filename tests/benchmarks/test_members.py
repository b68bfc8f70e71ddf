"""The floors of groups: `pytest -m benchmark -s`, or `tests.benchmarks groups`."""

from pathlib import Path

import pytest

from tests.benchmarks import groups
from tests.benchmarks.measure import are_kept
from txaware.bench.trial import Trial

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", groups.LETTERS)
def test_the_floor_is_kept(letter: str, tmp_path: Path) -> None:
    trial = Trial(directory=tmp_path, rounds=groups.ROUNDS)
    assert are_kept(groups.figures(trial, letter))
