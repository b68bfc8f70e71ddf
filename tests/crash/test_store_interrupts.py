"""Ctrl-C at every place of a call to the store, and of a close: nothing hangs or tears.

A signal is looked at where a function begins and where one written in C returns; an
exception is raised at each such place in turn.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.doubles import Clock
from tests.support.fake_leveldb import FakeDirectory
from tests.support.interrupts import PATIENCE_S, elsewhere, interrupted_at, places
from tests.support.store_load import Store, carried
from txaware.model.settings import Settings
from txaware.store.leveldb import LevelDbTable

SETTINGS = Settings(janitor_interval_s=3600)


CALLS: dict[str, Callable[[Store, Any], object]] = {
    "plain": lambda store, tx: store.service.publish("a", [b"i"]),
    "publish": lambda store, tx: store.service.publish("a", [b"i"], transaction=tx),
    "store": lambda store, tx: store.service.store("a", [b"i"], transaction=tx),
    "reference": lambda store, tx: store.service.publish("b", [], transaction=tx),
    "commit": lambda store, tx: store.coordinator.commit(tx),
    "commit with rows": lambda store, tx: store.coordinator.commit_with(
        tx, carried(store, tx, [b"i"])
    ),
    "poll": lambda store, tx: store.service.poll("a", isolation="committed"),
    "wait": lambda store, tx: store.service.poll("b", wait_s=0.0001),
}


# An interrupt in a generator that is being thrown away is reported there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("limit_bytes", [0, 1 << 20])
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_place_stops_nobody(
    name: str, limit_bytes: int, every: Callable[[int], Iterator[int]]
) -> None:
    for place in every(1):
        directory, clock = FakeDirectory(), Clock()
        table = LevelDbTable(
            "fake", directory.open, clock_ms=clock, sync_limit_bytes=limit_bytes
        )
        store = Store(table, clock)
        service = store.service
        tx = store.coordinator.start_short()
        service.publish("a", [b"first"])
        service.store("b", [b"stored"], transaction=tx)
        interrupted = interrupted_at(place, partial(CALLS[name], store, tx))
        if name == "store":
            service.publish("a", [], transaction=tx)
        began_s = time.monotonic()
        commits = name.startswith("commit")
        (store.coordinator.invalidate if commits else store.coordinator.abort)(tx)
        assert time.monotonic() - began_s < PATIENCE_S, "its end waits for its write"
        other = store.coordinator.start_short()
        elsewhere(partial(service.publish, "a", [b"held"], transaction=other))
        assert seen_by_all(store)[-1] == b"held", f"place {place}"
        elsewhere(partial(service.publish, "a", [b"plain"]))
        assert seen_by_all(store)[-2:] == [b"held", b"plain"], f"place {place}"
        elsewhere(partial(store.coordinator.commit, other))
        elsewhere(store.close)
        if not interrupted:
            break
    assert place > 30, "the call does too little to be a test"


def seen_by_all(store: Store) -> list[bytes]:
    page = elsewhere(partial(store.service.poll, "a"))
    assert [m.id for m in page] == sorted({m.id for m in page})
    return [message.payload for message in page]


@pytest.mark.parametrize("serves", [False, True])
def test_a_directory_is_given_back_by_the_close_after_an_interrupted_one(
    tmp_path: Path, serves: bool
) -> None:
    step = 9 if serves else 3

    def interrupt(place: int) -> bool:
        url = f"leveldb:{tmp_path / 'data'}"
        messaging = txaware.connect(url, settings=SETTINGS)
        publisher = None
        try:
            if serves:
                messaging.serve()
            if place == 1:
                messaging.create_topic("t")
            publisher = messaging.async_publisher("t")
            publisher.publish(b"a")
        finally:
            found = interrupted_at(place * step - step + 1, messaging.close)
            elsewhere(messaging.close)
        return found

    count = places(interrupt)
    assert count > 10
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        assert len(messaging.poll("t")) == count


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_store_is_closed_by_the_close_after_an_interrupted_one() -> None:
    def interrupt(place: int) -> bool:
        directory, clock = FakeDirectory(), Clock()
        table = LevelDbTable("fake", directory.open, clock_ms=clock)
        store = Store(table, clock)
        store.service.publish("a", [b"a"])
        found = interrupted_at(place, store.close)
        elsewhere(store.close)
        assert directory.owner is None, place
        again = Store(LevelDbTable("fake", directory.open, clock_ms=clock), clock)
        assert len(again.service.poll("a")) == 1
        again.close()
        return found

    assert places(interrupt) > 20
