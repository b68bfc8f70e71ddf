"""Queues on a disk that is full for a while: nothing is lost, and counts agree."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.full_disk import FullDisk
from tests.support.messagings import Site
from tests.support.queues import numbered, popped, taken, waiting
from txaware.errors import LeaseLost, Unavailable
from txaware.messaging import Messaging
from txaware.queue import Job
from txaware.service.queue.work_queue import WorkQueue


def is_back(messaging: Messaging) -> bool:
    """Tells whether the database was opened again."""
    with suppress(Unavailable):
        messaging.queue("mail").peek()
        return True
    return False


@pytest.mark.parametrize("seed", range(2))
def test_a_full_disk_loses_no_item_and_no_count(
    durable: Site, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    disk, choose = FullDisk(monkeypatch), random.Random(seed)
    messaging = durable.messaging
    messaging.create_queue("mail", lease_s=10, max_pushes_per_pipe=4)
    messaging.create_queue("sent")
    mail, sent = messaging.queue("mail"), messaging.queue("sent")
    pushed, done, held = set[bytes](), Counter[bytes](), list[Job]()
    payloads = iter(numbered(1000))

    def push() -> None:
        payload = next(payloads)
        mail.push(payload, delay_s=choose.choice((0, 0, 3)))
        pushed.add(payload)

    def push_all() -> None:
        many = [next(payloads) for _ in range(choose.randint(5, 9))]
        mail.push_all(many)
        pushed.update(many)

    def push_within() -> None:
        payload = next(payloads)
        with messaging.transaction():
            mail.push(payload)
        pushed.add(payload)

    def pop() -> None:
        held.extend(mail.pop_many(2))

    def end(act: Callable[[Job], object]) -> None:
        with suppress(LeaseLost, IndexError):
            act(held.pop(choose.randrange(len(held) or 1)))

    def commit() -> None:
        def act(job: Job) -> None:
            job.commit()
            done[job.payload] += 1

        end(act)

    def roll_back() -> None:
        end(lambda job: job.rollback(delay_s=choose.choice((0, 2))))

    def step_on() -> None:
        with messaging.transaction():
            if (job := mail.pop()) is not None:
                sent.push(job.payload)

    acts = [push, push, push_all, push_within, pop, commit, roll_back, step_on]
    for _ in range(150):
        act = choose.choice(acts)
        with disk.full(if_so=choose.random() < 0.3):
            act()
        durable.clock.advance_s(choose.choice((0, 0, 1, 11)))
    assert disk.refused > 10
    assert until(lambda: is_back(messaging), timeout_s=20)
    durable.clock.advance_s(60)
    while (job := mail.pop()) is not None:
        job.commit()
        done[job.payload] += 1
    moved = Counter(waiting(sent))
    assert pushed == {*done, *moved}
    assert set(moved.values()) | set(done.values()) <= {1}
    assert not done & moved
    stats = mail.stats()
    assert (stats.depth, stats.in_work) == (0, 0)
    assert stats.pushed == stats.committed == len(pushed)
    assert stats.popped == stats.committed + stats.rolled_back + stats.expired_leases
    assert messaging.check().problems == ()
    again = durable.open().queue("mail").stats()
    assert (again.pushed, again.committed, again.depth) == (
        *(stats.pushed, stats.committed),
        0,
    )


def test_a_push_after_a_full_disk_is_there_after_a_restart(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    durable.messaging.create_queue("mail")
    durable.messaging.create_queue("ordered", order="strict")
    for name in ("mail", "ordered"):
        queue = durable.messaging.queue(name)
        for delay_s in (0, 5):
            with disk.full():
                queue.push(b"fails", delay_s=delay_s)
            queue.push(b"after", delay_s=delay_s)
        with disk.full():
            queue.push(b"fails", priority=3)
        with durable.messaging.transaction():
            queue.push(b"within", priority=3)
    assert disk.refused >= 6
    messaging = durable.open()
    durable.clock.advance_s(6)
    for name in ("mail", "ordered"):
        found = taken(messaging.queue(name))
        assert sorted(found) == [b"after", b"after", b"within"]
        assert messaging.queue(name).stats().pushed == 3


def test_a_redrive_on_a_full_disk_goes_on_later(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, messaging = FullDisk(monkeypatch), durable.messaging
    messaging.create_queue("mail", max_deliveries=1)
    mail = messaging.queue("mail")
    mail.push_all(numbered(4))
    for job in mail.pop_many(4):
        job.rollback()
    move, moves = WorkQueue.move, iter((False, False, True))

    def moved(*args: Any) -> bool:
        disk.is_full = next(moves, False)
        return move(*args)

    monkeypatch.setattr(WorkQueue, "move", moved)
    with pytest.raises(Unavailable, match="2 dead letters went back"):
        mail.redrive()
    disk.is_full = False
    assert until(lambda: is_back(messaging), timeout_s=20)
    dead = messaging.queue("mail-dead").stats()
    assert (dead.depth, dead.in_work) == (2, 0)  # no lease has to end first
    assert mail.redrive() == 2
    assert messaging.check().problems == ()
    again = durable.open()
    assert sorted(taken(again.queue("mail"))) == numbered(4)
    assert again.queue("mail-dead").stats().depth == 0


def test_an_item_of_a_pop_that_failed_was_not_delivered(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    durable.messaging.create_queue("mail", max_deliveries=1)
    queue = durable.messaging.queue("mail")
    queue.push(b"a")
    with disk.full():
        queue.pop()
    assert queue.stats().popped == 0
    assert popped(queue).deliveries == 1
