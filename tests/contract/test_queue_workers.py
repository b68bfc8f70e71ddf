"""Workers: the loops that hand the jobs of a queue to a handler."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.messagings import Site
from tests.support.queues import numbered, waiting
from txaware.errors import BadRequest, MisusedTransaction, QueueNotFound, Unavailable
from txaware.messaging import MessagingTransaction
from txaware.model.queues import QueueDescriptor
from txaware.queue import Job, Queue, Worker
from txaware.queue.handling import HandledJob
from txaware.queue.worker_options import WorkerOptions

PATIENCE_S = 20


def working(queue: Queue, handler: Callable[..., object], **options: Any) -> Worker:
    """A worker that ends soon after it was told."""
    return queue.worker(handler, **{"idle_wait_s": 0.02, **options})


@contextmanager
def running(worker: Worker) -> Iterator[Worker]:
    """The worker at work in a thread; its error, if any, is raised at the end."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(worker.run)
        try:
            yield worker
        finally:
            worker.close()
        ended.result(PATIENCE_S)


def run_until(worker: Worker, is_done: Callable[[], bool]) -> None:
    with running(worker):
        assert until(is_done, timeout_s=PATIENCE_S), worker.metrics()


def test_each_job_is_handled_once_and_committed(mail: Queue) -> None:
    handled: list[bytes] = []
    mail.push_all(numbered(50))
    worker = working(mail, lambda job: handled.append(job.payload), threads=4)
    run_until(worker, lambda: worker.metrics().done == 50)
    assert sorted(handled) == sorted(numbered(50))
    stats = mail.stats()
    assert (stats.committed, stats.depth, stats.in_work) == (50, 0, 0)
    figures = worker.metrics()
    assert (figures.popped, figures.failed, figures.in_work) == (50, 0, 0)


class NotedPops:
    """A queue that notes which pops commit a job; some of those fail first."""

    def __init__(self, queue: Queue, *, fails: int = 0) -> None:
        self._queue, self._fails = queue, fails
        self.commits: list[bool] = []

    @property
    def descriptor(self) -> QueueDescriptor:
        return self._queue.descriptor

    def pop(self, wait_s: float = 0, *, commits: Job | None = None) -> Job | None:
        self.commits.append(commits is not None)
        if commits is not None and self._fails:
            self._fails -= 1
            raise Unavailable("the answer was lost")
        return self._queue.pop(wait_s, commits=commits)


def test_the_pop_of_the_next_job_commits_the_one_before(mail: Queue) -> None:
    mail.push_all(numbered(3))
    worker = working(mail, lambda _: None)
    pops = worker._queue = NotedPops(mail)
    run_until(worker, lambda: worker.metrics().done == 3)
    assert pops.commits[:4] == [False, True, True, True]
    assert not any(pops.commits[4:])
    assert mail.stats().committed == 3


def test_a_worker_that_stops_commits_its_last_job(mail: Queue) -> None:
    stop = threading.Event()
    mail.push_all(numbered(2))
    worker = working(mail, lambda _: stop.set())
    pops = worker._queue = NotedPops(mail)
    worker.run(stop)
    assert pops.commits == [False]
    assert (worker.metrics().done, worker.metrics().in_work) == (1, 0)
    assert (mail.stats().committed, mail.stats().in_work) == (1, 0)


def test_a_job_is_committed_by_itself_where_the_next_pop_fails(mail: Queue) -> None:
    mail.push_all(numbered(3))
    worker = working(mail, lambda _: None)
    worker._queue = NotedPops(mail, fails=2)
    run_until(worker, lambda: worker.metrics().done == 3)
    assert (worker.metrics().failed, worker.metrics().lost) == (0, 0)
    assert (mail.stats().committed, mail.stats().popped) == (3, 3)


def test_a_job_whose_lease_ended_is_lost_to_the_next_pop(
    mail: Queue, site: Site
) -> None:
    mail.push_all(numbered(2))
    worker = working(mail, lambda job: site.clock.advance_s(60 * (job.deliveries < 2)))
    run_until(worker, lambda: worker.metrics().done == 2)
    assert worker.metrics().lost == mail.stats().expired_leases
    assert mail.stats().committed == 2


def test_a_job_that_fails_comes_again_after_a_pause(mail: Queue, site: Site) -> None:
    tries: list[int] = []

    def handler(job: Job) -> None:
        tries.append(job.deliveries)
        if job.deliveries < 3:
            raise ValueError("not yet")

    mail.push(b"a")
    worker = working(mail, handler, first_pause_s=10)
    with running(worker):
        for failures in (1, 2):
            assert until(
                lambda: worker.metrics().failed == failures,  # noqa: B023
                timeout_s=PATIENCE_S,
            )
            assert mail.stats().delayed == 1
            site.clock.advance_s(10 * failures)
        assert until(lambda: worker.metrics().done == 1, timeout_s=PATIENCE_S)
    assert tries == [1, 2, 3]
    assert mail.stats().rolled_back == 2


def test_pauses_double_up_to_the_longest_and_differ() -> None:
    options = WorkerOptions(first_pause_s=1, longest_pause_s=5)
    most = [options.pause_s(failures, random=lambda: 1) for failures in (1, 2, 3, 4)]
    least = [options.pause_s(failures, random=lambda: 0) for failures in (1, 2, 3, 4)]
    assert (most, least) == ([1, 2, 4, 5], [0.5, 1, 2, 2.5])


def test_what_fails_too_often_is_a_dead_letter_with_its_error(site: Site) -> None:
    """An error may quote what no header takes as text."""
    site.messaging.create_queue("mail", max_deliveries=1)
    queue = site.messaging.queue("mail")
    queue.push(b"bad")

    def handler(job: Job) -> None:
        raise ValueError("cannot be \0")

    worker = working(queue, handler)
    run_until(worker, lambda: worker.metrics().failed == 1)
    [letter] = site.messaging.queue("mail-dead").peek()
    assert letter.headers["error"] == rb"ValueError: cannot be \x00"


def test_in_a_transaction_all_of_a_job_happens_once(mail: Queue, site: Site) -> None:
    messaging = site.messaging
    messaging.create_queue("sent")
    sent, table, failures = messaging.queue("sent"), messaging.table("log"), [b"m1"]

    def handler(job: Job, tx: MessagingTransaction) -> None:
        assert tx.transaction.transaction_id > 0
        sent.push(job.payload)
        table.put(job.payload, b"done")
        if job.payload in failures:
            failures.remove(job.payload)
            raise ValueError("once")

    mail.push_all(numbered(3))
    worker = working(mail, handler, transaction=True, first_pause_s=0.001)
    with running(worker):
        assert until(lambda: worker.metrics().failed == 1, timeout_s=PATIENCE_S)
        site.clock.advance_s(1)
        assert until(lambda: worker.metrics().done == 3, timeout_s=PATIENCE_S)
    assert sorted(waiting(sent)) == numbered(3)
    assert [key for key, _ in table.scan()] == numbered(3)
    stats = mail.stats()
    assert (stats.committed, stats.rolled_back, stats.in_work) == (3, 1, 0)


def test_a_conflict_has_the_job_come_again_at_once(mail: Queue, site: Site) -> None:
    table, outside = site.messaging.table("log"), site.messaging.table("log")
    interfered: list[int] = []

    def handler(job: Job, _: object) -> None:
        table.put(b"row", job.payload)
        if not interfered:
            interfered.append(1)
            ThreadPoolExecutor(1).submit(outside.put, b"row", b"other").result()

    mail.push(b"a")
    worker = working(mail, handler, transaction=True)
    run_until(worker, lambda: worker.metrics().done == 1)
    assert (worker.metrics().conflicts, worker.metrics().failed) == (1, 0)
    assert table.get(b"row") == b"a"


@pytest.mark.parametrize("transaction", [False, True])
def test_a_handler_may_be_a_coroutine(mail: Queue, *, transaction: bool) -> None:
    handled: list[bytes] = []

    async def handler(job: Job, *_: object) -> None:
        await asyncio.sleep(0)
        handled.append(job.payload)

    mail.push_all(numbered(5))
    worker = working(mail, handler, threads=2, transaction=transaction)
    run_until(worker, lambda: worker.metrics().done == 5)
    assert sorted(handled) == numbered(5)
    assert mail.stats().committed == 5


def test_a_coroutine_is_cancelled_at_its_time_limit(mail: Queue) -> None:
    cancelled: list[bool] = []

    async def handler(job: Job) -> None:
        if job.deliveries == 1:
            try:
                await asyncio.sleep(PATIENCE_S)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

    mail.push(b"a")
    worker = working(mail, handler, timeout_s=0.2)
    run_until(worker, lambda: worker.metrics().popped == 1 and bool(cancelled))
    assert cancelled == [True]
    assert mail.stats().depth == 1


def test_the_lease_is_extended_while_the_handler_runs(mail: Queue, site: Site) -> None:
    mail.push(b"a")
    job = mail.pop()
    assert job is not None
    handled = HandledJob(job)
    for _ in range(5):
        site.clock.advance_s(20)
        handled.extend(30)
    handled.end()
    assert mail.stats().committed == 1
    assert mail.stats().expired_leases == 0


def test_a_handler_that_takes_too_long_loses_its_job(mail: Queue) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)
    done: list[bytes] = []

    def handler(job: Job) -> None:
        begun.release()
        if job.payload == b"a" and job.deliveries == 1:
            go_on.wait(PATIENCE_S)
        done.append(job.payload)

    mail.push(b"a")
    worker = working(mail, handler, timeout_s=0.05, first_pause_s=0.001)
    try:
        with running(worker):
            assert begun.acquire(timeout=PATIENCE_S)
            assert until(lambda: worker.metrics().stuck == 1, timeout_s=PATIENCE_S)
            mail.push(b"b")  # somebody else of the crew has it
            assert begun.acquire(timeout=PATIENCE_S)
            assert until(lambda: b"b" in done, timeout_s=PATIENCE_S)
        assert worker.metrics().timed_out == 1
    finally:
        go_on.set()
    assert until(lambda: worker.metrics().stuck == 0, timeout_s=PATIENCE_S)
    assert until(lambda: b"a" in done, timeout_s=PATIENCE_S)
    assert mail.stats().committed <= 2 and mail.stats().rolled_back == 1  # noqa: PT018


def test_a_worker_whose_lease_was_lost_ends_nothing(mail: Queue, site: Site) -> None:
    mail.push(b"a")

    def handler(job: Job) -> None:
        if job.deliveries == 1:
            site.clock.advance_s(60)
            other = mail.pop()
            assert other is not None
            other.commit()

    worker = working(mail, handler)
    run_until(worker, lambda: worker.metrics().lost == 1)
    assert mail.stats().committed == 1


def test_close_waits_for_the_handlers_at_work(mail: Queue) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handler(_: Job) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    mail.push_all(numbered(2))
    worker = working(mail, handler, threads=1)
    with ThreadPoolExecutor(2) as pool:
        stop = threading.Event()
        ended = pool.submit(worker.run, stop)
        assert begun.wait(PATIENCE_S)
        closed = pool.submit(worker.close)
        assert stop.wait(PATIENCE_S)
        assert not closed.done()
        go_on.set()
        closed.result(PATIENCE_S)
        ended.result(PATIENCE_S)
    assert mail.stats().committed == 1
    assert mail.stats().depth == 1


def test_a_failure_is_logged_with_its_traceback_and_what_becomes_of_the_job(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.messaging.create_queue("mail", max_deliveries=2)
    site.messaging.create_queue("ever")
    for name, deliveries in (("mail", 2), ("ever", 1)):
        queue = site.messaging.queue(name)
        queue.push(b"a")
        with running(working(queue, fails, first_pause_s=0.001)) as worker:
            for number in range(1, deliveries + 1):
                assert until(
                    lambda: worker.metrics().failed >= number,  # noqa: B023
                    timeout_s=PATIENCE_S,
                )
                site.clock.advance_s(1)
    first, last, ever, *_ = [
        record for record in caplog.records if "failed: " in record.getMessage()
    ]
    assert "failed: that was delivery 1 of 2, and it comes again in " in first.message
    assert "that was delivery 2 of 2, and it goes to mail-dead" in last.message
    assert "failed: it comes again in 0.0 s" in ever.message
    for record in (first, last, ever):
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError


def fails(_: Job) -> None:
    raise ZeroDivisionError


def test_an_idle_worker_looks_often_whether_it_is_to_stop(
    mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def popping(self: Queue, wait_s: float = 0) -> None:
        waits.append(wait_s)

    monkeypatch.setattr(Queue, "pop", popping)
    with running(mail.worker(fails)):
        assert until(lambda: bool(waits), timeout_s=PATIENCE_S)
    assert max(waits) <= 0.2


def test_a_store_that_is_away_is_asked_again(
    mail: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [Unavailable("away"), Unavailable("away")]
    pop = Queue.pop

    def popping(self: Queue, *args: Any, **options: Any) -> Job | None:
        if errors:
            raise errors.pop()
        return pop(self, *args, **options)

    monkeypatch.setattr(Queue, "pop", popping)
    mail.push(b"a")
    worker = working(mail, lambda _: None, first_pause_s=0.001)
    run_until(worker, lambda: worker.metrics().done == 1)


def test_what_a_handler_ended_itself_stays_so(mail: Queue) -> None:
    def handler(job: Job) -> None:
        if job.payload == b"m0":
            job.commit()
        else:
            job.rollback(60)

    mail.push_all(numbered(2))
    worker = working(mail, handler)
    run_until(worker, lambda: worker.metrics().done == 2)
    stats = mail.stats()
    assert (stats.committed, stats.rolled_back, stats.depth) == (1, 1, 1)


def test_wrong_calls_are_refused(mail: Queue, site: Site) -> None:
    wrong: list[dict[str, Any]] = [
        {"threads": 0},
        {"timeout_s": -1},
        {"first_pause_s": 0},
        {"participants": [mail]},
        {"participants": [site.messaging.table("t")]},
    ]
    for options in wrong:
        with pytest.raises((BadRequest, TypeError)):
            mail.worker(lambda _: None, **options)
    not_callable: Any = 5
    with pytest.raises(BadRequest, match="5 is no function to call"):
        mail.worker(not_callable)
    worker = working(mail, lambda _: None)
    with (
        site.messaging.transaction(),
        pytest.raises(MisusedTransaction, match="of its own"),
    ):
        worker.run()
    worker.close()
    with pytest.raises(MisusedTransaction, match="closed"):
        worker.run()
    site.messaging.delete_queue("mail")
    with pytest.raises(QueueNotFound):
        mail.worker(lambda _: None).run()
