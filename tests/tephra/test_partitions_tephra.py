"""Partitions and compressed batches beside a real Tephra."""

from pathlib import Path

import pytest

import txaware
from coordinator.interfaces import Coordinator
from tests.support.partition_round import go_round
from txaware.model.settings import Settings

pytestmark = pytest.mark.tephra


def test_partitions_keep_what_they_promise(
    tmp_path: Path, either_tephra: Coordinator
) -> None:
    url, settings = f"leveldb:{tmp_path / 'data'}", Settings(janitor_interval_s=0)
    go_round(lambda: txaware.connect(url, coordinator=either_tephra, settings=settings))
