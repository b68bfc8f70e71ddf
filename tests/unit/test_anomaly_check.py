"""Each anomaly that is planted is found, by its number, in memory and in a file."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.anomaly_check import NUMBERS, RecordedHistory
from tests.support.checker import FAIL, NEVER, OK, UNKNOWN, Moved, Poll, Publish

Plant = Callable[[RecordedHistory], RecordedHistory]


def place(number: int) -> bytes:
    return number.to_bytes(4, "big")


def transaction(name: str, *sent: str, at: int, **more: Any) -> Publish:
    usual: dict[str, Any] = {"outcome": OK, "ended": at + 2, "asked": at + 1}
    pairs = tuple((value[0], value) for value in sent)
    told: dict[str, Any] = {
        "sent": pairs,
        "began": at,
        "transactional": True,
        "name": name,
    }
    return Publish(**(told | usual | more))


def poll(reader: str, start: int, end: int, *values: str, **more: Any) -> Poll:
    """A look at topic a, whose message `a3` has the id 3."""
    usual: dict[str, Any] = {
        "topic": "a",
        "seen": tuple((place(int(value[1:])), value) for value in values),
        "began": 100,
        "ended": 101,
    }
    rows: dict[str, Any] = {"start": place(start) if start else b"", "end": place(end)}
    return Poll(reader=reader, **(rows | usual | more))


def clean() -> RecordedHistory:
    """Four transactions, one that failed; readers outside and inside of others."""
    return RecordedHistory(
        [
            transaction("t1", "a1", at=0),
            transaction("t2", "a2", "a3", at=10),
            transaction("t3", "a4", at=20, outcome=FAIL),
            transaction("t4", "a5", at=30, moved=Moved("g", "a", b"", place(3))),
            Publish(sent=(("a", "a6"),), outcome=UNKNOWN, began=40),
        ],
        [
            poll("r", 0, 3, "a1", "a2", "a3", at_end=False, began=13, ended=14),
            poll("r", 3, 3, at_end=False, blocked=True, began=21, ended=22),
            poll("r", 3, 6, "a5", "a6"),
            poll("all", 0, 6, "a1", "a2", "a3", "a4", "a5", "a6", committed=False),
            poll("t4", 1, 2, "a2", transaction="t4", at_end=False, began=31, ended=31),
            poll("t4", 2, 5, "a3", "a5", transaction="t4", began=31, ended=31),
        ],
        [60],
    )


def changed(number: int, **changes: Any) -> Plant:
    def plant(history: RecordedHistory) -> RecordedHistory:
        history.polls[number] = attrs.evolve(history.polls[number], **changes)
        return history

    return plant


def with_poll(*polls: Poll) -> Plant:
    def plant(history: RecordedHistory) -> RecordedHistory:
        return attrs.evolve(history, polls=[*history.polls, *polls])

    return plant


def lost(history: RecordedHistory) -> RecordedHistory:
    return attrs.evolve(
        history, publishes=[*history.publishes, transaction("t9", "a0", at=50)]
    )


def torn(history: RecordedHistory) -> RecordedHistory:
    """The reader that came to its end saw one of two, and nobody the other."""
    half = transaction("t9", "a7", "a8", at=50, outcome=UNKNOWN, ended=NEVER)
    polls = (poll("r", 6, 7, "a7"), poll("r", 7, 7, began=110, ended=111))
    return attrs.evolve(
        with_poll(*polls)(history), publishes=[*history.publishes, half]
    )


def cycle(history: RecordedHistory) -> RecordedHistory:
    """t1 reads of t2, which reads of t1."""
    inside: dict[str, Any] = {"at_end": False, "began": 60, "ended": 61}
    return with_poll(
        poll("t1", 1, 2, "a2", transaction="t1", **inside),
        poll("t2", 0, 1, "a1", transaction="t2", **inside),
    )(history)


def reordered(history: RecordedHistory) -> RecordedHistory:
    history.publishes[0] = attrs.evolve(
        history.publishes[0], began=35, asked=36, ended=37
    )
    late: dict[str, Any] = {"began": 38, "ended": 39}
    return changed(0, **late)(changed(1, began=39, ended=39, blocked=False)(history))


PLANTED: dict[int, Plant] = {
    102: lost,
    103: with_poll(poll("r", 6, 9, began=110, ended=111, seen=((place(9), "a1"),))),
    104: changed(3, committed=True),
    105: cycle,
    106: torn,
    107: changed(4, seen=(), end=place(2)),
    108: changed(5, start=place(1), seen=((place(2), "a2"), (place(3), "a3"))),
    109: changed(2, start=place(5), seen=((place(6), "a6"),)),
    110: reordered,
    111: changed(3, seen=((place(1), "a2"), (place(2), "a1"))),
    112: with_poll(poll("late", 0, 0, at_end=False, blocked=True)),
}


def numbers(history: RecordedHistory) -> set[int]:
    return {NUMBERS.get(one.kind, 0) for one in history.anomalies()}


def checked(path: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.support.anomaly_check", str(path)]
    root = Path(__file__).parents[2]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )


def test_nothing_is_found_in_a_clean_history(tmp_path: Path) -> None:
    assert clean().anomalies() == []
    clean().save(tmp_path / "history")
    assert RecordedHistory.load(tmp_path / "history") == clean()
    told = checked(tmp_path / "history")
    assert (told.returncode, told.stdout) == (0, "5 publishes, 6 polls: no anomalies\n")


def test_there_is_a_planted_history_for_each_anomaly() -> None:
    assert set(PLANTED) == set(NUMBERS.values()) == set(range(102, 113))


@pytest.mark.parametrize("number", PLANTED)
def test_what_is_planted_is_found(number: int, tmp_path: Path) -> None:
    planted = PLANTED[number](clean())
    assert number in numbers(planted)
    planted.save(tmp_path / "history")
    assert RecordedHistory.load(tmp_path / "history") == planted


def test_the_command_names_what_it_finds(tmp_path: Path) -> None:
    PLANTED[106](clean()).save(tmp_path / "history")
    told = checked(tmp_path / "history")
    assert told.returncode == 1
    assert "106 torn: a a8" in told.stdout


def test_a_line_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('{"quiet": 5}\n{"poll": {"reader": "r"}}\n')
    with pytest.raises(ValueError, match="line 2"):
        RecordedHistory.load(path)


@pytest.mark.parametrize("more", [{"quiet": []}, {"quiet": [25]}])
def test_a_reader_may_wait_for_what_somebody_gave_up(more: dict[str, Any]) -> None:
    """Nobody knows when it was over, unless it is said."""
    history = with_poll(poll("late", 0, 0, at_end=False, blocked=True))(clean())
    history = attrs.evolve(history, **more)
    assert (112 in numbers(history)) is bool(more["quiet"])
