"""Ctrl-C at every place of a call of a queue: no job is lost, doubled or torn.

What is kept in memory of a queue stays whole, and others go on.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import txaware
from coordinator.main_thread_calls import MainThreadCalls
from tests.support.doubles import Clock
from tests.support.interrupts import (
    elsewhere,
    interrupted,
    interrupted_at,
    places,
)
from tests.support.queues import numbered, popped, taken
from txaware.errors import QueueNotFound
from txaware.messaging import Messaging
from txaware.model.queues import Order
from txaware.model.settings import Settings
from txaware.queue import Queue

WAITING = numbered(4)
PUSHED = numbered(3, "p")


def pops(messaging: Messaging, done: list[bytes]) -> None:
    """Pops jobs and commits them."""
    for job in messaging.queue("mail").pop_many(2):
        job.commit()
        done.append(job.payload)


def pops_within(messaging: Messaging, done: list[bytes]) -> None:
    """Pops jobs in a transaction."""
    with messaging.transaction():
        found = [job.payload for job in messaging.queue("mail").pop_many(2)]
    done.extend(found)


def pushes(messaging: Messaging, done: list[bytes]) -> None:
    """Pushes items in one piece."""
    messaging.queue("mail").push_all(PUSHED)


def pushes_within(messaging: Messaging, done: list[bytes]) -> None:
    """Pushes items in a transaction."""
    with messaging.transaction():
        for payload in PUSHED:
            messaging.queue("mail").push(payload)


def buries(messaging: Messaging, done: list[bytes]) -> None:
    """Gives back a job that was delivered too often."""
    popped(messaging.queue("mail")).rollback()


def dead(messaging: Messaging) -> list[bytes]:
    """Takes the dead letters."""
    with suppress(QueueNotFound):
        return taken(messaging.queue("mail-dead"))
    return []


def ended(queue: Queue) -> None:
    """Waits for a call that an interrupt left, which other threads may overtake."""
    service: Any = queue._access.queues
    service.calls(int)  # calls of the main thread keep their order


def left(messaging: Messaging, clock: Clock) -> Counter[bytes]:
    """What another thread finds, now and when leases have ended."""
    found: Counter[bytes] = Counter()
    for _ in range(3):
        found.update(elsewhere(lambda: taken(messaging.queue("mail"))))
        found.update(elsewhere(lambda: dead(messaging)))
        clock.advance_s(31)
    return found


@pytest.mark.parametrize("order", ["mostly", "key"])
@pytest.mark.parametrize("call", [pops, pops_within, pushes, pushes_within, buries])
def test_an_interrupt_at_any_place_leaves_each_job_to_be_done_once(
    call: Callable[[Messaging, list[bytes]], None],
    order: Order,
    every: Callable[[int], Iterator[int]],
) -> None:
    settings = Settings(janitor_interval_s=0)

    def interrupt(place: int) -> bool:
        clock, done = Clock(), list[bytes]()
        with txaware.connect("memory:", settings=settings, clock_ms=clock) as messaging:
            most = 1 if call is buries else None
            messaging.create_queue(
                "mail", order=order, max_deliveries=most, max_pushes_per_pipe=2
            )
            queue = messaging.queue("mail")
            for number, payload in enumerate(WAITING):
                queue.push(payload, key=b"%d" % (number % 2))
            found = interrupted_at(place, lambda: call(messaging, done))
            ended(queue)
            seen = left(messaging, clock)
            assert not set(done) & set(seen), place  # what is done does not come again
            lost = set(WAITING) - set(done) - set(seen)
            assert len(lost) in ({0, 2} if call is pops_within else {0, 1}), place
            assert sum(seen[payload] for payload in PUSHED) in (0, len(PUSHED)), place
            assert set(seen.values()) <= {1}, place
            stats = queue.stats()
            assert (stats.depth, stats.in_work) == (0, 0), place
        return found

    assert places(interrupt, every) > 20


@pytest.mark.usefixtures("interrupts")
def test_what_nobody_waits_for_any_more_goes_on_and_is_undone() -> None:
    calls, go_on, undone = MainThreadCalls("calls"), threading.Event(), list[int]()

    def call() -> int:
        go_on.wait()
        return 7

    interrupted(lambda: calls(call, undo=undone.append))
    go_on.set()
    assert calls(threading.current_thread) is not threading.main_thread()
    assert undone == [7]
    with pytest.raises(IndexError):
        calls(undone[:0].pop)
    calls.close()
    assert calls(threading.current_thread) is threading.main_thread()
