"""Pushed items that are kept for the next pop, and pops of many at once."""

from contextlib import suppress
from typing import Any

import pytest

import txaware
from tests.support.messagings import Site, commit
from tests.support.queues import made, numbered, popped, taken
from txaware.errors import LeaseLost, StoreCorrupted, Unavailable
from txaware.model.messages import MessageId, Outgoing
from txaware.model.metrics import Latencies, TopicCounters
from txaware.model.queues import Popped
from txaware.queue import Queue
from txaware.service.queue.pipe_reader import PipeReader
from txaware.service.topic_handles import TopicHandle
from txaware.service.write.publishing import Publishing
from txaware.store.keys import LEASE, row_key
from txaware.store.queue_table import LeaseRow


def test_a_push_whose_answer_was_lost_is_popped_and_hides_nothing(
    mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail.push(b"a")
    assert taken(mail) == [b"a"]
    lose_answer(mail, b"b", monkeypatch)
    assert taken(mail) == [b"b"]
    lose_answer(mail, b"c", monkeypatch)
    mail.push(b"d")
    assert taken(mail) == [b"c", b"d"]


def lose_answer(mail: Queue, item: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pushes an item, and does not hear that it is there."""
    plain, plain_soon = Publishing.plain, Publishing.plain_soon
    error = Unavailable("lost")

    def uncounted(handle: Any) -> TopicHandle:
        return TopicHandle(handle.topic, handle.writer, TopicCounters(Latencies()))

    def lost(self: Publishing, handle: Any, payloads: Any, **options: Any) -> None:
        plain(self, uncounted(handle), payloads, **options)
        raise error

    def lost_soon(
        self: Publishing, handle: Any, payloads: Any, then: Any, **options: Any
    ) -> None:
        place = uncounted(handle)
        plain_soon(self, place, payloads, lambda _: then(error), **options)

    with monkeypatch.context() as patched:
        patched.setattr(Publishing, "plain", lost)
        patched.setattr(Publishing, "plain_soon", lost_soon)
        with pytest.raises(Unavailable):
            mail.push(item)


def test_an_item_that_is_read_before_its_push_returns_comes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, large = Publishing.plain, bytes(5_000)
    with txaware.connect("memory:") as messaging:
        mail = made(messaging)
        pusher = mail.pusher()
        pusher.push(large)

        def slow(self: Publishing, *args: Any, **options: Any) -> None:
            monkeypatch.undo()
            plain(self, *args, **options)
            assert popped(mail).payload == large
            pusher.push(b"b")

        monkeypatch.setattr(Publishing, "plain", slow)
        pusher.push(b"a")
        assert taken(mail) == [b"a", b"b"]
        assert mail.stats().in_work == 1


def test_a_push_under_way_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Publishing.plain
    with txaware.connect("memory:") as messaging:
        mail = made(messaging)
        mail.push(b"a")
        assert taken(mail) == [b"a"]

        def slow(self: Publishing, *args: Any, **options: Any) -> None:
            plain(self, *args, **options)
            assert mail.pop() is None

        with monkeypatch.context() as patched:
            patched.setattr(Publishing, "plain", slow)
            patched.delattr(PipeReader, "_rows")
            mail.push(b"b")
            assert taken(mail) == [b"b"]


def test_items_that_are_large_or_many_are_read_when_they_are_popped(
    mail: Queue,
) -> None:
    large = [bytes([number]) * 5_000 for number in range(3)]
    many = [b"%d" % number for number in range(150)]
    with mail.pusher() as pusher:
        for sent in ([b"small"], large, [b"between"], many, [b"last"]):
            pusher.push_all(sent)
    assert taken(mail) == [b"small", *large, b"between", *many, b"last"]


def test_many_are_popped_as_one_by_one(site: Site) -> None:
    site.messaging.create_queue("mail")
    mail = site.messaging.queue("mail")
    sent = [Outgoing(b"%d" % number, b"k%d" % number) for number in range(7)]
    sent[3] = Outgoing(b"3", expire_after_s=5)
    mail.push_all(sent)
    site.clock.advance_s(6)
    with site.messaging.transaction():
        jobs = mail.pop_many(4)
        assert mail.stats().in_work == 4
    assert [(job.payload, job.key) for job in jobs] == [
        (b"%d" % number, b"k%d" % number) for number in (0, 1, 2, 4)
    ]
    assert {job.deliveries for job in jobs} == {1}
    assert len({job.id for job in jobs}) == 4
    stats = mail.stats()
    assert (stats.popped, stats.committed, stats.expired) == (4, 4, 1)
    assert (stats.in_work, stats.depth, stats.average_wait_s) == (0, 2, 6)
    with suppress(ValueError), site.messaging.transaction():
        assert [job.payload for job in mail.pop_many(9)] == [b"5", b"6"]
        raise ValueError
    again = mail.pop_many(9)
    assert [(job.payload, job.deliveries) for job in again] == [(b"5", 2), (b"6", 2)]
    stats = mail.stats()
    assert (stats.popped, stats.rolled_back, stats.in_work) == (8, 2, 2)
    for job in again:
        job.commit()
    assert (mail.stats().committed, mail.stats().pushed) == (6, 7)


def test_leases_of_many_end_by_themselves(site: Site) -> None:
    site.messaging.create_queue("mail", lease_s=5)
    mail = site.messaging.queue("mail")
    mail.push_all([b"a", b"b", b"c"])
    late = mail.pop_many(3)
    site.clock.advance_s(6)
    again = mail.pop_many(3)
    assert [job.payload for job in again] == [b"a", b"b", b"c"]
    assert [job.deliveries for job in again] == [2, 2, 2]
    assert not {job.id for job in again} ^ {job.id for job in late}
    assert mail.stats().expired_leases == 3


def test_jobs_that_were_popped_at_once_outlive_a_crash(lasting: Site) -> None:
    lasting.messaging.create_queue("mail", lease_s=60)
    mail = lasting.messaging.queue("mail")
    with mail.pusher() as pusher:
        pusher.push_all(numbered(4))
        lasting.clock.advance_s(1)
        pusher.push_all(numbered(8)[4:])
    service: Any = mail._access.queues
    far = service.pop("mail", limit=9, popper="far", is_local=False)
    assert [one.payload for one in far] == numbered(8)
    assert len(lasting.table.scan(LEASE)) == 2
    ended_by(mail, far[2])
    service.rollback_job("mail", far[3].id, far[3].lease)
    service.extend_job("mail", far[4].id, far[4].lease, 600)
    assert lasting.messaging.check().problems == ()
    mail = lasting.crash().queue("mail")
    stats = mail.stats()
    assert (stats.popped, stats.committed, stats.rolled_back) == (8, 1, 1)
    assert (stats.in_work, stats.depth) == (6, 1)
    with pytest.raises(LeaseLost):
        mail._access.queues.commit_job("mail", far[6].id, far[5].lease)
    ended_by(mail, far[5])
    lasting.clock.advance_s(61)
    again = mail.pop_many(9)
    assert {(job.payload, job.deliveries) for job in again} == {
        (b"m%d" % number, 2) for number in (0, 1, 3, 6, 7)
    }
    ended_by(mail, far[4])
    for job in again:
        job.commit()
    stats = mail.stats()
    assert (stats.committed, stats.expired_leases) == (8, 4)
    mail.push(b"behind all other rows")
    assert not lasting.table.scan(LEASE)


def ended_by(queue: Queue, popped: Popped) -> None:
    """Commits a job by its names."""
    queue._access.queues.commit_job("mail", popped.id, popped.lease)


def test_a_crash_behind_a_commit_loses_no_end_of_many(lasting: Site) -> None:
    mail = made(lasting.messaging)
    mail.push_all(numbered(9))
    coordinator = lasting.messaging.coordinator
    done, open_one = coordinator.start_short(), coordinator.start_short()
    for tx, limit in ((done, 5), (open_one, 9)):
        mail._access.queues.pop("mail", limit=limit, popper="p", transaction=tx)
    commit(lasting.messaging, done)
    mail = lasting.crash().queue("mail")
    stats = mail.stats()
    assert (stats.popped, stats.committed, stats.expired_leases) == (9, 5, 4)
    assert (stats.in_work, stats.depth) == (0, 4)
    assert [job.deliveries for job in mail.pop_many(9)] == [2] * 4


def test_the_row_of_many_leases_has_stretches_of_items() -> None:
    places = [(5, 65_534), (5, 65_535), (6, 0), (6, 2), (9, 0), (9, 1)]
    items = tuple(MessageId.of_row(row_key(*place)) for place in places)
    row = LeaseRow(7, 1, 60_000, -1, False, 9, "popper", "", items)
    data = row.to_bytes()
    assert LeaseRow.from_bytes(data) == row
    assert len(data) < len(LeaseRow.from_bytes(data).popper) + 80
    damaged = data[: data.index(b"popper") - 1]
    with pytest.raises(StoreCorrupted):
        LeaseRow.from_bytes(damaged)
