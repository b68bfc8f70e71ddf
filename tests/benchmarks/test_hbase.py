"""The floors of HBase: `pytest -m benchmark -s`, or `tests.benchmarks hbase`."""

from pathlib import Path

import pytest

from tests.benchmarks.hbase import LETTERS, figures
from tests.benchmarks.measure import are_kept
from txaware.bench.trial import Trial
from txaware.local_hbase import LocalHBase

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("letter", LETTERS)
def test_the_floor_is_kept(
    letter: str, shared_hbase: LocalHBase, tmp_path: Path
) -> None:
    url = f"hbase://127.0.0.1:{shared_hbase.thrift_port}/benchmark"
    trial = Trial(directory=tmp_path, hbase=url, for_s=2.0)
    assert are_kept(figures(trial, letter))
