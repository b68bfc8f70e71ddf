"""Items that are due at a time, and what many push and is pushed once."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import txaware
from tests.support.concurrency import in_loop
from tests.support.http_served import served
from tests.support.messagings import Site
from txaware import Messaging, participants
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import BadRequest, TransactionConflict
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.sqlite_outbox import SqliteOutbox
from txaware.queue import Queue

DAY_S = 86_400


def now(site: Site) -> datetime:
    return datetime.fromtimestamp(site.clock() / 1000, UTC)


def popped(queue: Queue) -> list[bytes]:
    found = []
    while (job := queue.pop()) is not None:
        found.append(job.payload)
        job.commit()
    return found


def timers(site: Site) -> Queue:
    site.messaging.create_queue("timers", exist_ok=True)
    return site.messaging.queue("timers")


def test_an_item_is_popped_at_its_time_and_not_before(site: Site) -> None:
    queue, begin = timers(site), now(site)
    queue.push(b"far", at=begin + timedelta(days=3 * 365))
    queue.push(b"soon", at=(begin + timedelta(hours=1)).astimezone(timezone.min))
    queue.push_all([b"past", b"as well"], at=begin - timedelta(days=1))
    assert popped(queue) == [b"past", b"as well"]
    site.clock.advance_s(3599)
    assert popped(queue) == []
    site.clock.advance_s(1)
    assert popped(queue) == [b"soon"]
    site.clock.advance_s(3 * 365 * DAY_S - 3601)
    assert popped(queue) == []
    site.clock.advance_s(1)
    assert popped(queue) == [b"far"]


def test_a_time_outlives_the_process(lasting: Site) -> None:
    timers(lasting).push(b"a", at=now(lasting) + timedelta(days=30))
    lasting.crash()
    assert popped(timers(lasting)) == []
    lasting.clock.advance_s(30 * DAY_S)
    assert popped(timers(lasting)) == [b"a"]


def test_a_time_commits_with_its_block(site: Site) -> None:
    queue, at = timers(site), now(site) + timedelta(seconds=60)
    with site.messaging.transaction():
        queue.push(b"a", at=at)
    with pytest.raises(RuntimeError, match="not now"), site.messaging.transaction():
        failing(queue, at)
    site.clock.advance_s(60)
    assert popped(queue) == [b"a"]


def failing(queue: Queue, at: datetime) -> None:
    queue.push_once("nightly", b"never", at=at)
    raise RuntimeError("not now")


def test_a_time_has_a_zone_and_no_delay_beside_it(site: Site) -> None:
    queue = timers(site)
    with pytest.raises(BadRequest, match="a datetime with a time zone"):
        queue.push(b"a", at=datetime(2030, 1, 1))
    with pytest.raises(BadRequest, match="a delay or a time"):
        queue.push(b"a", at=now(site), delay_s=1)
    with pytest.raises(BadRequest, match="at most 315360000"):
        queue.push(b"a", at=now(site) + timedelta(days=11 * 365))
    with pytest.raises(BadRequest, match="a datetime with a time zone"):
        queue.push_once("nightly", b"a", at="soon")  # type: ignore[arg-type]


def test_what_is_due_at_a_time_is_pushed_once(site: Site) -> None:
    queue, at = timers(site), now(site) + timedelta(seconds=60)
    assert queue.push_once("nightly", b"1", at=at)
    assert not queue.push_once("nightly", b"1 again", at=at)
    assert not queue.push_once("nightly", b"late", at=at - timedelta(seconds=1))
    assert queue.push_once("weekly", b"of another name", at=at)
    assert queue.push_once("nightly", b"2", at=at + timedelta(seconds=60))
    site.clock.advance_s(120)
    assert sorted(popped(queue)) == [b"1", b"2", b"of another name"]


def test_a_push_that_was_rolled_back_can_be_done(site: Site) -> None:
    queue, at = timers(site), now(site) + timedelta(seconds=60)
    with pytest.raises(RuntimeError), site.messaging.transaction():
        failing(queue, at)
    assert queue.push_once("nightly", b"a", at=at)
    site.clock.advance_s(60)
    assert popped(queue) == [b"a"]


def test_a_push_that_was_refused_notes_no_time(site: Site) -> None:
    queue, at = timers(site), now(site) + timedelta(seconds=60)
    with site.messaging.transaction():
        with pytest.raises(BadRequest, match="a priority is from 0 to 9"):
            queue.push_once("nightly", b"a", at=at, priority=10)
        assert queue.push_once("nightly", b"b", at=at)
    site.clock.advance_s(60)
    assert popped(queue) == [b"b"]


def test_of_two_blocks_that_push_at_once_one_commits(site: Site) -> None:
    messaging, at = site.messaging, now(site) + timedelta(seconds=60)
    queue, entered, go_on = timers(site), threading.Event(), threading.Event()

    def push() -> bool:
        with messaging.transaction():
            is_first = queue.push_once("nightly", b"a", at=at)
            entered.set()
            go_on.wait(30)
        return is_first

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(push)
        assert entered.wait(30)
        assert queue.push_once("nightly", b"b", at=at)
        go_on.set()
        with pytest.raises(TransactionConflict):
            other.result(30)
    site.clock.advance_s(60)
    assert popped(queue) == [b"b"]


def test_many_that_push_a_time_push_it_once(site: Site) -> None:
    queue, begin = timers(site), now(site)
    times = [begin + timedelta(seconds=10 * number) for number in range(1, 6)]

    def push(_: int) -> int:
        return sum(queue.push_once("tick", str(at).encode(), at=at) for at in times)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(push, range(4))) == len(times)
    site.clock.advance_s(100)
    assert popped(queue) == [str(at).encode() for at in times]


def test_a_job_pushes_the_next_time_with_its_own_end(site: Site) -> None:
    queue, messaging, at = timers(site), site.messaging, now(site)
    queue.push_once("tick", b"0", at=at)
    for number in range(3):
        with messaging.transaction():
            job = queue.pop()
            assert job is not None
            assert job.payload == b"%d" % number
            at += timedelta(seconds=60)
            assert queue.push_once("tick", b"%d" % (number + 1), at=at)
        site.clock.advance_s(60)


@in_loop
async def test_a_time_is_awaited() -> None:
    with served() as store:
        store.messaging.create_queue("timers")
        async with connect_async(store.url) as messaging:
            queue = await messaging.queue("timers")
            later = datetime.now(UTC) + timedelta(hours=1)
            await queue.push(b"far", at=later)
            assert await queue.push_once("nightly", b"a", at=later)
            assert not await queue.push_once("nightly", b"a", at=later)
            async with messaging.transaction():
                assert not await queue.push_once("nightly", b"a", at=later)
            assert (await queue.stats()).delayed == 2


def test_an_outbox_carries_a_time(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with txaware.connect("memory:") as messaging:
        queue = opened(messaging)
        later = datetime.now(UTC) + timedelta(hours=1)
        with closing(sqlite3.connect(path)) as connection, connection:
            txaware.outbox(connection).push("timers", b"alone", at=later)
        with closing(OutboxRelay(messaging, SqliteOutbox(path))) as relay:
            relay.carry_over()
        with closing(sqlite3.connect(path)) as connection:
            shop = participants.sqlite(messaging, connection, relay=False)
            with messaging.transaction(shop):
                queue.push(b"in a block", at=later)
            shop.relay()
        assert queue.stats().delayed == 2
        assert queue.pop() is None


def opened(messaging: Messaging) -> Queue:
    messaging.create_queue("timers")
    return messaging.queue("timers")
