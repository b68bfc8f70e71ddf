"""Kills a server under load from four processes: what it acknowledged is there."""

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import txaware
from tests.support.checker import anomalies
from tests.support.http_kill_load import PARTITIONS, THREE, Topics
from tests.support.killed_server import (
    STARTS_S,
    History,
    Server,
    Tally,
    check,
    client,
    end_what_is_open,
    look,
    wait_for_load,
)

CLIENTS = 4


def wait_until_it_has_worked(logs: list[Path]) -> None:
    """Returns when so much was done that the rest can tell something, or never will."""
    until_s = time.monotonic() + STARTS_S
    done = Tally()
    while not done.is_enough and time.monotonic() < until_s:
        time.sleep(0.3)  # to read the logs takes the processor from those who write
        done = Tally()
        done.add(History.read(logs), [])


def lives(place: Path, kills: int, tally: Tally, topics: Topics = THREE) -> None:
    """One directory through some kills, and a look at it in the end."""
    place.mkdir()
    logs = [place / f"client {number}" for number in range(CLIENTS)]
    server = Server(place / "data", topics)
    try:
        with ExitStack() as clients:
            children = [
                clients.enter_context(client(server.url, log, str(number), topics))
                for number, log in enumerate(logs)
            ]
            for child, log in zip(children, logs, strict=True):
                wait_for_load(child, log)
            for _ in range(kills):
                # Killed at any moment, and away for some of them.
                time.sleep(random.choice([0.05, 0.5, 1.5]) * random.random())
                server.kill()
                time.sleep(random.choice([0, 0.3]))
                server.start()
            wait_until_it_has_worked(logs)
        logs.append(place / "look")
        with txaware.connect(server.url) as messaging:
            end_what_is_open(messaging)
            look(messaging, logs[-1], "over http", topics)
            check(messaging)
    finally:
        server.kill()
    logs.append(place / "look embedded")
    with txaware.connect(f"leveldb:{place / 'data'}") as messaging:
        look(messaging, logs[-1], "embedded", topics)
        check(messaging)
    history = History.read(logs)
    assert not anomalies(history.publishes, history.polls)
    tally.add(history, server.killed_ns)
    print(tally)


def test_kill_9_of_a_server_loses_tears_and_doubles_nothing(tmp_path: Path) -> None:
    tally = Tally()
    lives(tmp_path / "0", 3, tally)
    assert tally.is_enough


def test_kill_9_loses_tears_and_doubles_nothing_across_twelve_partitions(
    tmp_path: Path,
) -> None:
    tally = Tally()
    lives(tmp_path / "0", 3, tally, PARTITIONS)
    assert tally.is_enough


@pytest.mark.soak
def test_ten_rounds_of_kill_9_across_twelve_partitions(
    tmp_path: Path,
) -> None:
    tally = Tally()
    for number in range(3):
        lives(tmp_path / str(number), 10, tally, PARTITIONS)
    assert tally.survived > 5


@pytest.mark.soak
def test_fifty_rounds_of_kill_9_of_a_server(tmp_path: Path) -> None:
    tally = Tally()
    for number in range(5):
        lives(tmp_path / str(number), 10, tally)
    assert tally.survived > 10
    assert tally.struck > 5
