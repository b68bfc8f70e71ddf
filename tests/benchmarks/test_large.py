"""The floors of many rows: `pytest -m benchmark -s`, or `tests.benchmarks large`."""

from pathlib import Path

import pytest

from tests.benchmarks import large, memory
from tests.benchmarks.measure import are_kept
from txaware.bench.trial import Trial

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", large.LETTERS)
def test_the_floor_is_kept(letter: str, tmp_path: Path) -> None:
    assert are_kept(large.figures(Trial(directory=tmp_path), letter))


def test_the_memory_is_kept(tmp_path: Path) -> None:
    assert are_kept(memory.figures(Trial(directory=tmp_path)))
