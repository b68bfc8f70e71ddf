"""Queues: pushes, pops, leases, commits and rollbacks outside of transactions."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import attrs
import pytest

import txaware
from tests.support.concurrency import until
from tests.support.messagings import Site
from tests.support.queues import made, numbered, popped, taken, waiting
from txaware.errors import (
    BadRequest,
    LeaseLost,
    MisusedTransaction,
    PublisherClosed,
    QueueExists,
    QueueNotFound,
    TopicNotFound,
    Unavailable,
)
from txaware.model.messages import Outgoing
from txaware.model.queues import LeasedJob, row_name
from txaware.model.topics import data_prefix
from txaware.queue import Job, Queue
from txaware.service.queue.local_queues import LocalQueues
from txaware.store.keys import LEASE, MESSAGE, PAYLOAD, PIPE


def test_one_pusher_and_one_popper_keep_the_order(mail: Queue, site: Site) -> None:
    """Scenario 113."""
    payloads = numbered(1000 if site.kind == "memory" else 50)
    for payload in payloads:
        mail.push(payload)
    assert taken(mail) == payloads
    assert mail.pop() is None


def test_many_pushers_and_poppers_do_each_job_once(mail: Queue, site: Site) -> None:
    """Scenario 114."""
    most = 10_000 if site.kind == "memory" else 500
    found, lock = list[bytes](), threading.Lock()
    pushed = [numbered(most // 5, f"{pusher}-") for pusher in range(5)]

    def push(payloads: list[bytes]) -> None:
        with mail.pusher() as pusher:
            for first in range(0, len(payloads), 10):
                pusher.push_all(payloads[first : first + 10])

    def pop() -> None:
        while len(found) < most:
            for job in mail.pop_many(7, wait_s=0.2):
                job.commit()
                with lock:
                    found.append(job.payload)

    with ThreadPoolExecutor(15) as pool:
        done = [pool.submit(push, payloads) for payloads in pushed]
        done += [pool.submit(pop) for _ in range(10)]
        for one in done:
            one.result()
    assert sorted(found) == sorted(payload for part in pushed for payload in part)
    stats = mail.stats()
    assert (stats.pushed, stats.committed, stats.depth) == (most, most, 0)


def test_a_full_pipe_is_followed_by_another_one(site: Site) -> None:
    """Scenario 115."""
    site.messaging.create_queue("mail", max_pushes_per_pipe=10)
    queue = site.messaging.queue("mail")
    for payload in numbered(30):
        queue.push(payload)
    assert (queue.stats().pipes, queue.stats().open_pipes) == (3, 1)
    assert taken(queue) == numbered(30)
    assert queue.stats().pipes == 1


def test_a_closed_pusher_pushes_nothing(mail: Queue) -> None:
    """Scenario 116."""
    pusher = mail.pusher()
    pusher.push(b"a")
    assert mail.stats().open_pipes == 1
    pusher.close()
    pusher.close()
    assert mail.stats().open_pipes == 0
    with pytest.raises(PublisherClosed, match="closed"):
        pusher.push(b"b")
    assert taken(mail) == [b"a"]


def test_two_pushers_share_no_pipe(mail: Queue) -> None:
    """Scenario 117."""
    with mail.pusher() as first, mail.pusher() as second:
        for pusher in (first, second, first, second):
            pusher.push(b"a")
        assert mail.stats().pipes == 2


def test_a_pop_without_any_item_answers_none(mail: Queue, site: Site) -> None:
    """Scenario 118; after a close it is an error."""
    assert mail.pop() is None
    assert mail.pop_many(5) == []
    assert mail.pop(wait_s=0.01) is None
    site.messaging.close()
    with pytest.raises(Unavailable, match="closed"):
        mail.pop()


def waiting_poppers(site: Site) -> int:
    queues: Any = site.embedded._queue_service
    signal = queues.signal("mail")
    return len(signal._listeners) + int(signal._waiting)


def test_who_waits_goes_on_in_a_truncated_queue_until_the_data_is_closed(
    mail: Queue, site: Site
) -> None:
    queues = [site.embedded.queue("mail"), mail]
    with ThreadPoolExecutor(len(queues)) as pool:
        poppers = [pool.submit(queue.pop, wait_s=20) for queue in queues]
        assert until(lambda: waiting_poppers(site) == len(queues))
        mail.truncate()
        mail.push_all([b"a", b"b"])
        jobs = [popper.result(20) for popper in poppers]
        assert {job and job.payload for job in jobs} == {b"a", b"b"}
        last = pool.submit(queues[0].pop, wait_s=20)
        assert until(lambda: waiting_poppers(site) == 1)
        site.close()
        with pytest.raises(Unavailable, match="closed"):
            last.result(20)


def test_a_pop_commits_the_job_before(mail: Queue) -> None:
    mail.push_all([b"a", b"b"])
    first = popped(mail)
    second = mail.pop(commits=first)
    assert second is not None
    assert (second.payload, first.is_over) == (b"b", True)
    assert (mail.stats().committed, mail.stats().in_work) == (1, 1)
    assert mail.pop(commits=second) is None
    stats = mail.stats()
    assert (stats.committed, stats.in_work, stats.popped) == (2, 0, 2)
    with pytest.raises(LeaseLost, match="gone"):
        second.commit()


def test_a_pop_commits_before_it_waits(mail: Queue, site: Site) -> None:
    mail.push(b"a")
    job = popped(mail)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(mail.pop, 20, commits=job)
        assert until(lambda: waiting_poppers(site) == 1)
        assert (mail.stats().committed, mail.stats().in_work) == (1, 0)
        mail.push(b"b")
        found = waits.result(20)
    assert found is not None
    assert found.payload == b"b"


def test_a_pop_that_cannot_commit_leases_nothing(mail: Queue, site: Site) -> None:
    mail.push_all([b"a", b"b"])
    job = popped(mail)
    site.clock.advance_s(31)
    with pytest.raises(LeaseLost):
        mail.pop(commits=job)
    stats = mail.stats()
    assert (stats.committed, stats.in_work, stats.depth) == (0, 0, 2)
    assert not job.is_over


def test_a_paused_queue_commits_by_a_pop_that_gets_nothing(mail: Queue) -> None:
    mail.push_all([b"a", b"b"])
    job = popped(mail)
    mail.pause()
    assert mail.pop(commits=job) is None
    assert (mail.stats().committed, mail.stats().depth) == (1, 1)


def test_a_job_that_no_pop_can_carry_is_committed_before_it(
    mail: Queue, site: Site
) -> None:
    other = made(site.messaging, "other")
    other.push(b"a")
    mail.push_all([b"b", b"c"])
    job = popped(other)
    found = mail.pop(commits=job)
    assert (other.stats().committed, mail.stats().in_work) == (1, 1)
    with site.messaging.transaction():  # with which both end
        last = mail.pop(commits=found)
        assert last is not None
        assert last.payload == b"c"
    assert mail.stats().committed == 2
    with pytest.raises(MisusedTransaction, match="too late"):
        mail.pop(commits=last)


def test_a_job_of_a_queue_of_that_name_elsewhere_is_committed_there(
    mail: Queue,
) -> None:
    with txaware.connect("memory:") as elsewhere:
        other = made(elsewhere, "mail")
        other.push(b"a")
        mail.push(b"b")
        found = mail.pop(commits=popped(other))
        assert found is not None
        assert (found.payload, other.stats().committed) == (b"b", 1)
        assert (mail.stats().committed, mail.stats().in_work) == (0, 1)


def test_a_pop_commits_nothing_else_than_a_job(mail: Queue, site: Site) -> None:
    wrong: Any = b"a"
    with pytest.raises(BadRequest, match="is a job"):
        mail.pop(commits=wrong)
    service: Any = site.messaging._queue_service
    job = LeasedJob("0" * 56, "0" * 16)
    for options in ({"wait_s": 1}, {"transaction": site.messaging.coordinator}):
        with pytest.raises(BadRequest):
            service.pop("mail", commits=job, **options)
    with pytest.raises(BadRequest, match="named by"):
        service.pop("mail", commits=b"a")


def test_the_next_of_a_key_is_free_once_a_pop_has_committed(site: Site) -> None:
    site.messaging.create_queue("mail", order="key")
    queue = site.messaging.queue("mail")
    queue.push_all([Outgoing(b"a", key=b"k"), Outgoing(b"b", key=b"k")])
    job = queue.pop(wait_s=20, commits=popped(queue))
    assert job is not None
    assert (job.payload, queue.stats().committed) == (b"b", 1)


def test_a_committed_job_is_gone(mail: Queue) -> None:
    """Scenario 119."""
    mail.push(b"a")
    job = popped(mail)
    assert (mail.stats().depth, mail.stats().in_work) == (0, 1)
    job.commit()
    stats = mail.stats()
    assert (stats.in_work, stats.popped, stats.committed) == (0, 1, 1)
    assert mail.pop() is None


def test_a_job_that_is_rolled_back_comes_again(mail: Queue) -> None:
    """Scenario 120; its id stays, and its deliveries are counted."""
    mail.push(b"a")
    first = popped(mail)
    first.rollback()
    assert mail.stats().rolled_back == 1
    again = popped(mail)
    assert (again.payload, again.id) == (b"a", first.id)
    assert (first.deliveries, again.deliveries) == (1, 2)


def test_a_job_that_comes_again_keeps_nothing_else_waiting(mail: Queue) -> None:
    """A worker that rolls all back, at once, still sees everything."""
    mail.push_all(numbered(4))
    seen = set()
    for _ in range(8):
        job = popped(mail)
        seen.add(job.payload)
        job.rollback()
    assert seen == set(numbered(4))


def test_a_job_without_a_commit_comes_again_after_its_lease(site: Site) -> None:
    """Scenario 121."""
    queue = made(site.messaging)
    queue.push(b"a")
    job = popped(queue)
    site.clock.advance_s(29)
    assert queue.pop() is None
    site.clock.advance_s(1)
    again = popped(queue)
    assert (again.id, again.deliveries) == (job.id, 2)
    assert queue.stats().expired_leases == 1


def test_a_late_commit_is_refused_and_says_who_has_the_job_now(site: Site) -> None:
    """Scenario 122."""
    queue = made(site.messaging)
    queue.push(b"a")
    late = popped(queue)
    site.clock.advance_s(31)
    with pytest.raises(LeaseLost, match="nobody has it now"):
        late.commit()
    again = popped(queue.popper(name="worker 7"))
    for call in (late.commit, late.rollback, lambda: late.extend(5)):
        with pytest.raises(LeaseLost, match="worker 7 has it now"):
            call()
    again.commit()
    assert queue.stats().committed == 1
    with pytest.raises(LeaseLost, match="gone"):
        again.commit()


def test_a_pipe_of_one_popper_is_left_to_it_until_it_idles(site: Site) -> None:
    """Scenario 123."""
    queue = made(site.messaging)
    queue.push_all(numbered(3))
    owner = queue.popper(name="owner", owns_pipe=True)
    other = queue.popper(name="other", owns_pipe=True)
    popped(owner).commit()
    assert other.pop() is None
    site.clock.advance_s(32)
    assert popped(other).payload == b"m1"
    assert owner.pop() is None


def test_a_pipe_that_its_pusher_left_ends_when_it_is_empty(site: Site) -> None:
    """Scenario 124."""
    queue = made(site.messaging)
    queue.push(b"a")
    assert taken(queue) == [b"a"]
    assert queue.stats().pipes == 1
    site.clock.advance_s(61)
    assert queue.stats().pipes == 0
    queue.push(b"a")
    assert taken(queue) == [b"a"]
    site.clock.advance_s(61)
    site.messaging.clean_up()  # nobody uses the queue any more
    prefix = PIPE + data_prefix(row_name("mail"), 1)
    until(lambda: not site.table.scan(prefix, start=bytes(7) + b"\1"))
    queue.push(b"b")
    assert taken(queue) == [b"b"]


def test_pipes_that_were_left_end_as_others_begin(site: Site) -> None:
    """Programs that push once and are gone leave no pipe until the next clean-up."""
    queue = made(site.messaging)
    for number in range(30):
        queue.pusher().push(b"%d" % number)
        assert taken(queue) == [b"%d" % number]
        site.clock.advance_s(100)
    assert queue.stats().pipes <= 8


def test_counts_add_up_while_pipes_come_and_go(site: Site) -> None:
    """Scenario 125."""
    site.messaging.create_queue("mail", max_pushes_per_pipe=10)
    queue = site.messaging.queue("mail")
    for number in range(45):
        queue.push(b"a")
        job = popped(queue)
        if number % 9 == 0:
            job.rollback()
            job = popped(queue)
        job.commit()
        stats = queue.stats()
        assert (stats.pushed, stats.committed) == (number + 1, number + 1)
        assert stats.popped == stats.committed + stats.rolled_back
    assert stats.pipes == 1


def test_a_truncated_queue_is_empty_and_its_counts_are_zero(site: Site) -> None:
    """Scenario 126."""
    site.messaging.create_queue("mail", max_pushes_per_pipe=2)
    queue = site.messaging.queue("mail")
    for payload in numbered(20):
        queue.push(payload)
    job = popped(queue)
    queue.truncate()
    stats = queue.stats()
    assert (stats.pushed, stats.popped, stats.depth, stats.pipes) == (0, 0, 0, 0)
    assert queue.pop() is None
    with pytest.raises(LeaseLost):
        job.commit()
    queue.push(b"new")
    assert taken(queue) == [b"new"]


def test_a_queue_that_exists_keeps_its_settings(site: Site) -> None:
    """Scenario 127."""
    first = site.messaging.create_queue("mail", lease_s=5, order="strict")
    for named in ({}, {"lease_s": 5, "order": "strict"}, {"lease_s": 7}):
        with pytest.raises(QueueExists, match=r"^queue mail exists already$"):
            site.messaging.create_queue("mail", **named)
    assert site.messaging.queue("mail").descriptor == first


def test_a_queue_that_exists_may_be_named_as_far_as_it_is_known(site: Site) -> None:
    create = partial(site.messaging.create_queue, "mail", exist_ok=True)
    first = create(lease_s=5, order="strict", dead_letter_queue="dead")
    site.messaging.queue("mail").push(b"a")
    for named in (
        {},
        {"lease_s": 5},
        {"order": "strict", "max_deliveries": None},
        {"dead_letter_queue": "default:dead", "ttl_s": None},
    ):
        assert create(**named) == first
    site.messaging.queue("mail").pause()
    assert create().is_paused
    assert waiting(site.messaging.queue("mail")) == [b"a"]


@pytest.mark.parametrize(
    ("named", "differs"),
    [
        ({"lease_s": 30}, "its lease_s is 5.0, not 30.0;"),
        (
            {"max_deliveries": 5, "order": "key", "lease_s": 5},
            "its max_deliveries is None, not 5 and order is 'strict', not 'key';",
        ),
        (
            {"dead_letter_queue": None},
            "its dead_letter_queue is 'dead', not None; update_queue changes it$",
        ),
    ],
    ids=repr,
)
def test_a_queue_that_is_not_as_named_says_what_differs(
    site: Site, named: Any, differs: str
) -> None:
    create: Any = partial(site.messaging.create_queue, "mail")
    first = create(lease_s=5, order="strict", dead_letter_queue="dead")
    with pytest.raises(QueueExists, match=f"^queue mail exists already, and {differs}"):
        create(exist_ok=True, **named)
    assert site.messaging.queue("mail").descriptor == first


def test_an_update_of_a_queue_changes_what_is_named(site: Site) -> None:
    messaging = site.messaging
    made = messaging.create_queue("mail", lease_s=5, max_deliveries=2)
    queue = messaging.queue("mail")
    queue.push_all(numbered(3))
    job = popped(queue)
    changed = messaging.update_queue("mail", lease_s=60, max_pushes_per_pipe=1)
    assert changed == attrs.evolve(made, lease_s=60.0, max_pushes_per_pipe=1)
    assert messaging.update_queue("mail") == queue.descriptor == changed
    assert (job.lease_until, popped(queue).lease_until) == (
        job.pushed_at + timedelta(seconds=5),
        job.pushed_at + timedelta(seconds=60),
    )
    queue.push(b"x")
    queue.push(b"y")
    assert queue.stats().pipes == 3
    queue.pause()
    assert messaging.update_queue("mail", max_deliveries=None).is_paused


def test_an_item_that_was_delivered_as_often_as_an_update_allows_is_a_dead_letter(
    site: Site,
) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    popped(queue).rollback()
    job = popped(queue)
    site.messaging.update_queue("mail", max_deliveries=1, dead_letter_queue="lost")
    job.rollback()
    assert queue.pop() is None
    assert waiting(site.messaging.queue("lost")) == [b"a"]


def test_an_update_that_makes_no_sense_changes_nothing(site: Site) -> None:
    messaging: Any = site.messaging
    first = messaging.create_queue("mail", max_deliveries=3)
    messaging.create_queue("mail-dead", max_deliveries=3, dead_letter_queue="last")
    for named, said in (
        ({"lease_s": 0}, "lease_s is above 0"),
        ({"order": "fifo"}, "order is one of"),
        ({"order": "key"}, "queue mail keeps its order mostly"),
        ({"max_deliveries": 0}, "max_deliveries is a whole number"),
        ({"dead_letter_queue": "mail"}, "cannot be its own dead-letter queue"),
    ):
        with pytest.raises(BadRequest, match=said):
            messaging.update_queue("mail", **named)
    with pytest.raises(BadRequest, match="dead letters would go round"):
        messaging.update_queue("mail-dead", dead_letter_queue="mail")
    with pytest.raises(
        TypeError, match=r"update_queue\(\) has no option is_paused, but "
    ):
        messaging.update_queue("mail", is_paused=True)
    with pytest.raises(QueueNotFound):
        messaging.update_queue("absent", lease_s=5)
    assert messaging.update_queue("mail", order="mostly") == first


def test_an_updated_queue_is_there_after_a_crash(lasting: Site) -> None:
    lasting.messaging.create_queue("mail")
    changed = lasting.messaging.update_queue("mail", max_deliveries=7)
    assert lasting.crash().queue("mail").descriptor == changed


def test_leases_follow_the_clock_of_the_store(site: Site) -> None:
    """Scenario 128: a clock that is set back ends no lease early, or ever later."""
    queue = made(site.messaging)
    queue.push(b"a")
    job = popped(queue)
    site.clock.set_s(-10)
    assert queue.pop() is None
    assert job.lease_until is not None
    assert (job.lease_until - job.pushed_at).total_seconds() == 30
    job.commit()


def test_a_job_tells_what_was_pushed(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a", key=b"k", headers={"h": b"1"})
    job = popped(queue)
    assert (job.payload, job.key, job.headers) == (b"a", b"k", {"h": b"1"})
    assert job.pushed_at.timestamp() * 1000 == site.clock.now_ms


def test_a_block_commits_its_job_or_rolls_it_back(mail: Queue) -> None:
    mail.push(b"a")
    with pytest.raises(ZeroDivisionError), popped(mail) as job:
        _ = 1 / 0
    with popped(mail) as job:
        assert job.deliveries == 2
    assert mail.stats().committed == 1


def test_whatever_the_error_of_a_block_says_its_job_comes_again(mail: Queue) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    mail.push(b"a")
    errors = [ValueError("\0"), ValueError("\udc80"), Mute()]
    for error in errors:
        with pytest.raises(type(error)) as raised, popped(mail):
            raise error
        assert not getattr(raised.value, "__notes__", [])
    assert popped(mail).deliveries == len(errors) + 1


def notes_of_a_block(job: Job, act: Callable[[Job], object]) -> list[str]:
    """What is said about a job beside the error of its block."""
    try:
        with job:
            act(job)
            raise ZeroDivisionError
    except ZeroDivisionError as error:
        return getattr(error, "__notes__", [])


def test_a_block_may_end_its_job_itself(mail: Queue) -> None:
    mail.push_all([b"a", b"b", b"c"])
    with popped(mail) as job:
        job.rollback(delay_s=60)
    with popped(mail) as job:
        job.commit()
    assert not notes_of_a_block(popped(mail), Job.commit)
    stats = mail.stats()
    assert (stats.committed, stats.rolled_back, stats.delayed) == (2, 1, 1)


def test_a_block_whose_lease_is_over_hides_no_error_of_its_own(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")

    def lose(_: Job) -> None:
        site.clock.advance_s(31)
        assert popped(queue).deliveries == 2

    [note] = notes_of_a_block(popped(queue), lose)
    assert "the job was not rolled back: the lease of job" in note
    assert "has it now, in delivery 2" in note
    assert (queue.stats().rolled_back, queue.stats().in_work) == (0, 1)


def test_a_pipe_tells_its_state(site: Site) -> None:
    site.messaging.create_queue("mail", max_pushes_per_pipe=2)
    queue = site.messaging.queue("mail")

    def states() -> list[str]:
        return [pipe.state for pipe in queue.stats().oldest_pipes]

    for payload in numbered(3):
        queue.push(payload)
    queue.push(b"later", delay_s=60)
    assert states() == ["push finished", "push active", "delayed"]
    jobs = [popped(queue), popped(queue)]
    assert states() == ["finished and empty", "push active", "delayed"]
    for job in jobs:
        job.commit()
    assert popped(queue).payload == b"m2"
    assert states() == ["push active", "delayed"]
    site.clock.advance_s(61)
    assert states() == ["push active", "push finished"]


def test_a_lease_can_be_extended(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    job = popped(queue)
    site.clock.advance_s(20)
    job.extend(30)
    site.clock.advance_s(20)
    assert queue.pop() is None
    job.commit()


def test_a_waiting_popper_gets_what_is_pushed(mail: Queue) -> None:
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(mail.pop, 20)
        mail.push(b"a")
        found = job.result(10)
    assert found is not None
    assert found.payload == b"a"


def test_a_paused_queue_hands_out_nothing(site: Site) -> None:
    queue = made(site.messaging)
    queue.pause()
    queue.push(b"a")
    assert queue.pop() is None
    assert queue.stats().is_paused
    queue.resume()
    assert taken(queue) == [b"a"]


def test_a_peek_shows_what_waits_and_leases_nothing(mail: Queue) -> None:
    for payload in numbered(5):
        mail.push(payload)
    job = popped(mail)
    assert waiting(mail) == numbered(5)[1:]
    assert [item.payload for item in mail.peek(2)] == [b"m1", b"m2"]
    job.rollback()
    assert waiting(mail) == numbered(5)
    assert mail.peek(1)[0].deliveries == 1
    assert taken(mail) == numbered(5)


def test_a_queue_is_no_topic_and_a_topic_no_queue(site: Site) -> None:
    messaging = site.messaging
    queue = made(messaging)
    messaging.create_topic("mail")
    messaging.publish("mail", [b"message"])
    queue.push(b"job")
    assert messaging.topics() == ["mail"]
    assert messaging.queues() == ["mail"]
    assert [message.payload for message in messaging.poll("mail")] == [b"message"]
    messaging.delete_topic("mail")
    assert taken(queue) == [b"job"]
    assert messaging.topics() == []


def test_a_deleted_queue_is_gone_and_comes_back_empty(site: Site) -> None:
    messaging = site.messaging
    queue = made(messaging)
    queue.push(b"old")
    job = popped(queue)
    messaging.delete_queue("mail")
    assert messaging.queues() == []
    for call in (queue.pop, queue.stats, job.commit, lambda: queue.push(b"a")):
        with pytest.raises(QueueNotFound):
            call()
    messaging.create_queue("mail")
    assert queue.pop() is None
    with pytest.raises(TopicNotFound):
        messaging.topic("mail")


@pytest.mark.parametrize(
    "options",
    [{"lease_s": seconds} for seconds in (0, -1, "1", True, float("nan"), 10**9)]
    + [{"max_deliveries": most} for most in (0, -1, 1.5, "1", True)]
    + [{"order": "fifo"}, {"max_pushes_per_pipe": 0}, {"max_pop_width": -1}]
    + [{"max_push_time_of_pipe_s": 0}, {"ttl_s": 0}, {"dead_letter_queue": "a b"}]
    + [{"dead_letter_queue": "mail"}],
    ids=repr,
)
def test_a_queue_that_makes_no_sense_is_refused(site: Site, options: Any) -> None:
    with pytest.raises(BadRequest):
        site.messaging.create_queue("mail", **options)
    assert site.messaging.queues() == []


@pytest.mark.parametrize("option", ["is_paused", "lease", "generation"])
def test_an_option_that_a_queue_does_not_have_is_named(site: Site, option: str) -> None:
    options: Any = {option: 5}
    with pytest.raises(
        TypeError, match=rf"create_queue\(\) has no option {option}, but "
    ):
        site.messaging.create_queue("mail", **options)


def test_dead_letters_do_not_go_round(site: Site) -> None:
    """An item that kills all its workers would come for ever."""
    create: Any = partial(site.messaging.create_queue, max_deliveries=3)
    create("a", dead_letter_queue="b")
    create("b", dead_letter_queue="c")
    for last in ("a", "b"):
        with pytest.raises(BadRequest, match=r"round: c to .*b to c$"):
            create("c", dead_letter_queue=last)
    assert site.messaging.queues() == ["a", "b"]
    site.messaging.create_queue("c", dead_letter_queue="a")  # it keeps what it has
    assert create("a", dead_letter_queue="b", exist_ok=True).dead_letters == "b"


@pytest.mark.parametrize("name", ["", "a b", ".mail", "a:b:c", "mäil", None, 5])
def test_a_queue_has_the_name_of_a_topic(site: Site, name: Any) -> None:
    with pytest.raises(BadRequest):
        site.messaging.create_queue(name)
    with pytest.raises(BadRequest, match=r"queue|namespace"):
        site.messaging.queue(name)


def test_a_push_or_a_pop_that_makes_no_sense_is_refused(mail: Queue) -> None:
    push: Any = mail.push
    pop: Any = mail.pop_many
    for options in ({"delay_s": -1}, {"delay_s": "1"}, {"priority": 10}):
        with pytest.raises(BadRequest):
            push(b"a", **options)
    for payload in ("text", None, 5):
        with pytest.raises(BadRequest):
            push(payload)
    with pytest.raises(BadRequest, match="push_all takes many messages, not one bytes"):
        mail.push_all(b"abc")  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        push(b"a", key="text")
    for n in (0, -1, 1.5, True, 100_000):
        with pytest.raises(BadRequest):
            pop(n)
    mail.push(b"a")
    job = popped(mail)
    for seconds in (0, -1, "1"):
        with pytest.raises(BadRequest):
            job.extend(seconds)  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            job.rollback(-1)
    job.commit()
    assert mail.stats().pushed == 1


def test_what_expires_is_not_handed_out(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(Outgoing(b"a", expire_after_s=5))
    queue.push(b"b")
    site.clock.advance_s(6)
    assert waiting(queue) == [b"b"]
    assert taken(queue) == [b"b"]
    stats = queue.stats()
    assert (stats.expired, stats.committed, stats.depth) == (1, 1, 0)


def test_what_waits_is_never_too_old(site: Site) -> None:
    site.messaging.create_queue("mail", ttl_s=1)
    queue = site.messaging.queue("mail")
    queue.push(b"a")
    site.clock.advance_s(400 * 86_400)
    site.messaging.clean_up()
    assert queue.stats().oldest_age_s == 400 * 86_400
    assert taken(queue) == [b"a"]


def test_queues_have_namespaces(site: Site) -> None:
    messaging = site.messaging
    made(messaging, "team:mail").push(b"a")
    made(messaging).push(b"b")
    assert (messaging.queues("team"), messaging.queues()) == (["mail"], ["mail"])
    assert taken(messaging.queue("team:mail")) == [b"a"]
    assert taken(messaging.queue("default:mail")) == [b"b"]


def test_nothing_is_left_of_a_pipe_whose_items_are_gone(site: Site) -> None:
    site.messaging.create_queue("mail", max_pushes_per_pipe=10)
    queue = site.messaging.queue("mail")
    queue.push_all(numbered(10))
    with site.messaging.transaction():
        queue.push_all(numbered(10))
    queue.push_all(numbered(10))
    assert len(taken(queue)) == 30
    queue.stats()
    prefix = data_prefix(row_name("mail"), 1)
    for table in (MESSAGE, PAYLOAD, LEASE):
        assert not site.table.scan(table + prefix)


@pytest.mark.in_process
def test_a_push_wakes_as_many_poppers_as_it_has_items(
    mail: Queue, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = site.embedded._queue_service
    assert isinstance(queues, LocalQueues)
    woken = list[int | None]()
    monkeypatch.setattr(
        queues.signal("mail"), "notify", lambda most=None: woken.append(most)
    )
    mail.push(b"a")
    mail.push_all(numbered(3))
    assert woken == [1, 3]
    with site.messaging.transaction():
        mail.push_all(numbered(2))
    assert None not in woken
    assert max(filter(None, woken[2:])) == 2


def test_an_update_that_closes_a_ring_of_dead_letters_is_refused(site: Site) -> None:
    """By another queue of letters, or by deliveries that had no end before."""
    messaging = site.messaging
    messaging.create_queue("a", max_deliveries=2, dead_letter_queue="b")
    messaging.create_queue("b", max_deliveries=2, dead_letter_queue="c")
    messaging.create_queue("c", dead_letter_queue="a")
    with pytest.raises(BadRequest, match="round: b to a to b"):
        messaging.update_queue("b", dead_letter_queue="a")
    with pytest.raises(BadRequest, match="round"):
        messaging.update_queue("c", max_deliveries=2)
    with pytest.raises(BadRequest, match="its own"):
        messaging.update_queue("b", dead_letter_queue="b")
    assert messaging.queue("b").descriptor.dead_letter_queue == "c"
    assert messaging.queue("c").descriptor.max_deliveries is None
    messaging.update_queue("c", max_deliveries=2, dead_letter_queue="d")
