"""Kills a store under load at random moments: what it acknowledged is there."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.checker import OK, anomalies
from tests.support.kill_load import opened
from tests.support.python_process import PythonProcess
from tests.support.store_load import GROUP, TOPICS, Event, Notes, Reader, history

ROOT = Path(__file__).parents[2]
STARTS_S = 120
FIRST_EVENTS = 300


def killed_after(
    directory: Path, log: Path, name: str, seconds: float, *, events: int = 1
) -> list[Event]:
    """What a loaded store had said when it was killed, so long after it began.

    It begins where it has said so much.
    """
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.support.kill_load", directory, log, name]
    with PythonProcess(
        [str(part) for part in command], cwd=ROOT, stderr=subprocess.PIPE
    ) as child:
        try:
            until_s = time.monotonic() + STARTS_S
            while not (log.exists() and log.read_bytes().count(b"\n") >= events):
                assert child.poll() is None, child.stderr and child.stderr.read()
                assert time.monotonic() < until_s, "it does not begin"
                time.sleep(0.005)
            time.sleep(seconds)  # killed at any moment
            assert child.poll() is None, "it ended by itself"
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(STARTS_S)
        assert child.stderr is not None
        assert not child.stderr.read(), "a thread ended"
    lines = log.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def look(directory: Path, name: str) -> list[Event]:
    """All that is there, for readers of both kinds."""
    notes, store = Notes(), opened(directory)
    try:
        for topic in TOPICS:
            for how in ("committed", "uncommitted"):
                reader = Reader(
                    store, notes, f"{name} {topic} {how}", topic, isolation=how
                )
                while reader.poll():
                    pass
        assert not store.coordinator.snapshot().in_progress
        position = store.service.position(GROUP, "a")
        copied = [
            message.payload.decode().partition(">")[0]
            for message in store.service.poll("b", limit=10_000, isolation="committed")
            if b">" in message.payload
        ]
        read = [
            message.payload.decode()
            for message in store.service.poll("a", limit=10_000, isolation="committed")
            if position is not None and message.id <= position
        ]
    finally:
        store.close()
    # Only as many as one page has.
    assert len(copied) == len(set(copied)), "copied twice"
    if len(read) < 5000:
        assert sorted(copied) == sorted(read), "the position and the copies differ"
    return notes.events


def rounds_of_kill_9(tmp_path: Path, rounds: int, *, anew_every: int) -> int:
    chance, acknowledged = random.Random(), 0
    lives: list[list[Event]] = []
    for number in range(rounds):
        if number % anew_every == 0:
            directory, lives = tmp_path / str(number), []
        wait_s = chance.choice([0.01, 0.1, 0.3, 0.6]) * chance.random()
        # The first life of a directory leaves something for the others to lose.
        events = 1 if lives else FIRST_EVENTS
        log, name = tmp_path / "log", f"round {number}"
        lives.append(killed_after(directory, log, name, wait_s, events=events))
        lives.append(look(directory, f"look {number}"))
        publishes, polls = history(*lives)
        assert not anomalies(publishes, polls)
        acknowledged += sum(publish.outcome == OK for publish in publishes)
    return acknowledged


def test_kill_9_under_load_loses_tears_and_doubles_nothing(tmp_path: Path) -> None:
    assert rounds_of_kill_9(tmp_path, 8, anew_every=8) > 50


@pytest.mark.soak
def test_two_hundred_rounds_of_kill_9_under_load(tmp_path: Path) -> None:
    rounds_of_kill_9(tmp_path, 200, anew_every=10)
