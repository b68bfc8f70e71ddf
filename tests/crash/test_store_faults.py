"""A store whose disk fails or stops at any moment: what it acknowledged is there."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import pytest

from tests.support.checker import anomalies
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
from tests.support.store_load import (
    TOPICS,
    Client,
    Event,
    Notes,
    Reader,
    Store,
    history,
)
from txaware.errors import Unavailable
from txaware.store.leveldb import LevelDbTable

SYNC_LIMIT_BYTES = 120  # so that some transactions are held and others are not
JUMPS_S = [0, 0, 0, 0.001, 0.001, 3, -10, 40, -5000, 3600]
STEPS = 45


def opened(directory: FakeDirectory, clock: Clock) -> Store:
    table = LevelDbTable(
        "fake", directory.open, clock_ms=clock, sync_limit_bytes=SYNC_LIMIT_BYTES
    )
    return Store(table, clock)


class Disk(Protocol):
    """What a store is on; after a crash nothing works any more."""

    @property
    def crashed(self) -> bool:
        """Whether its machine, or its process, has stopped."""


class Life:
    """A store and its clients from an opening to its end, however that comes."""

    def __init__(
        self,
        directory: Disk,
        clock: Clock,
        name: str,
        *,
        steps: int = STEPS,
        open_store: Callable[[Any, Clock], Store] = opened,
    ) -> None:
        self.notes = Notes()
        self._directory, self._clock, self._open = directory, clock, open_store
        self._name, self._steps = name, steps

    def run(self) -> list[Event]:
        """Runs to the end, or to a crash; answers what clients saw."""
        store: Store | None = None
        try:
            store = self._open(self._directory, self._clock)
            self._load(store)
        except (Crash, Unavailable):
            if not self._directory.crashed and store is not None:
                raise
        finally:
            if store is not None:
                close(store)
        return self.notes.events

    def _load(self, store: Store) -> None:
        clients = [Client(store, self.notes, self._name + n, 1) for n in "xy"]
        readers = [
            Reader(
                store, self.notes, f"{self._name} {topic} {how}", topic, isolation=how
            )
            for topic in TOPICS
            for how in ("committed", "uncommitted")
        ]
        chance = random.Random(self._name)
        for _ in range(self._steps):
            self._clock.advance_s(chance.choice(JUMPS_S))
            client = chance.choice(clients)
            calls: list[Callable[[], object]] = [client.plain, client.both] * 2
            calls += [client.rolled_back, client.spilled, client.copy]
            chance.choice(calls)()
            with suppress(Unavailable):
                chance.choice(readers).poll(chance.choice([3, 10_000]))
            if self._directory.crashed:
                return


def close(store: Store) -> None:
    with suppress(Crash, Unavailable):
        store.close()


def last_look(
    directory: FakeDirectory,
    clock: Clock,
    name: str,
) -> list[Event]:
    """What is there in the end, for readers of both kinds."""
    return look(opened(directory, clock), name)


def look(store: Store, name: str) -> list[Event]:
    """What a store has, which is closed then."""
    notes = Notes()
    try:
        for topic in TOPICS:
            for how in ("committed", "uncommitted"):
                Reader(
                    store, notes, f"{name} {topic} {how}", topic, isolation=how
                ).poll()
        assert store.table.status() == "OK"
    finally:
        store.close()
    return notes.events


def check(*lives: list[Event]) -> None:
    publishes, polls = history(*lives)
    assert not anomalies(publishes, polls)
    complete = [poll for poll in polls if poll.at_end and poll.committed]
    assert len(complete) >= len(TOPICS), "readers stop for ever"


def crash_at(step: int) -> Callable[[int, str], None]:
    def before(number: int, _: str) -> None:
        if number >= step:
            raise Crash

    return before


@pytest.mark.parametrize("switch_every", [0, 3])
def test_a_crash_at_every_moment_keeps_what_was_acknowledged(switch_every: int) -> None:
    crashed_at = 0
    while True:
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
        crashed_at += 1
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


@pytest.mark.parametrize("opens", [0, 2])
@pytest.mark.parametrize("short", [False, True])
def test_a_failure_at_every_write_is_told_as_it_was(opens: int, short: bool) -> None:
    failed_at, steps = 8, 1 << 20
    while failed_at < steps:
        directory, clock = FakeDirectory(), Clock()
        directory.short = short
        directory.before = failing(failed_at, opens=opens)
        events = Life(directory, clock, "one", steps=25).run()
        steps = directory.steps
        directory.before = lambda number, step: None
        check(events, last_look(directory, clock, "end"))
        failed_at += 1
    assert failed_at > 60, "the load writes too little to be a test"


@pytest.mark.parametrize("seed", range(12))
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
