"""Queues for an event loop: the same steps, and nothing where they would wait."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import txaware
from coordinator.errors import NotWritten
from tests.support.background import Gate
from tests.support.concurrency import PATIENCE_S
from tests.support.messagings import Site
from tests.support.queues import popped, taken
from txaware.errors import BadRequest, LeaseLost, Unavailable
from txaware.messaging import Messaging
from txaware.model.queues import LeasedJob, Popped
from txaware.queue import Queue
from txaware.service.queue.event_loop_queues import EventLoopQueues
from txaware.service.queue.local_queues import LocalQueues
from txaware.service.queue.work_queue import MOST_PIPES, WorkQueue
from txaware.service.wakeups import WouldWait
from txaware.store.batch_writer import BatchWriter

pytestmark = pytest.mark.in_process
MAIL = "mail"


class Loop:
    """An event loop's view of one queue; each call waits until it is told the end."""

    def __init__(self, messaging: Messaging) -> None:
        queues = messaging._queue_service
        assert isinstance(queues, LocalQueues)
        self.queues = EventLoopQueues(queues)
        self.work: Callable[[], WorkQueue] = lambda: queues._queue(MAIL)

    def told(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """What a call returned, once its end is told; raises the error of that."""
        errors: list[Unavailable | None] = []
        is_told = threading.Event()

        def on_written(error: Unavailable | None) -> None:
            errors.append(error)
            is_told.set()

        found = call(MAIL, *args, on_written=on_written, **named)
        assert is_told.wait(PATIENCE_S)
        if errors[0] is not None:
            raise errors[0]
        return found

    def push(self, *payloads: bytes, **options: Any) -> None:
        self.told(self.queues.push, payloads, **options)

    def pop(self) -> Popped:
        (job,) = self.told(self.queues.pop, popper="loop").popped
        found: Popped = job
        return found

    def finds_nothing(self) -> bool:
        """True where a look has come to the end and found nothing."""
        return not self.queues.pop(MAIL, refused).popped

    def would_wait(self) -> bool:
        """True where a pop is left to a thread."""
        with suppress(WouldWait):
            self.queues.pop(MAIL, refused)
            return False
        return True


def working(messaging: Messaging, **settings: Any) -> tuple[Loop, Queue[bytes]]:
    """A queue that was looked at, and an event loop's view of it."""
    messaging.create_queue(MAIL, **settings)
    loop = Loop(messaging)
    loop.work()
    return loop, messaging.queue(MAIL)


@pytest.fixture
def loop(site: Site) -> Loop:
    found, _ = working(site.messaging)
    return found


def test_a_job_is_pushed_popped_and_ended_in_each_way(site: Site, loop: Loop) -> None:
    mail = site.messaging.queue("mail")
    assert loop.finds_nothing()
    loop.push(b"a", b"b", pusher="p", priority=1)
    first = loop.pop()
    assert (first.payload, first.deliveries) == (b"a", 1)
    until_ms = loop.told(loop.queues.extend_job, first.id, first.lease, 100)
    assert until_ms == site.clock() + 100_000
    loop.told(loop.queues.commit_job, first.id, first.lease)
    with pytest.raises(LeaseLost, match="was committed"):
        loop.told(loop.queues.commit_job, first.id, first.lease)
    second = loop.pop()
    loop.told(loop.queues.rollback_job, second.id, second.lease, error="no")
    again = popped(mail)
    assert (again.payload, again.deliveries) == (b"b", 2)
    again.commit()
    stats = mail.stats()
    counts = (stats.pushed, stats.popped, stats.committed, stats.rolled_back)
    assert counts == (2, 3, 2, 1)
    assert (stats.depth, stats.in_work) == (0, 0)


def test_wrong_arguments_are_refused_as_everywhere(loop: Loop) -> None:
    queues = loop.queues
    for wrong in (
        lambda: queues.push(MAIL, [], print),
        lambda: queues.push(MAIL, [b"a"], print, priority=10),
        lambda: queues.commit_job(MAIL, "x", "y", on_written=print),
        lambda: queues.rollback_job(MAIL, "x", "y", on_written=print, delay_s=-1),
        lambda: queues.extend_job(MAIL, "x", "y", 0, on_written=print),
    ):
        with pytest.raises(BadRequest):
            wrong()
    loop.work().state.is_gone = True
    with pytest.raises(WouldWait):  # a thread looks whether it is there anew
        queues.pop(MAIL, print)


def refused(_: object) -> None:
    raise AssertionError("nothing was begun")


def test_no_row_is_read_for_what_was_pushed_popped_and_ended_here(
    site: Site, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("an event loop reads nothing")

    loop.push(b"first")
    kind = type(site.table)
    monkeypatch.setattr(kind, "get", read)
    monkeypatch.setattr(kind, "scan", read)
    for number in range(205):  # two pipes are filled, drained and dropped meanwhile
        loop.push(b"%d" % number)
        job = loop.pop()
        loop.told(loop.queues.extend_job, job.id, job.lease, 60)
        loop.told(loop.queues.commit_job, job.id, job.lease)
    monkeypatch.undo()
    stats = site.messaging.queue("mail").stats()
    assert (stats.committed, stats.depth, stats.pipes) == (205, 1, 1)


def test_a_lock_that_another_thread_has_is_not_waited_for(loop: Loop) -> None:
    loop.push(b"a")
    job, queues, gate = loop.pop(), loop.queues, Gate()

    def hold() -> None:
        with loop.work().state.lock:
            gate(lambda: None)

    holder = threading.Thread(target=hold)
    holder.start()
    assert gate.came.wait(PATIENCE_S)
    given = (MAIL, job.id, job.lease)
    for call in (
        lambda: queues.push(MAIL, [b"b"], refused),
        lambda: queues.pop(MAIL, refused),
        lambda: queues.commit_job(*given, on_written=refused),
        lambda: queues.rollback_job(*given, on_written=refused),
        lambda: queues.extend_job(*given, 5, on_written=refused),
    ):
        with pytest.raises(WouldWait):
            call()
    gate.open.set()
    holder.join(PATIENCE_S)
    loop.told(queues.commit_job, job.id, job.lease)


def test_what_would_be_read_or_asked_for_is_left_to_a_thread(
    site: Site, loop: Loop
) -> None:
    mail = site.messaging.queue("mail")
    with site.messaging.transaction():
        mail.push(b"in a transaction")
    assert loop.would_wait()
    assert taken(mail) == [b"in a transaction"]
    mail.push(b"again")
    popped(mail).rollback()
    assert loop.would_wait()
    assert taken(mail) == [b"again"]
    for number in range(MOST_PIPES + 1):
        loop.push(b"a", pusher=str(number))
    assert loop.would_wait()
    assert popped(mail).payload == b"a"


def test_what_came_back_has_its_turn_though_others_keep_coming(
    site: Site, loop: Loop
) -> None:
    mail = site.messaging.queue("mail")
    mail.push(b"back")
    popped(mail).rollback()
    found: list[bytes] = []
    for _ in range(5):
        loop.push(b"new")
        try:
            found.append(loop.pop().payload)
        except WouldWait:
            found.append(popped(mail).payload)
    assert b"back" in found


def test_what_goes_to_the_dead_letters_is_left_to_a_thread(site: Site) -> None:
    messaging = site.messaging
    loop, mail = working(messaging, max_deliveries=1)
    loop.push(b"a", b"b")
    first = loop.pop()
    with pytest.raises(WouldWait):
        loop.queues.rollback_job(MAIL, first.id, first.lease, on_written=refused)
    loop.told(loop.queues.extend_job, first.id, first.lease, 1)
    site.clock.now_ms += 2_000
    assert loop.would_wait()
    assert popped(mail).payload == b"b"
    assert taken(messaging.queue("mail-dead")) == [b"a"]
    assert mail.stats().rolled_back == 0


def test_the_next_item_of_a_key_is_freed_by_a_thread(site: Site) -> None:
    messaging = site.messaging
    loop, mail = working(messaging, order="key")
    mail.push_all([txaware.Outgoing(b"a", key=b"k"), txaware.Outgoing(b"b", key=b"k")])
    job = popped(mail)
    with pytest.raises(WouldWait):
        loop.queues.commit_job(MAIL, job.id, job._popped.lease, on_written=refused)
    job.commit()
    assert taken(mail) == [b"b"]


def test_a_pop_commits_the_job_before_in_one_batch(site: Site, loop: Loop) -> None:
    loop.push(b"a", b"b")
    first = loop.pop()
    (second,) = loop.told(loop.queues.pop, commits=leased(first)).popped
    assert second.payload == b"b"
    assert loop.told(loop.queues.pop, commits=leased(second)).popped == []
    with pytest.raises(LeaseLost):
        loop.queues.pop(MAIL, refused, commits=leased(second))
    stats = site.messaging.queue("mail").stats()
    assert (stats.committed, stats.popped, stats.in_work) == (2, 2, 0)


def test_a_pop_that_would_wait_commits_nothing(site: Site, loop: Loop) -> None:
    mail = site.messaging.queue("mail")
    loop.push(b"a")
    job = loop.pop()
    with site.messaging.transaction():
        mail.push(b"in a transaction")
    with pytest.raises(WouldWait):
        loop.queues.pop(MAIL, refused, commits=leased(job))
    assert (mail.stats().committed, mail.stats().in_work) == (0, 1)
    loop.told(loop.queues.commit_job, job.id, job.lease)
    assert mail.stats().committed == 1


def test_a_pop_and_the_commit_in_it_are_taken_back_together(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = lasting.messaging
    loop, mail = working(messaging)
    loop.push(b"a", b"b")
    job = loop.pop()
    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "write", no_space)
        with pytest.raises(NotWritten):
            loop.told(loop.queues.pop, commits=leased(job))
    stats = mail.stats()
    assert (stats.committed, stats.in_work, stats.depth) == (0, 1, 1)
    assert stats.popped == 1
    loop.told(loop.queues.commit_job, job.id, job.lease)
    assert taken(lasting.crash().queue("mail")) == [b"b"]


def leased(job: Popped) -> LeasedJob:
    return LeasedJob(job.id, job.lease)


def no_space(*_: object) -> None:
    raise NotWritten("no space left on device")


def test_a_pop_or_an_end_that_is_not_written_is_taken_back(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = lasting.messaging
    loop, mail = working(messaging)
    loop.push(b"a", b"b")
    job = loop.pop()

    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "write", no_space)
        with pytest.raises(NotWritten):
            loop.told(loop.queues.commit_job, job.id, job.lease)
        with pytest.raises(NotWritten):
            loop.push(b"c")
    stats = mail.stats()
    assert (stats.committed, stats.in_work, stats.depth) == (0, 1, 1)
    loop.told(loop.queues.commit_job, job.id, job.lease)
    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "write", no_space)
        with suppress(WouldWait), pytest.raises(NotWritten):
            loop.pop()
    assert taken(mail) == [b"b"]


def test_a_rollback_that_is_not_written_is_written_by_the_next_step(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = lasting.messaging
    loop, _ = working(messaging)
    loop.push(b"a")
    job = loop.pop()

    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "write", no_space)
        with pytest.raises(NotWritten):
            loop.told(loop.queues.rollback_job, job.id, job.lease)
    messaging.queue("mail").stats()  # takes a step, which waits for no disk
    messaging.queue("mail").push(b"b")  # is on disk behind it
    assert sorted(taken(lasting.crash().queue("mail"))) == [b"a", b"b"]
