"""Random histories of a store in HBase: faults, zombies, requests that come late."""

from collections.abc import Callable, Iterator
from itertools import takewhile

import pytest

from tests.support.hbase_world import World
from txaware.store.hbase import redo, writing


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a few pieces, and batches of a few calls."""
    monkeypatch.setattr(redo, "INLINE_BYTES", 150)
    monkeypatch.setattr(redo, "PIECE_BYTES", 400)
    monkeypatch.setattr(writing, "CALL_ROWS", 3)


@pytest.mark.parametrize(("worlds", "steps"), [(30, 60), (6, 150)])
def test_each_batch_is_there_as_it_was_told_whatever_happens(
    worlds: int, steps: int, every: Callable[[int], Iterator[int]]
) -> None:
    totals = dict[str, int]()
    seeds = [*takewhile(worlds.__gt__, every(0))]
    for seed in seeds:
        world = World(seed)
        world.run(steps=steps)
        for name, count in world.counts.items():
            totals[name] = totals.get(name, 0) + count
    assert min(totals.values()) > len(seeds) * steps / 30, totals
