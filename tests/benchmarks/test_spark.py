"""The floors of Spark: `pytest -m benchmark -s`, or `txaware bench spark`."""

from pathlib import Path

import pytest

from txaware.bench.spark import LETTERS, figures
from txaware.bench.trial import Trial

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", LETTERS)
def test_the_floor_is_kept(letter: str, tmp_path: Path) -> None:
    found = list(figures(Trial(directory=tmp_path), letter))
    for figure in found:
        print(f"\n{figure.line()}\n{figure.record()}")
    assert all(figure.is_kept for figure in found)
