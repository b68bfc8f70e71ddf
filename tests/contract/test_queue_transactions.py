"""Queues in transactions: pops, pushes and publishes are exactly once."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import attrs
import pytest

from coordinator.errors import TransactionNotInProgress
from tests.support.messagings import Site, committed
from tests.support.queues import made, numbered, popped, rows_of, taken, waiting
from txaware.errors import BadRequest, MisusedTransaction, TxAwareError
from txaware.model.messages import Outgoing
from txaware.model.partitions import partition_of
from txaware.queue import Queue
from txaware.service.write.message_cargo import TopicCargo
from txaware.store.keys import LEASE


class Broken(Exception):
    """The error of a worker."""


@contextmanager
def broken(site: Site) -> Iterator[None]:
    """A transaction whose block raises at its end."""
    with suppress(Broken), site.messaging.transaction():
        yield
        raise Broken


@contextmanager
def refused(kind: type[TxAwareError]) -> Iterator[None]:
    """A block that ends with such an error."""
    with pytest.raises(kind):
        yield


def test_a_push_in_a_transaction_comes_with_its_commit(site: Site) -> None:
    queue = made(site.messaging)
    with site.messaging.transaction():
        queue.push(b"a")
        queue.push_all([b"b", b"c"])
        assert queue.peek() == []
    assert taken(queue) == [b"a", b"b", b"c"]
    assert queue.stats().pushed == 3


def test_pushes_of_a_transaction_are_popped_as_one_run(site: Site) -> None:
    """One row has the first, and one all others."""
    queue = made(site.messaging)
    with site.messaging.transaction():
        queue.push_all(numbered(5))
    assert len(queue.pop_many(5)) == 5
    assert len([key for key in rows_of(site) if key.startswith(LEASE)]) == 2


def test_jobs_of_a_transaction_are_in_work_until_its_end(site: Site) -> None:
    queue = made(site.messaging)
    queue.push_all(numbered(3))
    with site.messaging.transaction():
        assert len(queue.pop_many(3)) == 3
        site.clock.advance_s(4)
    assert queue.stats().average_work_s == 4


def test_a_push_that_is_rolled_back_never_comes(site: Site) -> None:
    queue = made(site.messaging)
    with broken(site):
        queue.push(b"a")
    queue.push(b"b")
    assert taken(queue) == [b"b"]
    assert (queue.stats().pushed, queue.stats().depth) == (1, 0)


def test_a_pop_in_a_transaction_is_final_with_the_commit(site: Site) -> None:
    queue = made(site.messaging)
    queue.push_all([b"a", b"b"])
    with site.messaging.transaction():
        job = popped(queue)
        assert (job.payload, job.lease_until) == (b"a", None)
    stats = queue.stats()
    assert (stats.committed, stats.in_work, stats.depth) == (1, 0, 1)
    assert taken(queue) == [b"b"]
    with pytest.raises(MisusedTransaction, match="is over"):
        job.commit()


def test_a_pop_goes_back_with_the_rollback_and_counts(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    with broken(site):
        popped(queue)
    again = popped(queue)
    assert (again.payload, again.deliveries) == (b"a", 2)


def test_a_step_from_queue_to_queue_to_topic_happens_once(site: Site) -> None:
    messaging = site.messaging
    first, second = made(messaging, "first"), made(messaging, "second")
    messaging.create_topic("t")
    first.push_all(numbered(5))
    tries = 0
    while waiting(first):
        tries += 1
        try:
            with messaging.transaction():
                job = popped(first)
                second.push(job.payload + b"!")
                messaging.publisher("t").publish(job.payload)
                if job.deliveries == 1:
                    raise Broken
        except Broken:
            continue
    assert tries == 10
    assert sorted(committed(messaging)) == numbered(5)
    assert sorted(taken(second)) == [payload + b"!" for payload in numbered(5)]
    assert first.stats().committed == 5


def test_pushes_and_publishes_to_partitions_are_one_commit(site: Site) -> None:
    messaging = site.messaging
    queue = made(messaging)
    messaging.create_topic("orders", partitions=3)
    keyed = [Outgoing(b"%d" % number, b"%d" % number) for number in range(9)]

    def step() -> None:
        queue.push(b"a")
        messaging.publisher("orders").publish_all(keyed)
        messaging.publisher("orders.2").publish(b"named")
        queue.push(b"b")

    def found() -> list[list[bytes]]:
        names = [f"orders.{number}" for number in range(3)]
        return [committed(messaging, name) for name in names]

    with broken(site):
        step()
    assert (waiting(queue), found()) == ([], [[], [], []])
    with site.messaging.transaction():
        step()
        assert (waiting(queue), found()) == ([], [[], [], []])
    wanted = [
        [one.payload for one in keyed if partition_of(one.key or b"", 3) == number]
        for number in range(3)
    ]
    assert all(wanted)
    assert found() == [*wanted[:2], [*wanted[2], b"named"]]
    assert taken(queue) == [b"a", b"b"]


def test_one_job_of_a_transaction_can_go_back_alone(site: Site) -> None:
    queue = made(site.messaging)
    queue.push_all([b"a", b"b"])
    with site.messaging.transaction():
        popped(queue)
        popped(queue).rollback()
    assert taken(queue) == [b"b"]


def test_a_block_of_a_job_in_a_transaction(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    with site.messaging.transaction():
        with pytest.raises(Broken), popped(queue):
            raise Broken
        with popped(queue) as job:
            assert job.deliveries == 2
    assert queue.stats().committed == 1


def test_a_commit_in_a_transaction_comes_with_its_commit(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    job = popped(queue)
    with broken(site):
        job.commit()
    again = popped(queue)
    with site.messaging.transaction():
        again.commit()
        site.clock.advance_s(20)
        assert queue.stats().in_work == 1
    assert queue.stats().committed == 1
    with pytest.raises(MisusedTransaction, match="is over"):
        job.commit()


def test_jobs_of_a_transaction_that_timed_out_come_again(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    with refused(TransactionNotInProgress), site.messaging.transaction(timeout_s=5):
        popped(queue)
        site.clock.advance_s(6)
    again = popped(queue)
    assert (again.payload, again.deliveries) == (b"a", 2)
    left = site.messaging.coordinator.start_short(5)  # and nobody ends it
    lease = again._popped.lease
    again._service.commit_job("mail", again.id, lease, transaction=left)
    site.clock.advance_s(6)
    assert popped(queue).deliveries == 3  # although nobody asks the coordinator


def test_an_open_transaction_keeps_its_jobs_longer_than_a_lease(site: Site) -> None:
    site.messaging.create_queue("mail", lease_s=2)
    queue = site.messaging.queue("mail")
    queue.push(b"a")
    with site.messaging.transaction(timeout_s=30):
        job = popped(queue)
        site.clock.advance_s(10)
        with pytest.raises(MisusedTransaction):
            job.extend(5)
    assert queue.stats().committed == 1


def test_a_queue_that_is_deleted_keeps_no_transaction_from_its_end(site: Site) -> None:
    messaging = site.messaging
    queue, other = made(messaging), made(messaging, "other")
    for end in (messaging.delete_queue, lambda _: queue.truncate()):
        queue.push(b"a")
        with messaging.transaction():
            popped(queue)
            other.push(b"done")
            end("mail")
        assert taken(other) == [b"done"]
        messaging.create_queue("mail", exist_ok=True)
        queue.push(b"b")
        with broken(site):
            popped(queue)
            other.push(b"never")
            end("mail")
        assert taken(other) == []
        messaging.create_queue("mail", exist_ok=True)
    report = messaging.coordinator.snapshot()
    assert not report.invalids


def test_a_long_transaction_pops_nothing(site: Site) -> None:
    queue = made(site.messaging)
    queue.push(b"a")
    with refused(MisusedTransaction), site.messaging.transaction(long=True):
        queue.pop()
    assert taken(queue) == [b"a"]


def test_an_undecided_item_stops_its_pipe_and_no_other(site: Site) -> None:
    messaging = site.messaging
    queue = made(messaging)
    with queue.pusher() as first, queue.pusher() as second:
        first.push(b"a")
        second.push(b"b")
        tx = messaging.coordinator.start_short()
        pipe = messaging._queue_service.pipe_for("mail", transaction=tx, pusher="third")
        response = messaging.publish(pipe, [b"open"], transaction=tx)
        assert response is not None
        assert taken(queue) == [b"a", b"b"]
        messaging.coordinator.can_commit(tx, ())
        messaging.coordinator.commit(tx)
    assert taken(queue) == [b"open"]
    assert queue.stats().pushed == 3


def test_items_that_spill_are_popped_one_by_one(site: Site) -> None:
    queue = made(site.open(buffer_limit_bytes=1000))
    payloads = [payload * 20 for payload in numbered(100)]
    with site.messaging.transaction():
        for payload in payloads:
            queue.push(payload)
    assert queue.stats().pushed == 100
    assert taken(queue, 50) == payloads[:50]
    job = popped(queue)
    job.rollback()
    assert sorted(taken(queue)) == sorted(payloads[50:])
    stats = queue.stats()
    assert (stats.pushed, stats.committed, stats.depth) == (100, 100, 0)


def test_what_others_store_is_pushed_with_the_commit(site: Site) -> None:
    messaging = site.messaging
    queue = made(messaging)
    for commits in (True, False):
        with suppress(Broken), messaging.transaction(long=True) as context:
            tx = context.transaction
            pipe = queue.reserve(tx)
            tasks: list[list[bytes | Outgoing]] = [
                [b"a", Outgoing(b"b", b"k", {"h": b"1"})],
                [b"of an attempt that does not count"],
                [b"c"],
            ]
            receipts = [
                messaging.store(pipe, sent, transaction=tx, attempt=b"%d" % number)
                for number, sent in enumerate(tasks)
            ]
            queue.push(b"beside")
            site.messaging.clean_up()
            queue.push_stored([receipts[0], receipts[2]])
            if not commits:
                raise Broken
    stats = queue.stats()
    assert (stats.pushed, stats.depth) == (4, 4)
    jobs = {job.payload: job for job in queue.pop_many(10)}
    assert sorted(jobs) == [b"a", b"b", b"beside", b"c"]
    assert (jobs[b"b"].key, jobs[b"b"].headers) == (b"k", {"h": b"1"})
    jobs[b"b"].rollback()
    jobs[b"a"].commit()
    assert popped(queue).deliveries == 2
    with pytest.raises(MisusedTransaction, match="none is open here"):
        queue.push_stored(receipts)
    with refused(BadRequest), messaging.transaction():
        queue.push_stored([attrs.evolve(receipts[0], topic="t")])


def test_a_crash_gives_back_what_the_process_had(lasting: Site) -> None:
    queue = made(lasting.messaging)
    queue.push_all(numbered(3))
    with lasting.messaging.transaction():
        popped(queue)
    popped(queue)
    with refused(TxAwareError), lasting.messaging.transaction():
        popped(queue)
        lasting.crash()
    queue = lasting.messaging.queue("mail")
    stats = queue.stats()
    assert (stats.committed, stats.in_work, stats.depth) == (1, 0, 2)
    jobs = [popped(queue), popped(queue)]
    assert [job.payload for job in jobs] == [b"m1", b"m2"]
    assert [job.deliveries for job in jobs] == [2, 2]
    for job in jobs:
        job.commit()
    assert queue.stats().committed == 3


def test_a_crash_loses_no_count_and_no_item(lasting: Site) -> None:
    lasting.messaging.create_queue("mail", max_pushes_per_pipe=5)
    queue = lasting.messaging.queue("mail")
    for payload in numbered(20):
        with lasting.messaging.transaction():
            queue.push(payload)
    for _ in range(7):
        popped(queue).commit()
    popped(queue).rollback()
    before = queue.stats()
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    after = queue.stats()
    assert (after.pushed, after.committed, after.rolled_back, after.depth) == (
        before.pushed,
        before.committed,
        before.rolled_back,
        before.depth,
    )
    assert sorted(taken(queue)) == sorted(numbered(20)[7:])


def test_a_crash_loses_no_push_whose_transaction_ended_before_it_was_counted(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one looks at the queue just after the commit, and before the count."""
    lasting.messaging.create_queue("mail", max_pushes_per_pipe=3)
    queue = lasting.messaging.queue("mail")
    monkeypatch.setattr(TopicCargo, "count", lambda _: queue.stats())
    with lasting.messaging.transaction():
        queue.push_all(numbered(8))
    lasting.crash()
    queue = lasting.messaging.queue("mail")
    for _ in range(3):  # each has some empty pipes go
        assert queue.stats().depth == 8
    assert taken(queue) == numbered(8)


def test_many_workers_in_transactions_do_each_job_once(mail: Queue, site: Site) -> None:
    messaging = site.messaging
    messaging.create_queue("done")
    done = messaging.queue("done")
    mail.push_all(numbered(40))
    while waiting(mail):
        with messaging.transaction():
            for job in mail.pop_many(3):
                done.push(job.payload)
    assert sorted(taken(done)) == sorted(numbered(40))


def test_a_check_finds_nothing_wrong_with_queues(lasting: Site) -> None:
    messaging = lasting.open(buffer_limit_bytes=1000)
    queue = made(messaging)
    with messaging.transaction():
        queue.push_all([payload * 20 for payload in numbered(100)])
    queue.push_all(numbered(20))
    taken(queue, 30)
    popped(queue)
    with messaging.transaction():
        popped(queue)
        assert messaging.check().problems == ()
    queue.truncate()
    queue.push(b"a")
    report = messaging.check()
    assert report.problems == ()
    assert report.counts["queues"] == 1
    messaging.clean_up()
    assert messaging.check().counts.get("rows of older generations", 0) == 0
    assert taken(queue) == [b"a"]


def test_a_job_that_ends_with_a_transaction_is_kept_past_its_lease(site: Site) -> None:
    site.messaging.create_queue("mail", lease_s=5)
    queue = site.messaging.queue("mail")
    queue.push(b"a")
    job = popped(queue)
    with site.messaging.transaction():
        job.commit()
        site.clock.advance_s(10)
        assert queue.stats().in_work == 1
    assert queue.pop() is None
    assert (queue.stats().committed, queue.stats().expired_leases) == (1, 0)
