"""Ctrl-C at every place of a call to the store: nobody hangs, and nothing is torn.

A signal is looked at where a function begins and where one written in C returns; an
exception is raised at each such place in turn.
"""

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.crash.test_interrupts import Interrupted
from tests.support.doubles import Clock
from tests.support.fake_leveldb import FakeDirectory
from tests.support.store_load import Store, carried
from txaware.store.leveldb import LevelDbTable

PATIENCE_S = 20  # less than the 30 after which a drain looks again by itself
OURS = (
    *("/txaware/", "/coordinator/", "threading.py", "contextlib.py"),
    "futures/_base.py",
)


def interrupted_at(place: int, call: Callable[[], object]) -> bool:
    """Interrupts a call at a place, and answers whether it had so many."""
    left = [place]

    def profile(frame: Any, event: str, _: object) -> None:
        if event in ("call", "c_return") and any(
            part in frame.f_code.co_filename for part in OURS
        ):
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise Interrupted

    sys.setprofile(profile)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
    return left[0] <= 0


def elsewhere(call: Callable[[], Any]) -> Any:
    """What another thread gets, which must not wait."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "another thread hangs"
    return answers[0]


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
def test_an_interrupt_at_any_place_stops_nobody(name: str, limit_bytes: int) -> None:
    place = 0
    while True:
        place += 1
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
