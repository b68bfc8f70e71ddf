"""A store whose disk fails or stops at any moment: what it acknowledged is there."""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.support.doubles import Clock
from tests.support.fake_leveldb import (
    DONE,
    OPEN,
    SYNC,
    WRITE,
    Crash,
    FakeDirectory,
    io_error,
)
from tests.support.store_lives import JUMPS_S, Life, check, last_look


def crash_at(step: int) -> Callable[[int, str], None]:
    def before(number: int, _: str) -> None:
        if number >= step:
            raise Crash

    return before


@pytest.mark.parametrize("switch_every", [0, pytest.param(3, marks=pytest.mark.long)])
def test_a_crash_at_every_moment_keeps_what_was_acknowledged(
    switch_every: int, every: Callable[[int], Iterator[int]]
) -> None:
    for crashed_at in every(0):
        directory, clock = FakeDirectory(switch_every=switch_every), Clock()
        directory.before = crash_at(crashed_at)
        events = Life(directory, clock, "one").run()
        if not directory.crashed:
            break
        for found in directory.after_a_crash():
            check(events, last_look(found, clock, "end"))
        clock.advance_s(-100)
        again = Life(found, clock, "two", steps=6).run()
        check(events, again, last_look(found, clock, "end"))
    assert crashed_at > 100, "the load writes too little to be a test"


def failing(at: int, *, opens: int = 0, every: int = 0) -> Callable[[int, str], None]:
    """Fails a step, perhaps later ones too, and then so many openings."""
    left = [0]

    def before(number: int, step: str) -> None:
        if step == OPEN and left[0]:
            left[0] -= 1
            raise io_error("fake: cannot be opened")
        if step in (WRITE, SYNC, DONE) and (
            number == at or (every and number > at and number % every == 0)
        ):
            left[0] = opens
            raise io_error()

    return before


@pytest.mark.parametrize("opens", [0, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("short", [False, True])
def test_a_failure_at_every_write_is_told_as_it_was(
    opens: int, short: bool, every: Callable[[int], Iterator[int]]
) -> None:
    steps = 1 << 20
    for failed_at in every(8):
        if failed_at >= steps:
            break
        directory, clock = FakeDirectory(), Clock()
        directory.short = short
        directory.before = failing(failed_at, opens=opens)
        events = Life(directory, clock, "one", steps=25).run()
        steps = directory.steps
        directory.before = lambda number, step: None
        check(events, last_look(directory, clock, "end"))
    assert failed_at > 60, "the load writes too little to be a test"


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 12))],
)
def test_a_disk_that_fails_again_and_again_ends_in_a_crash(seed: int) -> None:
    directory, clock = FakeDirectory(switch_every=4), Clock()
    lives = []
    for number in range(5):
        directory.before = failing(20 + seed, opens=seed % 3, every=7 + seed)
        lives.append(Life(directory, clock, f"life {seed} {number} ", steps=40).run())
        directory.before = crash_at(0)
        with suppress(Crash):
            directory.step(WRITE)
        clock.advance_s(random.Random(f"{seed} {number}").choice(JUMPS_S))
        directory = random.Random(number).choice(list(directory.after_a_crash()))
    check(*lives, last_look(directory, clock, "end"))
