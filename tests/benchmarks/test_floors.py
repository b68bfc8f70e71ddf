"""The floors of all figures: `pytest -m benchmark -s`, `-k large` for some of them.

`python -m tests.benchmarks` and `txaware bench` measure the same.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks import (
    groups,
    hbase,
    large,
    memory,
    page,
    producers,
    queue,
    scheduler,
    sender,
    spark,
)
from tests.benchmarks.measure import are_kept
from txaware.bench import embedded, http
from txaware.bench.trial import Trial
from txaware.local_hbase import LocalHBase

pytestmark = pytest.mark.benchmark
KINDS = (
    *(embedded, http, queue, producers, sender, groups, large, scheduler, page, spark),
    hbase,
)
OPTIONS: dict[ModuleType, dict[str, Any]] = {
    http: {"for_s": 2.0},
    groups: {"rounds": groups.ROUNDS},
    scheduler: {"for_s": 10.0},
}


@pytest.mark.parametrize(
    ("kind", "letter"),
    [
        pytest.param(kind, letter, id=f"{kind.__name__.rpartition('.')[2]}-{letter}")
        for kind in KINDS
        for letter in kind.LETTERS
    ],
)
def test_the_floor_is_kept(
    kind: Any, letter: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = OPTIONS.get(kind, {})
    if kind is hbase:
        shared: LocalHBase = request.getfixturevalue("shared_hbase")
        url = f"hbase://127.0.0.1:{shared.thrift_port}/benchmark"
        options = {"hbase": url, "for_s": 2.0}
    assert are_kept(kind.figures(Trial(directory=tmp_path, **options), letter))


def test_the_memory_is_kept(tmp_path: Path) -> None:
    assert are_kept(memory.figures(Trial(directory=tmp_path)))
