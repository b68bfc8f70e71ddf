"""Items of a queue handled with rows of a database, under kills."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.database_server import DatabaseServer
from tests.support.deciders import DATABASES, connection_to
from tests.support.inbox_child import WAYS, opened
from tests.support.python_process import PythonProcess

KILLS = pytest.mark.parametrize(
    "kills", [3, pytest.param(100, marks=pytest.mark.soak, id="100")]
)
ITEMS_FOR_EACH = 5


class Run:
    """A queue of items, and programs that handle them in a database."""

    def __init__(self, directory: Path, place: "Path | DatabaseServer") -> None:
        self.data = directory / "data"
        self._place = place
        is_file = isinstance(place, Path)
        self.database = str(place) if is_file else place.url  # type: ignore[union-attr]
        connection = connection_to(place)
        connection.execute("CREATE TABLE handled (what text)")
        connection.commit()
        connection.close()

    def fill(self, count: int, **settings: Any) -> list[str]:
        """Pushes items; returns their payloads."""
        items = [f"{number:05}" for number in range(count)]
        with txaware.connect(f"leveldb:{self.data}") as messaging:
            messaging.create_queue("mail", **settings)
            messaging.queue("mail").push_all([item.encode() for item in items])
        return items

    def start(self, way: str, behind: int = 0) -> "subprocess.Popen[str]":
        """Starts a program."""
        child = (sys.executable, "-m", "tests.support.inbox_child")
        command = [*child, str(self.data), self.database, way, str(behind)]
        return PythonProcess(command, stdout=subprocess.PIPE, text=True)

    def outcome(self) -> tuple[list[str], int]:
        """What was handled, and how many notes are left when all is over."""
        with txaware.connect(f"leveldb:{self.data}") as messaging:
            stats = messaging.queue("mail").stats()
            shop = opened(messaging, self.database)
            shop.relay()
            found = shop.connection.execute("SELECT what FROM handled ORDER BY what")
            handled = [what for (what,) in found.fetchall()]
            [left] = shop.connection.execute(
                "SELECT count(*) FROM txaware_inbox_items"
            ).fetchone()
            shop.close()
        assert (stats.depth, stats.in_work, stats.dead_letters) == (0, 0, 0)
        assert stats.committed == stats.pushed
        return handled, left


@pytest.fixture(params=DATABASES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    place: Path | DatabaseServer = tmp_path / "shop.db"
    if request.param != "sqlite":
        place = request.getfixturevalue(f"{request.param}_server")
    return Run(tmp_path, place)


@KILLS
def test_a_kill_between_the_two_commits_handles_no_item_twice(
    run: Run, kills: int
) -> None:
    """Not even the only delivery of an item that was handled makes a dead letter."""
    items = run.fill(kills * ITEMS_FOR_EACH, max_deliveries=1)
    drawn = random.Random(kills)
    for number in range(kills):
        behind = drawn.randint(1, 3)
        with run.start(WAYS[number % len(WAYS)], behind) as child:
            child.communicate()
        assert child.returncode == -9, "it was killed, and had work until then"
    with run.start("pop") as child:
        child.communicate()
    assert child.returncode == 0
    assert run.outcome() == (items, 0)


@KILLS
def test_a_kill_at_any_moment_handles_each_item_once(run: Run, kills: int) -> None:
    items = run.fill(kills * ITEMS_FOR_EACH)
    drawn = random.Random(kills)
    for number in range(kills):
        with run.start(WAYS[number % len(WAYS)]) as child:
            assert child.stdout is not None
            for _ in range(drawn.randint(0, 4)):
                child.stdout.readline()
            child.kill()
    for way in WAYS:
        with run.start(way) as child:
            child.communicate()
        assert child.returncode == 0
    assert run.outcome() == (items, 0)
