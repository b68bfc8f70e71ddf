"""Blocks of asyncio whose process is killed at each step of theirs, by every library.

Where a database decides the block, and where it is prepared: rows, messages, inboxes
and items agree, and each is handled once.
"""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import txaware
from tests.support.asyncio_child import NEVER, WAYS
from tests.support.asyncio_shops import DECIDING, PREPARED, Shop
from tests.support.python_process import PythonProcess
from txaware.messaging import Messaging
from txaware.participants.databases import recover

FEW = 3
LIMIT_S = 60


class Run:
    """A server in this process, a database, and programs that work with both."""

    def __init__(self, messaging: Messaging, url: str, shop: Shop, way: str) -> None:
        self._messaging = messaging
        self._url = url
        self._shop = shop
        self._way = way
        self.tries = 0

    def work(self, *, at: int, adds: bool = True) -> int:
        """Has a program work that is killed at that step; returns how many it took.

        It is -1 where it was killed. Before that, `adds` makes work for it.
        """
        number = self.tries
        if adds:
            self.tries += 1
            self._messaging.publish("made", [f"message {number}".encode()])
            self._messaging.queue("mail").push(f"item {number}".encode())
        words = [self._url, self._shop.kind, self._shop.database, self._way]
        child = ["-m", "tests.support.asyncio_child", *words, str(number), str(at)]
        with PythonProcess(
            [sys.executable, *child], stdout=subprocess.PIPE, text=True
        ) as process:
            told, _ = process.communicate(timeout=LIMIT_S)
        for pointer in self._messaging.coordinator.snapshot().in_progress:
            self._messaging.coordinator.invalidate(pointer)  # nobody goes on with it
        if process.returncode == -signal.SIGKILL and not told:
            return -1
        assert process.returncode == 0
        return int(told)

    def outcome(self) -> list[str]:
        """The orders, once they were compared with the messages that tell of them."""
        if self._shop.kind in DECIDING:
            self._shop.carry_over(self._messaging)
        else:  # what is prepared waits for whoever ends it
            recover(self._messaging, self._shop.database)
        page = self._messaging.poll("t", isolation="committed", limit=1_000)
        assert page.blocked_by is None
        found = sorted(message.payload.decode() for message in page)
        assert self._shop.orders() == found
        return found


@pytest.fixture
def messaging(tmp_path: Path) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as opened:
        for topic in ("t", "made"):
            opened.create_topic(topic)
        opened.create_queue("mail")
        yield opened


@pytest.mark.parametrize("kills", [FEW, pytest.param(0, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "way", [pytest.param(WAYS[0], marks=pytest.mark.long), *WAYS[1:]]
)
@pytest.mark.parametrize("kind", [*DECIDING, *PREPARED])
def test_a_kill_at_any_step_leaves_each_handled_once(
    messaging: Messaging,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kind: str,
    way: str,
    kills: int,
) -> None:
    """`kills` of the steps are drawn; 0 is each of them."""
    database = str(tmp_path / "shop.db")
    if not kind.endswith("aiosqlite"):
        database = request.getfixturevalue("postgres_server").url
    shop = Shop(kind, database)
    shop.make_table()
    with messaging.serve() as server:
        run = Run(messaging, server.url, shop, way)
        took = run.work(at=NEVER)
        assert took > 2 * FEW
        if kills:
            steps = random.Random(kind).sample(range(took), kills)
            killed = [run.work(at=step) < 0 for step in steps]
            assert any(killed)
        else:  # until there is no such step: another block may take more, or fewer
            assert any(run.work(at=step) >= 0 for step in count(0))
            assert run.tries > 2 * FEW
        if way == "writes":
            found = run.outcome()
            assert len(found) == len({*found})
            assert "new 0" in found, "nobody killed that one"
            assert kills or 1 < len(found) < run.tries, "it is whole, or nothing"
            return
        works = ["item"] if kind in PREPARED else ["item", "message"]
        expected = [f"{each} {at}" for each in works for at in range(run.tries)]
        while len(found := run.outcome()) < len(expected):
            assert run.work(at=NEVER, adds=False) > 0
        assert found == sorted(expected)
