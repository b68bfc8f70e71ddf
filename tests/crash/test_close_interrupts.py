"""Ctrl-C at every place of a close: the next one finishes it, and hangs nobody."""

from pathlib import Path

import pytest

import txaware
from tests.support.doubles import Clock
from tests.support.fake_leveldb import FakeDirectory
from tests.support.interrupts import elsewhere, interrupted_at, places
from tests.support.store_load import Store
from txaware.config import Settings
from txaware.store.leveldb import LevelDbTable

SETTINGS = Settings(janitor_interval_s=3600)


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
