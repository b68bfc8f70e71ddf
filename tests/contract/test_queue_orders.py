"""Queues: pipes in turn, orders, delays, priorities, and dead letters."""

from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.messagings import Site
from tests.support.queues import made, numbered, popped, taken, waiting
from txaware.errors import Unavailable
from txaware.queue import Job, Queue
from txaware.service.queue.work_queue import WorkQueue


def test_pipes_are_popped_in_turn(mail: Queue) -> None:
    """Eight pushers in turn, as the example of the design has them."""
    pushed = "M1:P4 M2:P1 M3:P6 M4:P1 M5:P1 M6:P7 M7:P8 M8:P1 M9:P2 M10:P3 M11:P5"
    with ExitStack() as stack:
        pushers = [stack.enter_context(mail.pusher()) for _ in range(8)]
        for pusher in pushers:
            pusher.push(b"first")
        assert taken(mail) == [b"first"] * 8
        for one in pushed.split():
            name, _, pipe = one.partition(":P")
            pushers[int(pipe) - 1].push(name.encode())
        found = b" ".join(taken(mail))
    assert found == b"M2 M9 M10 M1 M11 M3 M6 M7 M4 M5 M8"


def test_no_pipe_waits_for_longer_than_a_round(site: Site) -> None:
    """Others are pushed to and what fails comes back all the time meanwhile."""
    site.messaging.create_queue("mail", max_pop_width=3, max_pushes_per_pipe=5)
    queue = site.messaging.queue("mail")
    with ExitStack() as stack:
        pushers = [stack.enter_context(queue.pusher()) for _ in range(5)]
        for number, pusher in enumerate(pushers):
            pusher.push_all([b"%d" % number] * 4)
        since = dict.fromkeys((b"0", b"1", b"2"), 0)
        for _ in range(12):
            pushers[3].push(b"3")
            job = popped(queue)
            since = {name: pops + 1 for name, pops in since.items()}
            if job.deliveries == 1 and job.payload in since:
                since[job.payload] = 0
            assert max(since.values()) <= 4
            job.rollback()
        assert set(taken(queue)) == {b"0", b"1", b"2", b"3", b"4"}


def test_a_strict_queue_keeps_the_order_of_all_pushers(site: Site) -> None:
    site.messaging.create_queue("mail", order="strict", max_pushes_per_pipe=3)
    queue = site.messaging.queue("mail")
    with queue.pusher() as first, queue.pusher() as second:
        for number, payload in enumerate(numbered(20)):
            (first, second)[number % 2].push(payload)
    jobs = [popped(queue) for _ in range(3)]
    assert [job.payload for job in jobs] == numbered(3)
    jobs[1].rollback()
    jobs[0].rollback()
    assert taken(queue) == [b"m0", b"m1", *numbered(20)[3:]]


def test_a_strict_queue_waits_for_the_first_item(site: Site) -> None:
    site.messaging.create_queue("mail", order="strict")
    queue = site.messaging.queue("mail")
    queue.push_all(numbered(3))
    popped(queue).rollback(delay_s=5)
    assert queue.pop() is None
    site.clock.advance_s(5)
    assert taken(queue) == numbered(3)


def test_a_strict_queue_goes_on_behind_a_pipe_that_is_empty(site: Site) -> None:
    site.messaging.create_queue("mail", order="strict")
    queue = site.messaging.queue("mail")
    queue.push(b"first", priority=1)
    assert taken(queue) == [b"first"]
    queue.push(b"low")
    assert popped(queue).payload == b"low"


def test_items_of_one_key_come_one_after_the_other(site: Site) -> None:
    site.messaging.create_queue("mail", order="key")
    queue = site.messaging.queue("mail")
    for number in range(3):
        for key in (b"x", b"y"):
            queue.push(key + str(number).encode(), key=key)
    queue.push(b"free")
    jobs = queue.pop_many(10)
    assert [job.payload for job in jobs] == [b"x0", b"y0", b"free"]
    assert queue.pop() is None
    by_payload: dict[bytes, Job] = {job.payload: job for job in jobs}
    by_payload[b"x0"].rollback()
    assert popped(queue).payload == b"x0"
    assert queue.pop() is None
    by_payload[b"y0"].commit()
    assert popped(queue).payload == b"y1"
    assert queue.pop() is None
    assert queue.stats().depth == 3


def test_the_order_by_key_survives_leases_that_end(site: Site) -> None:
    site.messaging.create_queue("mail", order="key")
    queue = site.messaging.queue("mail")
    for number in range(4):
        queue.push(str(number).encode(), key=b"x")
    assert popped(queue).payload == b"0"
    assert queue.pop() is None
    site.clock.advance_s(31)
    assert taken(queue) == [b"0", b"1", b"2", b"3"]


def test_a_delayed_item_comes_when_it_is_due(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"late", delay_s=10)
    queue.push(b"later", delay_s=60)
    queue.push(b"now")
    assert taken(queue) == [b"now"]
    assert (queue.stats().depth, queue.stats().delayed) == (2, 2)
    site.clock.advance_s(9)
    assert queue.pop() is None
    site.clock.advance_s(1.5)
    assert waiting(queue) == [b"late"]
    assert taken(queue) == [b"late"]
    site.clock.advance_s(60)
    assert taken(queue) == [b"later"]
    assert queue.stats().pushed == 3


def test_a_rollback_may_ask_for_a_delay(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    popped(queue).rollback(delay_s=3)
    assert queue.pop() is None
    assert (queue.stats().depth, queue.stats().delayed) == (1, 1)
    site.clock.advance_s(3)
    assert popped(queue).deliveries == 2


def test_delays_survive_a_restart(lasting: Site) -> None:
    queue = made(lasting.messaging)
    queue.push(b"a", delay_s=100)
    queue.push(b"b")
    popped(queue).rollback(delay_s=100)
    lasting.open()
    queue = lasting.messaging.queue("mail")
    assert queue.pop() is None
    lasting.clock.advance_s(101)
    assert sorted(taken(queue)) == [b"a", b"b"]


def test_a_delay_in_a_transaction(site: Site) -> None:
    queue = made(site.messaging)
    with site.messaging.transaction():
        queue.push(b"a", delay_s=5)
    assert queue.pop() is None
    site.clock.advance_s(6)
    assert taken(queue) == [b"a"]


def test_a_higher_priority_is_popped_first(mail: Queue) -> None:
    mail.push(b"usual")
    mail.push(b"urgent", priority=9)
    mail.push(b"soon", priority=5)
    assert taken(mail) == [b"urgent", b"soon", b"usual"]


def test_priorities_starve_nobody(mail: Queue) -> None:
    mail.push(b"usual")
    mail.push_all(numbered(30), priority=9)
    assert b"usual" in taken(mail, 11)


def test_what_is_delivered_too_often_becomes_a_dead_letter(site: Site) -> None:
    site.messaging.create_queue("mail", max_deliveries=2, dead_letter_queue="dead")
    queue = site.messaging.queue("mail")
    queue.push(b"poison", key=b"k", headers={"h": b"1"})
    job = popped(queue)
    job.rollback()
    with pytest.raises(ZeroDivisionError), popped(queue):
        _ = 1 / 0
    assert queue.pop() is None
    letter = popped(site.messaging.queue("dead"))
    assert (letter.payload, letter.key, letter.deliveries) == (b"poison", b"k", 1)
    assert letter.headers == {
        "h": b"1",
        "queue": b"mail",
        "id": job.id.encode(),
        "deliveries": b"2",
        "error": b"ZeroDivisionError: division by zero",
    }
    stats = queue.stats()
    assert (stats.dead_letters, stats.depth, stats.committed) == (1, 0, 0)


def test_a_job_that_kills_its_workers_becomes_a_dead_letter(lasting: Site) -> None:
    lasting.messaging.create_queue("mail", max_deliveries=3)
    lasting.messaging.queue("mail").push(b"deadly")
    for delivery in (1, 2, 3):
        job = popped(lasting.messaging.queue("mail"))
        assert job.deliveries == delivery
        lasting.crash()
    assert lasting.messaging.queue("mail").pop() is None
    letter = popped(lasting.messaging.queue("mail-dead"))
    assert letter.headers["deliveries"] == b"3"
    assert lasting.messaging.queue("mail").stats().dead_letters == 1


def test_a_lease_that_ends_counts_as_a_delivery(site: Site) -> None:
    site.messaging.create_queue("mail", max_deliveries=1)
    queue = site.messaging.queue("mail")
    queue.push(b"a")
    popped(queue)
    site.clock.advance_s(31)
    assert queue.pop() is None
    assert b"lease" in popped(site.messaging.queue("mail-dead")).headers["error"]


def test_dead_letters_can_be_sent_back(site: Site) -> None:
    site.messaging.create_queue("mail", max_deliveries=1, dead_letter_queue="dead")
    queue, dead = site.messaging.queue("mail"), made(site.messaging, "dead")
    dead.push(b"of nobody")
    queue.push(b"a", key=b"k", headers={"h": b"1"})
    queue.push(b"b")
    for _ in range(2):
        popped(queue).rollback()
    assert sorted(waiting(dead)) == [b"a", b"b", b"of nobody"]
    assert queue.redrive() == 2
    assert waiting(dead) == [b"of nobody"]
    job = popped(queue)
    assert (job.payload, job.key, job.deliveries) == (b"a", b"k", 1)
    assert job.headers == {"h": b"1"}
    job.rollback()
    assert dead.redrive() == 1
    assert sorted(taken(queue)) == [b"a", b"b"]


@pytest.mark.in_process
def test_a_redrive_that_fails_midway_says_how_many_it_moved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next one goes on, at once."""
    site.messaging.create_queue("mail", max_deliveries=1, dead_letter_queue="dead")
    queue, dead = site.messaging.queue("mail"), made(site.messaging, "dead")
    dead.push(b"of nobody")
    queue.push_all(numbered(4))
    for job in queue.pop_many(4):
        job.rollback()
    move, moves = WorkQueue.move, iter((True, True, False))

    def moved(*args: Any) -> bool:
        if not next(moves):
            raise Unavailable("the disk is full")
        return move(*args)

    with monkeypatch.context() as lost:
        lost.setattr(WorkQueue, "move", moved)
        with pytest.raises(Unavailable, match=r"2 dead letters went back.*is full"):
            queue.redrive()
    assert (dead.stats().depth, dead.stats().in_work) == (3, 0)
    assert (queue.redrive(), queue.stats().depth) == (2, 4)


def test_a_letter_of_a_letter_goes_back_as_it_was(site: Site) -> None:
    """With the headers that it had under the names that letters have."""
    for name in ("mail", "mail-dead"):
        site.messaging.create_queue(name, max_deliveries=1)
    queue, dead = (site.messaging.queue(name) for name in ("mail", "mail-dead"))
    headers = {"id": b"42", "before.id": b"41", "h": b"1"}
    queue.push(b"a", headers=headers)
    popped(queue).rollback(error="no")
    letter = popped(dead)
    assert letter.headers.items() >= {"queue": b"mail", "before.id": b"42"}.items()
    letter.rollback(error="never")
    assert popped(site.messaging.queue("mail-dead-dead")).headers["error"] == b"never"
    site.clock.advance_s(31)
    assert (queue.redrive(), dead.redrive()) == (0, 1)
    assert [one.headers for one in dead.peek()] == [letter.headers]
    assert queue.redrive() == 1
    assert popped(queue).headers == headers


@pytest.mark.parametrize("size", [65_300, 65_520])
def test_a_letter_whose_headers_are_large_is_written(site: Site, size: int) -> None:
    """Its error is cut, and where nothing has room its headers stay as they are."""
    site.messaging.create_queue("mail", max_deliveries=1)
    queue = site.messaging.queue("mail")
    queue.push(b"a", headers={"h": bytes(size)})
    popped(queue).rollback(error="e" * 2000)
    assert queue.pop() is None
    letter = popped(site.messaging.queue("mail-dead"))
    assert letter.headers["h"] == bytes(size)
    assert (0 < len(letter.headers.get("error", b"")) < 2000) is (size == 65_300)


@pytest.mark.in_process
def test_a_letter_that_cannot_be_written_now_is_written_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.messaging.create_queue("mail", max_deliveries=1)
    queue = site.messaging.queue("mail")
    queue.push(b"poison")
    job, queues = popped(queue), queue._access.queues

    def away(name: str, **_: bool) -> None:
        raise Unavailable(f"{name} cannot be created now")

    with monkeypatch.context() as lost:
        lost.setattr(queues, "create_queue", away)
        with pytest.raises(Unavailable):
            job.rollback()
    assert queue.pop() is None
    assert popped(site.messaging.queue("mail-dead")).payload == b"poison"
