"""Items of a queue as people see them: by their state, with who has them and why."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.concurrency import until
from tests.support.messagings import Site
from tests.support.queues import numbered, popped
from txaware.errors import BadRequest
from txaware.model.queues import QueueItem
from txaware.queue import Job, Queue


def of(items: list[QueueItem]) -> list[bytes]:
    return [item.payload for item in items]


def _goes_on(site: Site, more: bool) -> bool:
    """Has a pause between two tries pass."""
    site.clock.advance_s(1)
    return not more


def test_items_are_shown_by_their_state_and_none_is_popped(
    mail: Queue, site: Site
) -> None:
    mail.push_all(numbered(4))
    mail.push(b"later", delay_s=60)
    mail.push(b"soon", delay_s=30)
    job = mail.popper(name="host-7").pop()
    assert job is not None
    popped(mail).rollback(90, error="no stamp")
    assert of(mail.browse()) == [b"m2", b"m3"]
    assert of(mail.browse("waiting", 1)) == [b"m2"]
    [work] = mail.browse("in_work")
    assert (work.id, work.payload, work.popper) == (job.id, b"m0", "host-7")
    assert (work.deliveries, work.transaction) == (1, None)
    assert work.since_ms is not None
    assert work.until_ms is not None
    assert work.until_ms > work.since_ms >= work.pushed_ms
    delayed = mail.browse("delayed")
    assert of(delayed) == [b"soon", b"later", b"m1"]
    assert [(one.deliveries, one.error) for one in delayed] == [
        *((0, ""), (0, "")),
        (1, "no stamp"),
    ]
    dues_ms = [one.due_ms for one in delayed if one.due_ms is not None]
    assert len(dues_ms) == 3
    assert dues_ms == sorted(dues_ms)
    assert mail.browse("dead") == []
    stats = mail.stats()
    assert (stats.in_work, stats.delayed, stats.depth) == (1, 3, 5)
    site.clock.advance_s(100)
    assert of(mail.browse("delayed")) == []
    assert {*of(mail.browse())} == {*numbered(4), b"later", b"soon"}


def test_a_job_of_a_transaction_is_in_work_until_its_end(
    mail: Queue, site: Site
) -> None:
    mail.push(b"a")
    with site.messaging.transaction() as tx:
        popped(mail)
        [work] = mail.browse("in_work")
        assert work.transaction == tx.transaction.transaction_id
        assert work.until_ms is None
    assert mail.browse("in_work") == []


def test_a_dead_letter_is_shown_with_its_reason_and_where_it_was_raised(
    site: Site,
) -> None:
    messaging = site.messaging
    messaging.create_queue("mail", max_deliveries=2)
    messaging.create_queue("post", max_deliveries=1, dead_letter_queue="mail-dead")
    mail, post = messaging.queue("mail"), messaging.queue("post")
    mail.push(b"poison", key=b"k", headers={"error": b"mine"})
    post.push(b"other")
    popped(post).rollback(error="no stamp")

    def handler(job: Job) -> None:
        raise LookupError("no such address")

    worker = mail.worker(handler, idle_wait_s=0.02)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(worker.run)
        assert until(lambda: _goes_on(site, worker.metrics().failed < 2), timeout_s=20)
        worker.close()
        ended.result(20)
    [dead] = mail.browse("dead")
    assert (dead.payload, dead.key) == (b"poison", b"k")
    assert dead.headers == {"error": b"mine"}
    assert dead.deliveries == 2
    assert dead.error == "LookupError: no such address"
    assert dead.traceback.startswith("Traceback (most recent call last):")
    assert "in handler" in dead.traceback
    assert "handling.py" not in dead.traceback
    [letter] = post.browse("dead")
    assert (letter.error, letter.traceback) == ("no stamp", "")
    assert {*of(messaging.queue("mail-dead").browse())} == {b"poison", b"other"}
    assert mail.redrive() == 1
    [again] = mail.browse()
    assert (again.headers, again.error) == ({"error": b"mine"}, "")


def test_large_items_come_as_far_as_there_is_room(mail: Queue) -> None:
    for _ in range(4):
        mail.push(bytes(3 << 20))
    assert len(mail.browse("waiting", 10)) == 2


@pytest.mark.parametrize("limit", [0, 10_001, True])
def test_a_wrong_limit_is_refused(mail: Queue, limit: int) -> None:
    with pytest.raises(BadRequest, match="limit is a whole number from 1 to 10000"):
        mail.browse("waiting", limit)


def test_a_state_that_there_is_not_is_refused(mail: Queue) -> None:
    with pytest.raises(BadRequest, match="one of waiting, in_work, delayed, dead"):
        mail.browse("lost")  # type: ignore[arg-type]


def test_keys_that_are_busy_wait(site: Site) -> None:
    """Behind another one of its key an item waits, and is nobody's."""
    site.messaging.create_queue("keyed", order="key")
    queue = site.messaging.queue("keyed")
    for payload in numbered(3):
        queue.push(payload, key=b"k")
    popped(queue)
    assert queue.pop() is None
    assert of(queue.browse("in_work")) == [b"m0"]
    assert of(queue.browse()) == [b"m1", b"m2"]
