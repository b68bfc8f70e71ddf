"""The floors of the sender: `pytest -m benchmark -s`, or `tests.benchmarks`."""

from pathlib import Path

import pytest

from tests.benchmarks.measure import are_kept
from tests.benchmarks.sender import LETTERS, figures
from txaware.bench.trial import Trial

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", LETTERS)
def test_the_floor_is_kept(letter: str, tmp_path: Path) -> None:
    assert are_kept(figures(Trial(directory=tmp_path), letter))
