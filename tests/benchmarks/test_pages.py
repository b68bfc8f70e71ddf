"""The floors of scheduler and page: `-m benchmark -s`, or `tests.benchmarks page`."""

from pathlib import Path

import attrs
import pytest

from tests.benchmarks import page, scheduler
from tests.benchmarks.measure import are_kept
from txaware.bench.trial import Trial

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", scheduler.LETTERS)
def test_the_scheduler_keeps_its_floor(letter: str, tmp_path: Path) -> None:
    trial = attrs.evolve(Trial(directory=tmp_path), for_s=10.0)
    assert are_kept(scheduler.figures(trial, letter))


@pytest.mark.parametrize("letter", page.LETTERS)
def test_the_page_keeps_its_floor(letter: str, tmp_path: Path) -> None:
    assert are_kept(page.figures(Trial(directory=tmp_path), letter))
