"""A bank over a table, databases and topics, killed at each step."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import txaware
from tests.support.bank import BEGIN, NEVER, STEPS, Bank, State
from tests.support.database_server import DatabaseServer
from tests.support.killed_server import Server
from tests.support.mysql import MysqlServer
from tests.support.postgres import PostgresServer
from tests.support.python_process import PythonProcess

ROOT = Path(__file__).parents[2]
ENDS_S = 120
ROUNDS = 3
LATER = ("before it is settled", "after it is settled")
RANDOM_ROUNDS, SERVER_ROUNDS = 30, 12


class Killed:
    """A bank whose processes are killed, one after the other."""

    def __init__(self, below: Path, server: DatabaseServer, settle: str) -> None:
        self.settle = settle
        self.steps = [step for step in STEPS if settle == "later" or step not in LATER]
        self.below = below
        self.server = server
        self.store = f"leveldb:{below / 'data'}"
        self._lives = 0

    def live(self, step: str, count: int, rounds: int) -> "subprocess.Popen[bytes]":
        """Starts a process that moves money."""
        self._lives += 1
        place = [str(self.below), self.store, self.server.url, self.settle]
        how = [step, str(count), str(rounds), str(self._lives)]
        return PythonProcess(
            [sys.executable, "-m", "tests.support.bank", *place, *how], cwd=ROOT
        )

    def check(self) -> State:
        """Opens it as the next process does: nothing is created or lost."""
        with txaware.connect(self.store) as messaging:
            bank = Bank(messaging, self.below, self.server.url)
            state = bank.state()
            bank.close()
        assert state.total == 2 * BEGIN, state
        assert state.rows == state.messages
        assert len(set(state.rows)) == len(state.rows)
        return state


@pytest.fixture(
    params=[(PostgresServer, "now"), (PostgresServer, "later"), (MysqlServer, "now")],
    ids=["postgres", "postgres-later", "mysql"],
)
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    kind, settle = request.param
    server = kind()
    yield Killed(tmp_path, server, settle)
    server.close()


def kill_at_each_step(killed: Killed, steps: list[str], *, seed: int) -> None:
    chance = random.Random(seed)
    for step in steps:
        child = killed.live(step, chance.randrange(1, ROUNDS + 1), ROUNDS)
        assert child.wait(ENDS_S) == -signal.SIGKILL, step
        killed.check()


def test_a_kill_at_a_step_of_the_commit_creates_and_loses_nothing(
    killed: Killed,
) -> None:
    kill_at_each_step(killed, killed.steps, seed=1)
    assert killed.check().rows


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_kills_at_every_step_create_and_lose_nothing(killed: Killed, seed: int) -> None:
    kill_at_each_step(killed, killed.steps, seed=seed)


@pytest.mark.soak
def test_random_kills_of_program_and_database_create_and_lose_nothing(
    killed: Killed,
) -> None:
    chance = random.Random(1)
    killed.check()
    for _ in range(RANDOM_ROUNDS):
        child = killed.live(NEVER, 0, 10_000)
        try:
            child.wait(chance.uniform(0.8, 3))
        except subprocess.TimeoutExpired:
            if chance.random() < 0.4:
                killed.server.kill()
                killed.server.start()
        child.kill()
        child.wait(ENDS_S)
        killed.check()
    assert killed.check().rows


@pytest.mark.soak
def test_server_and_database_on_separate_kills_create_and_lose_nothing(
    killed: Killed, tmp_path: Path
) -> None:
    store = Server(tmp_path / "data")
    killed.store = store.url
    chance = random.Random(2)
    try:
        killed.check()
        for _ in range(SERVER_ROUNDS):
            child = killed.live(NEVER, 0, 10_000)
            with suppress(subprocess.TimeoutExpired):
                child.wait(chance.uniform(2, 4))
            hit = chance.randrange(1, 4)
            if hit & 1:
                store.kill()
                store.start()
            if hit & 2:
                killed.server.kill()
                killed.server.start()
            with suppress(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0, 2))
            child.kill()
            child.wait(ENDS_S)
            killed.check()
        assert killed.check().rows
    finally:
        store.kill()
