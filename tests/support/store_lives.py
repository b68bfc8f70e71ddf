"""Lives of a store, each under load to its end, and a look at what is left."""

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from tests.support.checker import anomalies
from tests.support.doubles import Clock
from tests.support.fake_leveldb import Crash, FakeDirectory
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


def opened(
    directory: FakeDirectory,
    clock: Clock,
    *,
    sync_limit_bytes: int = SYNC_LIMIT_BYTES,
) -> Store:
    table = LevelDbTable(
        "fake", directory.open, clock_ms=clock, sync_limit_bytes=sync_limit_bytes
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
