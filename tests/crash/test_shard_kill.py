"""Transactions over several shards of one process, which is killed again and again."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import txaware
from tests.support.python_process import PythonProcess
from txaware.messaging import Messaging
from txaware.model.messages import Message
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory

ROOT = Path(__file__).parents[2]
SHARDS, KILLS, SOAK_KILLS = 3, 4, 60


def all_of(messaging: Messaging, topic: str) -> list[Message]:
    found: list[Message] = []
    page = messaging.poll(topic, isolation="committed", limit=10_000)
    while page:
        found += page
        page = messaging.poll(
            topic, start=page.next, inclusive=False, isolation="committed", limit=10_000
        )
    return found


def lived(directory: Path, lines: int) -> list[str]:
    """Runs the load until it has said so many lines, kills it, and returns all."""
    with PythonProcess(
        [sys.executable, "-m", "tests.support.sharded_load", directory, str(SHARDS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        said += child.stdout.read().splitlines(keepends=True)
    return [line.strip() for line in said if line.endswith("\n")]


def kill_again_and_again(directory: Path, kills: int, *, seed: int) -> None:
    chance = random.Random(seed)
    said: set[str] = set()
    for _ in range(kills):
        said.update(lived(directory, chance.randrange(1, 60)))
        report = check_directory(directory, Settings())
        assert report.is_clean, report.problems
    with txaware.connect(f"leveldb:{directory}") as messaging:
        rows = {key.decode() for key, _ in messaging.table("done").scan()}
        for partition in range(2 * SHARDS):
            here = [
                one.payload.decode() for one in all_of(messaging, f"orders.{partition}")
            ]
            assert Counter(here).keys() == rows, "torn over shards"
            assert len(here) == len(rows), "doubled"
        assert said <= rows, "lost"
        plain = {one.payload.decode() for one in all_of(messaging, "plain")}
        assert said <= plain
        assert not any(int(one.partition("-")[2]) % 3 == 2 for one in rows)
        assert messaging.check().is_clean


def test_kill_9_tears_no_transaction_over_shards(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", KILLS, seed=1)


@pytest.mark.soak
def test_many_kills_tear_no_transaction_over_shards(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", SOAK_KILLS, seed=random.randrange(2**32))
