"""Subscribers, processors and workers of the asyncio client, with `async def`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.support.concurrency import in_loop
from tests.support.http_served import ServedStore, served
from tests.support.messagings import payloads
from txaware.client.aio.async_loops import AsyncLoop
from txaware.client.aio.async_messaging import AsyncMessaging, connect_async
from txaware.errors import BadRequest, MisusedTransaction, TopicNotFound
from txaware.model.messages import Outgoing
from txaware.model.start_places import BEGINNING

QUICK: dict[str, Any] = {
    "first_pause_s": 0.01,
    "longest_pause_s": 0.02,
    "idle_wait_s": 0.05,
}


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(long_poll_s=0.1) as opened:
        for topic in ("t", "made", "dead"):
            opened.messaging.create_topic(topic)
        opened.messaging.create_queue("mail")
        yield opened


@asynccontextmanager
async def running(loop: AsyncLoop[Any]) -> AsyncIterator[None]:
    """Runs a loop beside the block, and closes it."""
    task = asyncio.create_task(loop.run())
    try:
        yield
    finally:
        await loop.close()
        await task


async def until(look: Callable[[], Any]) -> None:
    while not look():
        await asyncio.sleep(0.01)


@in_loop
async def test_each_message_is_handled_in_a_block_that_moves_the_group(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"a", b"b"])
    async with connect_async(store.url) as messaging:
        made = messaging.publisher("made")

        async def handle(message: Any) -> None:
            await made.publish(b"of " + message.payload)

        loop = messaging.subscribe("t", handle, group="g", **QUICK)
        async with running(loop):
            await until(lambda: loop.metrics().processed == 2)
    assert payloads(store.messaging.poll("made")) == [b"of a", b"of b"]
    assert store.messaging.position("g", "t") is not None


@in_loop
async def test_what_a_handler_did_before_it_raised_is_undone_and_tried_again(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"a"])
    tried: list[bytes] = []
    async with connect_async(store.url) as messaging:

        async def handle(message: Any) -> None:
            await messaging.publisher("made").publish(message.payload)
            tried.append(message.payload)
            if len(tried) == 1:
                raise ValueError("once")

        loop = await messaging.subscribe("t", handle, group="g", **QUICK)
        async with running(loop):
            await until(lambda: loop.metrics().processed == 1)
    assert len(tried) == 2
    made = store.messaging.poll("made", isolation="committed")
    assert payloads(made) == [b"a"]


@in_loop
async def test_a_message_that_fails_too_often_is_a_dead_letter(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"bad", b"good"])
    async with connect_async(store.url) as messaging:

        async def handle(message: Any) -> None:
            if message.payload == b"bad":
                raise ValueError("never")

        loop = messaging.subscribe(
            "t", handle, group="g", tries=2, dead_letter_topic="dead", **QUICK
        )
        async with running(loop):
            await until(lambda: loop.metrics().processed == 1)
    dead = store.messaging.poll("dead", isolation="committed")
    assert payloads(dead) == [b"bad"]


@in_loop
async def test_functions_of_a_handlers_block_are_awaited_at_its_end(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"a"])
    told: list[str] = []
    async with connect_async(store.url) as messaging:

        async def tell() -> None:
            await asyncio.sleep(0)
            told.append("committed")

        async def announce(messages: Any) -> None:
            told.append(f"after {len(messages)}")

        store.messaging.create_queue("jobs")
        queue = await messaging.queue("jobs")

        async def handle(job: Any, tx: Any) -> None:
            tx.on_commit(tell)

        await queue.push(b"a")
        async with running(queue.worker(handle, transaction=True)):
            await until(lambda: told)
        loop = messaging.subscribe(
            "t", lambda message: None, group="g", after_commit=announce, **QUICK
        )
        assert await loop.run_once() == 1
        await loop.close()
    assert told == ["committed", "after 1"]


class InWork:
    """Counts the handlers that are at work at once."""

    def __init__(self, expected: int) -> None:
        self.most = self.now = 0
        self.handled: list[bytes] = []
        self._expected = expected
        self._full = asyncio.Event()

    async def handle(self, work: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self._expected:
            self._full.set()
        await self._full.wait()
        await asyncio.sleep(0)
        self.handled.append(work.payload)
        self.now -= 1


@in_loop
async def test_messages_of_a_transaction_are_handled_so_many_at_once(
    store: ServedStore,
) -> None:
    sent = [b"%d" % number for number in range(9)]
    store.messaging.publish("t", sent)
    async with connect_async(store.url) as messaging:
        work = InWork(3)
        loop = messaging.subscribe("t", work.handle, group="g", concurrency=3, **QUICK)
        assert await loop.run_once() == 9
        await loop.close()
    assert (work.most, sorted(work.handled)) == (3, sent)


@in_loop
async def test_messages_of_one_key_stay_in_their_order_at_once(
    store: ServedStore,
) -> None:
    sent = [Outgoing(b"%d" % number, key=b"one") for number in range(4)]
    store.messaging.publish("t", sent)
    seen: list[bytes] = []
    async with connect_async(store.url) as messaging:

        async def handle(message: Any) -> None:
            await asyncio.sleep(0.001 * (5 - len(seen)))
            seen.append(message.payload)

        loop = messaging.subscribe("t", handle, group="g", concurrency=4, **QUICK)
        assert await loop.run_once() == 4
        await loop.close()
    assert seen == [b"0", b"1", b"2", b"3"]


@in_loop
async def test_only_the_one_that_failed_is_blamed_of_those_at_once(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"a", b"bad", b"c"])
    async with connect_async(store.url) as messaging:

        async def handle(message: Any) -> None:
            await messaging.publisher("made").publish(message.payload)
            if message.payload == b"bad":
                raise ValueError("never")

        loop = messaging.subscribe(
            "t",
            handle,
            group="g",
            concurrency=3,
            tries=2,
            dead_letter_topic="dead",
            **QUICK,
        )
        async with running(loop):
            await until(lambda: loop.metrics().processed == 2)
    assert payloads(store.messaging.poll("dead", isolation="committed")) == [b"bad"]
    made = payloads(store.messaging.poll("made", isolation="committed"))
    assert made == [b"a", b"c"]


@pytest.mark.parametrize("concurrency", [1, 3])
@in_loop
async def test_what_a_function_makes_is_published_in_order_and_once(
    store: ServedStore, concurrency: int
) -> None:
    store.messaging.publish("t", [b"a", b"b", b"c"])
    async with connect_async(store.url) as messaging:

        async def make(message: Any) -> list[bytes]:
            await asyncio.sleep(0.01 if message.payload == b"a" else 0)
            return [message.payload.upper()]

        loop = messaging.process(
            "t",
            "made",
            make,
            group="g",
            producer="p",
            concurrency=concurrency,
            **QUICK,
        )
        async with running(loop):
            await until(lambda: loop.metrics().processed == 3)
    made = store.messaging.poll("made", isolation="committed")
    assert payloads(made) == [b"A", b"B", b"C"]


@in_loop
async def test_jobs_are_handled_so_many_at_once_and_once(store: ServedStore) -> None:
    sent = [b"%d" % number for number in range(8)]
    store.messaging.queue("mail").push_all(sent)
    async with connect_async(store.url) as messaging:
        work = InWork(4)
        queue = await messaging.queue("mail")
        loop = queue.worker(work.handle, concurrency=4, idle_wait_s=0.05)
        async with running(loop):
            await until(lambda: loop.metrics().done == 8)
    assert (work.most, sorted(work.handled)) == (4, sent)
    assert store.messaging.queue("mail").peek() == []


@in_loop
async def test_a_job_in_a_block_ends_with_what_its_handler_published(
    store: ServedStore,
) -> None:
    store.messaging.queue("mail").push_all([b"a", b"b"])
    failed: list[bytes] = []
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")

        async def handle(job: Any, tx: Any) -> None:
            await messaging.publisher("made").publish(job.payload)
            if not failed:
                failed.append(job.payload)
                raise ValueError("once")

        loop = queue.worker(handle, transaction=True, **QUICK)
        async with running(loop):
            await until(lambda: loop.metrics().done == 2)
    made = store.messaging.poll("made", isolation="committed")
    assert sorted(payloads(made)) == [b"a", b"b"]


@in_loop
async def test_a_handler_beyond_its_time_is_cancelled_and_its_job_comes_again(
    store: ServedStore,
) -> None:
    store.messaging.queue("mail").push(b"a")
    cancelled: list[bytes] = []
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")

        async def handle(job: Any) -> None:
            if not cancelled:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.append(job.payload)
                    raise

        loop = queue.worker(handle, timeout_s=0.2, **QUICK)
        async with running(loop):
            await until(lambda: loop.metrics().done == 1)
    assert cancelled == [b"a"]


@pytest.mark.parametrize("how", ["close", "cancel", "stop", "messaging"])
@in_loop
async def test_what_is_in_work_ends_first(store: ServedStore, how: str) -> None:
    store.messaging.publish("t", [b"a"])
    begun, go_on, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ended: list[bytes] = []
    async with connect_async(store.url) as messaging:

        async def handle(message: Any) -> None:
            begun.set()
            await go_on.wait()
            ended.append(message.payload)

        loop = messaging.subscribe("t", handle, group="g", **QUICK)
        task = asyncio.create_task(loop.run(stop))
        await begun.wait()
        closing = None
        if how == "cancel":
            task.cancel()
        elif how == "stop":
            stop.set()
        else:
            close = loop.close if how == "close" else messaging.close
            closing = asyncio.create_task(close())
        await asyncio.sleep(0.05)
        assert not task.done()
        go_on.set()
        with suppress(asyncio.CancelledError):
            await task
        if closing is not None:
            await closing
    assert ended == [b"a"]
    assert store.messaging.position("g", "t") is not None


@in_loop
async def test_a_cancelled_handler_ends_the_loop_and_blames_no_message(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"a"])
    async with connect_async(store.url) as messaging:

        async def handle(message: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)

        loop = messaging.subscribe("t", handle, group="g", tries=1, **QUICK)
        with pytest.raises(asyncio.CancelledError):
            await loop.run()
        await loop.close()
    assert store.messaging.position("g", "t") == BEGINNING


@in_loop
async def test_wrong_loops_are_refused(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        queue = await messaging.queue("mail")
        handler: Any = 5
        with pytest.raises(BadRequest, match="no function to call"):
            messaging.subscribe("t", handler)
        for wrong in (0, 1.5, True):
            number: Any = wrong
            with pytest.raises(BadRequest, match="concurrency"):
                messaging.subscribe("t", print, concurrency=number)
            with pytest.raises(BadRequest, match="concurrency"):
                queue.worker(print, concurrency=number)
        with pytest.raises(TopicNotFound):
            await messaging.subscribe("t", print, dead_letter_topic="absent")
        with pytest.raises(BadRequest, match="come back to it for ever"):
            await messaging.process("t", "t", print, group="g", producer="p")
        async with messaging.transaction():
            with pytest.raises(MisusedTransaction, match="transactions of its own"):
                await messaging.subscribe("t", print).run()


@in_loop
async def test_a_loop_that_is_closed_does_not_run(store: ServedStore) -> None:
    messaging: AsyncMessaging
    async with connect_async(store.url) as messaging:
        loop = messaging.subscribe("t", print)
        await loop.close()
        with pytest.raises(MisusedTransaction, match="closed"):
            await loop.run()
