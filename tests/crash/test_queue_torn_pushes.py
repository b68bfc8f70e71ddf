"""A crash at every moment of a push to several pipes leaves all of it, or nothing."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

from tests.support.concurrency import PATIENCE_S
from tests.support.doubles import Clock
from tests.support.fake_leveldb import Crash, FakeDirectory
from tests.support.queues import numbered
from tests.support.store_lives import close, opened
from tests.support.store_load import Store
from txaware.errors import QueueNotFound, Unavailable
from txaware.model.interfaces import Write
from txaware.model.settings import Settings
from txaware.service.queue.event_loop_queues import EventLoopQueues
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.store_context import StoreContext
from txaware.store.keys import MESSAGE

EIGHT = numbered(8)


def queues_of(store: Store, clock: Clock) -> LocalQueues:
    coordinator = store.coordinator
    site = StoreContext(
        store.table, coordinator, coordinator.barrier, Settings(), clock
    )
    return LocalQueues(site, store.service)


def push(queues: LocalQueues) -> None:
    queues.push("mail", EIGHT, pusher="p")


def push_soon(queues: LocalQueues) -> None:
    told, errors = Event(), list[Unavailable | None]()

    def then(error: Unavailable | None) -> None:
        errors.append(error)
        told.set()

    EventLoopQueues(queues).push("mail", EIGHT, then, pusher="p")
    assert told.wait(PATIENCE_S)
    if errors[0] is not None:
        raise errors[0]


@pytest.mark.parametrize("pushes", [push, push_soon])
def test_a_crash_at_every_moment_leaves_all_of_a_push_or_nothing(
    pushes: Callable[[LocalQueues], None],
) -> None:
    step, outcomes = 0, set[int]()
    while True:
        directory, clock, acknowledged = FakeDirectory(), Clock(), False

        def before(number: int, _: str, last: int = step) -> None:
            if number >= last:
                raise Crash

        directory.before = before
        store: Store | None = None
        try:
            store = opened(directory, clock)
            queues = queues_of(store, clock)
            queues.create_queue("mail", max_pushes_per_pipe=3)
            queues.queue_stats("mail")
            pushes(queues)
            acknowledged = True
        except (Crash, Unavailable):
            assert directory.crashed
        finally:
            if store is not None:
                close(store)
        for found in directory.after_a_crash():
            again = opened(found, clock)
            with suppress(QueueNotFound):
                left = len(queues_of(again, clock).peek_queue("mail", 100))
                assert left == 8 if acknowledged else left in (0, 8)
                outcomes.add(left)
            again.close()
        if not directory.crashed:
            break
        step += 1
    assert outcomes == {0, 8}


@pytest.mark.parametrize(
    ("pushes", "way"), [(push, "submit"), (push_soon, "hand_over")]
)
def test_all_items_of_a_push_are_handed_over_at_once(
    pushes: Callable[[LocalQueues], None], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another thread could write a part of them, and crash before the rest."""
    clock = Clock()
    store = opened(FakeDirectory(), clock)
    queues = queues_of(store, clock)
    queues.create_queue("mail", max_pushes_per_pipe=3)
    queues.queue_stats("mail")
    given, handed = getattr(store.table, way), list[int]()

    def noted(rows: Sequence[Write], *more: Any) -> Any:
        items = [key for key, _ in rows if key.startswith(MESSAGE)]
        handed.append(len(items))
        return given(rows, *more)

    monkeypatch.setattr(store.table, way, noted)
    pushes(queues)
    assert [count for count in handed if count] == [8]
    store.close()
