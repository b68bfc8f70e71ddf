"""Queues for asyncio."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpcore
import pytest

from tests.support.concurrency import in_loop
from tests.support.http_raw import serving
from tests.support.http_served import ServedStore, served
from tests.support.queues import numbered
from txaware import AsyncJob, AsyncQueue, Outgoing, connect_async
from txaware.client.aio.async_transaction import WorkerThread
from txaware.errors import (
    BadRequest,
    LeaseLost,
    MisusedTransaction,
    PublisherClosed,
    QueueExists,
    QueueNotFound,
)


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served() as opened:
        opened.messaging.create_queue("mail")
        opened.messaging.create_topic("t")
        yield opened


class HeldAnswers(httpcore.AnyIOBackend):
    """Connections that read an answer when the test says so."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def connect_tcp(
        self, *args: Any, **named: Any
    ) -> httpcore.AsyncNetworkStream:
        stream = await super().connect_tcp(*args, **named)
        read = stream.read

        async def held(*args: Any) -> bytes:
            await self.gate.wait()
            return await read(*args)

        stream.read = held  # type: ignore
        return stream


async def reached(look: Callable[[], object]) -> None:
    while not look():
        await asyncio.sleep(0)


async def popped(queue: AsyncQueue) -> AsyncJob:
    job = await queue.pop(wait_s=5)
    assert job is not None
    return job


async def fail_with(job: AsyncJob) -> None:
    async with job:
        _ = 1 / 0


@in_loop
async def test_a_job_is_pushed_popped_and_ended(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")
        assert await messaging.queue("mail") is queue
        await queue.push(b"a", key=b"k", headers={"h": b"1"})
        job = await popped(queue)
        assert (job.payload, job.key, job.headers) == (b"a", b"k", {"h": b"1"})
        await job.extend(60)
        await job.rollback(error="not now")
        async with await popped(queue) as job:
            assert job.deliveries == 2
        with pytest.raises(LeaseLost):
            await job.commit()
        await queue.push(b"b")
        with pytest.raises(ZeroDivisionError):
            await fail_with(await popped(queue))
        async with await popped(queue) as job:
            assert job.deliveries == 2
        stats = await queue.stats()
        assert (stats.committed, stats.rolled_back) == (2, 2)


@in_loop
async def test_a_pop_commits_the_job_before(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        await messaging.create_queue("other")
        queue, other = await messaging.queue("mail"), await messaging.queue("other")
        await queue.push_all([b"a", b"b", b"c"])
        first = await popped(queue)
        second = await queue.pop(commits=first)
        assert second is not None
        assert (second.payload, first.is_over) == (b"b", True)
        assert await other.pop(commits=second) is None
        third = await popped(queue)
        waits = asyncio.create_task(queue.pop(wait_s=20, commits=third))
        await reached(lambda: third.is_over)
        assert (await queue.stats()).committed == 3
        await queue.push(b"d")
        last = await waits
        assert last is not None
        async with messaging.transaction():
            assert await queue.pop(commits=last) is None
        assert (await queue.stats()).committed == 4
        with pytest.raises(LeaseLost):
            await queue.pop(commits=first)
        with pytest.raises(BadRequest, match="is a job"):
            await queue.pop(commits=b"a")  # type: ignore[arg-type]


@in_loop
async def test_a_pop_a_push_and_a_publish_are_one(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        await messaging.create_queue("sent", max_deliveries=5)
        mail, sent = await messaging.queue("mail"), await messaging.queue("sent")
        await mail.push(b"a")

        async def work(*, fails: bool) -> None:
            async with messaging.transaction():
                job = await popped(mail)
                await sent.push(job.payload + b"!")
                await messaging.publisher("t").publish(job.payload)
                with pytest.raises(MisusedTransaction):
                    await job.extend(5)
                if fails:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work(fails=True)
        assert await sent.peek() == []
        await work(fails=False)
        assert (await mail.stats()).committed == 1
        assert [item.payload for item in await sent.peek()] == [b"a!"]
        assert store.committed() == [b"a"]


@in_loop
async def test_many_tasks_wait_and_each_gets_one(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")
        waiting = [asyncio.create_task(queue.pop(wait_s=20)) for _ in range(50)]
        await queue.push_all(numbered(50))
        jobs = [job for job in await asyncio.gather(*waiting) if job is not None]
        assert sorted(job.payload for job in jobs) == sorted(numbered(50))
        for job in jobs:
            await job.commit()


@in_loop
async def test_the_verbs_of_a_queue_are_awaited(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        made = await messaging.create_queue("dead", order="strict")
        assert (await messaging.queues(), made.order) == (["dead", "mail"], "strict")
        assert await messaging.create_queue("dead", order="strict", exist_ok=True)
        with pytest.raises(QueueExists, match="its order is 'strict', not 'key'"):
            await messaging.create_queue("dead", order="key", exist_ok=True)
        made = await messaging.update_queue("dead", lease_s=60)
        assert (made.lease_s, made.order) == (60, "strict")
        queue = await messaging.queue("dead")
        assert await queue.descriptor() == made
        async with queue.pusher() as pusher:
            await pusher.push(Outgoing(b"a", b"k"))
            await pusher.push_all([b"b"], delay_s=0)
        with pytest.raises(PublisherClosed):
            await pusher.push(b"c")
        await queue.pause()
        assert await queue.pop() is None
        await queue.resume()
        popper = queue.popper(name="worker 7", owns_pipe=True)
        assert [job.payload for job in await popper.pop_many(5)] == [b"a", b"b"]
        assert await queue.redrive() == 0
        await queue.truncate()
        assert (await queue.stats()).popped == 0
        await messaging.delete_queue("dead")
        with pytest.raises(QueueNotFound):
            await queue.pop()
        with pytest.raises(BadRequest):
            await messaging.queue("a b")


@pytest.mark.parametrize("is_closed", [False, True])
@in_loop
async def test_a_cancelled_pop_hands_back_the_job_that_it_was_given(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the client is closed at once, as by a task that ends a program."""
    held = HeldAnswers()
    monkeypatch.setattr(httpcore, "AnyIOBackend", lambda: held)
    with serving() as here:
        here.messaging.create_queue("mail", max_deliveries=5)
        mail = here.messaging.queue("mail")
        async with connect_async(here.url) as messaging:
            queue = await messaging.queue("mail")
            assert await queue.pop() is None
            mail.push_all([b"a", b"b"])
            held.gate.clear()
            popping = asyncio.create_task(queue.pop_many(2, wait_s=20))
            await reached(lambda: mail.stats().in_work == 2 and not here.in_flight)
            popping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await popping
            held.gate.set()
            if not is_closed:
                await reached(lambda: mail.stats().depth == 2)
        jobs = mail.pop_many(2)
        assert [(job.payload, job.deliveries) for job in jobs] == [(b"a", 2), (b"b", 2)]


@in_loop
async def test_a_job_outside_of_transactions_takes_no_thread(
    store: ServedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")
        taken: list[object] = []
        submit = WorkerThread.submit

        def noted(self: WorkerThread, *args: Any, **options: Any) -> Any:
            taken.append(args[0])
            return submit(self, *args, **options)

        monkeypatch.setattr(WorkerThread, "submit", noted)
        await queue.push(b"a")
        await queue.push_all([b"b"], delay_s=0)
        async with await popped(queue) as job:
            assert job.payload == b"a"
        assert job.is_over
        await (await popped(queue)).commit()
        assert not taken
        async with messaging.transaction():
            await queue.push(b"c")
        assert (await popped(queue)).payload == b"c"


@in_loop
async def test_a_commit_goes_on_to_its_end_when_its_task_is_cancelled(
    store: ServedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")
        await queue.push(b"a")
        job = await popped(queue)
        asked, go_on = asyncio.Event(), asyncio.Event()
        commit_job = queue._calls.commit_job

        async def held(*args: Any) -> None:
            asked.set()
            await go_on.wait()
            await commit_job(*args)

        monkeypatch.setattr(queue._calls, "commit_job", held)
        task = asyncio.ensure_future(job.commit())
        await asked.wait()
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert job.is_over
        assert (await queue.stats()).committed == 1
