"""The asyncio client: the same calls awaited, and transactions in threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from coordinator.embedded import EmbeddedCoordinator
from coordinator.transaction import Status
from tests.support.concurrency import PATIENCE_S, in_loop, until
from tests.support.doubles import Recorder
from tests.support.http_served import ServedStore, served
from tests.support.scripted_server import (
    Pauses,
    ScriptedServer,
    answers,
    loses_answer,
    sleeps,
)
from txaware.client import ClientSettings, Link
from txaware.client.aio.async_messaging import AsyncMessaging, connect_async
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    Workers,
    WorkerThread,
)
from txaware.client.aio.async_transport import AsyncTransport
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ParticipantFailed,
    RequestTooLarge,
    TransactionConflict,
    Unavailable,
)
from txaware.model.messages import Message
from txaware.model.settings import Settings


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(long_poll_s=0.1, accept_unknown_pointers=True) as opened:
        opened.messaging.create_topic("t")
        yield opened


@asynccontextmanager
async def scripted(server: ScriptedServer, pauses: Pauses) -> AsyncIterator[Any]:
    link = Link(server.url, clock_s=pauses, jitter=lambda least, most: most)
    transport = AsyncTransport(link, sleep=pauses.sleep_async)
    yield AsyncService(transport)
    await transport.close()


@in_loop
async def test_publishers_take_what_stands_beside_one_message(
    store: ServedStore,
) -> None:
    said: dict[str, Any] = {"key": b"k", "headers": {"h": b"1"}, "expire_after_s": 9}
    async with connect_async(store.url) as messaging:
        await messaging.publisher("t").publish(b"a", **said)
        await messaging.publisher("t", encode=str.encode).publish("b", **said)
        async with messaging.transaction():
            await messaging.publisher("t").publish(b"c", **said)
        async with messaging.producer() as producer:
            await producer.publish("t", b"d", **said)
        async with messaging.producer("p") as transactional:
            await transactional.publish("t", b"e", **said)
            with pytest.raises(BadRequest, match="are of one message"):
                await transactional.publish("t", [b"f"], **said)
        page = await messaging.poll("t", isolation="committed")
        assert [(one.payload, one.key, one.headers) for one in page] == [
            (payload, b"k", {"h": b"1"}) for payload in (b"a", b"b", b"c", b"d", b"e")
        ]


@in_loop
async def test_once_closed_it_sends_nothing(store: ServedStore) -> None:
    async with connect_async(store.server.url) as messaging:
        await messaging.topics()
    with pytest.raises(Unavailable, match="this Messaging is closed"):
        messaging.sender()
    with pytest.raises(Unavailable, match="this Messaging is closed"):
        await messaging.__aenter__()


@pytest.mark.parametrize("url", ["memory:", "leveldb:./data", "localhost:80"])
def test_asyncio_goes_to_a_server(url: str) -> None:
    with pytest.raises(BadRequest, match=r"is no URL of a server.* messaging.serve"):
        connect_async(url)


def test_the_settings_of_a_client_are_its_own_class() -> None:
    wrong: Any = Settings()
    with pytest.raises(BadRequest, match="settings are a ClientSettings, not Settings"):
        connect_async("http://127.0.0.1:1", settings=wrong)


@in_loop
async def test_store_reference_and_rollback(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        async with messaging.transaction() as tx:
            receipt = await messaging.store("t", [b"a"], transaction=tx.transaction)
            await messaging.publish(
                "t", [], transaction=tx.transaction, receipts=[receipt]
            )
        assert store.committed() == [b"a"]
        other = store.messaging.coordinator.start_short()
        response = await messaging.publish("t", [b"b"], transaction=other)
        assert response is not None
        await messaging.rollback("t", response)
        assert store.committed() == [b"a"]


@in_loop
async def test_many_wait_at_once() -> None:
    settings = ClientSettings(pool_connections=300)
    with served() as store:
        store.messaging.create_topic("t")
        await _many_wait(store, settings)


async def _many_wait(store: ServedStore, settings: ClientSettings) -> None:
    before = threading.active_count()
    async with connect_async(store.url, settings=settings) as messaging:
        waiting = [
            asyncio.create_task(messaging.poll("t", wait_s=20)) for _ in range(200)
        ]
        await asyncio.sleep(0.3)  # all of them wait by then
        threads = threading.active_count() - before
        await messaging.publish("t", [b"a"])
        pages = await asyncio.gather(*waiting)
        assert all([m.payload for m in page] == [b"a"] for page in pages)
        assert threads < 60  # none of them has a thread of its own


@in_loop
async def test_a_block_commits_at_its_end(store: ServedStore) -> None:
    table = Recorder(changes=[b"key"])
    async with connect_async(store.url) as messaging:
        async with messaging.transaction(table, timeout_s=20) as tx:
            await messaging.publisher("t").publish(b"a")
            await messaging.publisher("t").publish_all([b"b", b"c"])
            assert store.committed() == []
        assert tx.status is Status.COMMITTED
        assert store.committed() == [b"a", b"b", b"c"]
    assert table.log == [
        *("start_tx table", "get_tx_changes table", "commit_tx table"),
        "post_tx_commit table",
    ]


@in_loop
async def test_a_block_that_raises_undoes_everything(store: ServedStore) -> None:
    table = Recorder()
    async with connect_async(store.url) as messaging:
        tx = messaging.transaction(table)
        with suppress(KeyError):
            async with tx:
                pointer = tx.transaction
                await messaging.publish("t", [b"a"], transaction=pointer)
                await messaging.publisher("t").publish(b"b")
                position = (await messaging.bounds("t")).next
                await messaging.save_position("g", "t", position, transaction=pointer)
                raise KeyError
        assert tx.status is Status.ABORTED
        assert table.log[-1] == "rollback_tx table"
        assert store.committed() == []
        assert await messaging.position("g", "t") is None


@in_loop
async def test_a_participant_that_cannot_write_refuses_the_commit(
    store: ServedStore,
) -> None:
    async with connect_async(store.url) as messaging:
        tx = messaging.transaction(Recorder(commit_tx=False))
        with pytest.raises(ParticipantFailed):
            async with tx:
                await messaging.publisher("t").publish(b"a")
        assert tx.status is Status.ABORTED
        assert store.committed() == []


@in_loop
async def test_two_that_change_one_key_conflict(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        begun = asyncio.Barrier(2)

        async def change() -> None:
            async with messaging.transaction(Recorder(changes=[b"key"])):
                await begun.wait()

        results = await asyncio.gather(change(), change(), return_exceptions=True)
        assert {*map(type, results)} == {TransactionConflict, type(None)}


@in_loop
async def test_a_cancelled_block_is_undone_before_it_is_cancelled(
    store: ServedStore,
) -> None:
    table, published = Recorder(), asyncio.Event()
    async with connect_async(store.url) as messaging:

        async def block() -> None:
            async with messaging.transaction(table):
                await messaging.publisher("t").publish(b"a")
                published.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        await published.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert table.log[-1] == "rollback_tx table"
        assert store.committed() == []


@in_loop
async def test_a_commit_that_is_cancelled_comes_to_its_end(store: ServedStore) -> None:
    committing = threading.Event()
    go_on = threading.Event()

    def slow() -> bool:
        committing.set()
        return go_on.wait(10)

    table = Recorder(commit_tx=slow)
    async with connect_async(store.url) as messaging:

        async def block() -> None:
            async with messaging.transaction(table):
                await messaging.publisher("t").publish(b"a")

        task = asyncio.create_task(block())
        assert await asyncio.to_thread(committing.wait, PATIENCE_S)
        task.cancel()
        await asyncio.sleep(0.05)  # the first one is noticed before the second comes
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert "is committed" in caught.value.__notes__[0]
        assert store.committed() == [b"a"]


@in_loop
async def test_a_start_that_is_cancelled_leaves_nothing_open(
    store: ServedStore,
) -> None:
    go_on = threading.Event()
    table = Recorder(start_tx=lambda: go_on.wait(10))
    async with connect_async(store.url) as messaging:

        async def block() -> None:
            async with messaging.transaction(table):
                raise AssertionError("the block has begun")

        task = asyncio.create_task(block())
        assert await asyncio.to_thread(until, lambda: table.log)
        task.cancel()
        await asyncio.sleep(0.05)  # the task notices it while its worker is held
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert table.log[-1] == "rollback_tx table"
        coordinator: Any = store.messaging.coordinator
        assert not coordinator.open_transactions()


@in_loop
async def test_a_transaction_belongs_to_its_task(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        async with messaging.transaction() as tx:
            with pytest.raises(MisusedTransaction, match="already open in this task"):
                await messaging.transaction().__aenter__()

            async def other() -> None:
                await messaging.publisher("t").publish(b"at once")
                async with messaging.transaction():
                    await messaging.publisher("t").publish(b"another")

            await asyncio.create_task(other())
            assert store.committed() == [b"at once", b"another"]
            await tx.abort()
        with pytest.raises(MisusedTransaction):
            await tx.run(print)


@in_loop
async def test_a_block_is_entered_and_left_once(store: ServedStore) -> None:
    settings = ClientSettings(pool_connections=2)
    async with connect_async(store.url, settings=settings) as messaging:
        block = messaging.transaction()
        with pytest.raises(MisusedTransaction, match="not begun> has no open block"):
            await block.__aexit__(None, None, None)
        async with block:
            await messaging.publisher("t").publish(b"a")
            for entering in (block.__aenter__(), asyncio.create_task(enter(block))):
                with pytest.raises(MisusedTransaction, match="make a new one"):
                    await entering
            await messaging.publisher("t").publish(b"b")
        assert store.committed() == [b"a", b"b"]
        with pytest.raises(MisusedTransaction, match="committed; make a new one"):
            await block.__aenter__()
        with pytest.raises(MisusedTransaction, match="committed> has no open block"):
            await block.__aexit__(None, None, None)
        for _ in range(3):  # no thread was lost
            async with messaging.transaction():
                pass


async def enter(block: AsyncTransaction) -> None:
    await block.__aenter__()


@in_loop
async def test_many_transactions_wait_for_a_thread(store: ServedStore) -> None:
    settings = ClientSettings(pool_connections=3)
    async with connect_async(store.url, settings=settings) as messaging:

        async def one(number: int) -> None:
            async with messaging.transaction():
                await messaging.publisher("t").publish(b"%d" % number)
                await asyncio.sleep(0.005)

        await asyncio.gather(*map(one, range(40)))
    assert sorted(map(int, store.committed())) == list(range(40))


@in_loop
async def test_a_checkpoint_goes_on_with_a_new_pointer(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        async with messaging.transaction() as tx:
            await messaging.publisher("t").publish(b"a")
            before = tx.transaction.write_pointer
            await tx.checkpoint()
            assert tx.transaction.write_pointer > before
            assert await tx.run(threading.get_ident) != threading.get_ident()
        assert store.committed() == [b"a"]


@in_loop
async def test_a_message_that_is_too_large_fails_when_it_is_published() -> None:
    with served(request_limit_bytes=100_000) as store:
        store.messaging.create_topic("t")
        async with connect_async(store.url) as messaging:
            publisher = messaging.publisher("t")
            with pytest.raises(RequestTooLarge):
                await publisher.publish(b"a" * 100_000)
            async with messaging.transaction():
                with pytest.raises(RequestTooLarge):
                    await publisher.publish(b"a" * 100_000)
                await publisher.publish(b"a" * 90_000)
                await publisher.publish_all([b"b" * 30_000] * 10)
        assert sum(map(len, store.committed())) == 390_000


@in_loop
async def test_a_consumer_moves_with_the_commit(store: ServedStore) -> None:
    store.messaging.publish("t", [b"a", b"b", b"c"])
    async with connect_async(store.url) as messaging:
        consumer = await messaging.consumer("t", group="g")
        async with messaging.transaction():
            assert len(await consumer.poll(2)) == 2
        with suppress(KeyError):
            async with messaging.transaction():
                assert [m.payload for m in await consumer.poll()] == [b"c"]
                raise KeyError
        async with messaging.transaction():
            assert [m.payload for m in await consumer.poll()] == [b"c"]
            with pytest.raises(MisusedTransaction):
                await consumer.wait(0)
        assert await messaging.position("g", "t") == await consumer.position()
        assert not await consumer.wait(0.01)


@in_loop
async def test_a_group_goes_on_where_only_its_transaction_may(
    store: ServedStore,
) -> None:
    store.messaging.publish("t", [b"foreign"], transaction=6)
    async with connect_async(store.url) as messaging:
        consumer = await messaging.consumer("t", group="g")
        assert await consumer.wait(0.01)
        async with messaging.transaction():
            assert [m.payload for m in await consumer.poll()] == [b"foreign"]
        assert not await consumer.wait(0.01)


@in_loop
async def test_a_consumer_outside_transactions(store: ServedStore) -> None:
    store.messaging.publish("t", [b"a", b"b", b"c"])
    async with connect_async(store.url) as messaging:
        consumer = await messaging.consumer("t", group="g")
        assert len(await consumer.poll(2)) == 2
        await consumer.rollback()
        assert len(await consumer.poll(2)) == 2
        await consumer.commit()
        other = await messaging.consumer("t", group="g")
        assert [m.payload for m in await other.poll()] == [b"c"]
        await other.seek("first")
        assert len(await other.poll()) == 3
        last = await messaging.consumer("t", start="last")
        assert [m.payload for m in await last.poll()] == [b"c"]
        assert last.blocked_by is None


@in_loop
async def test_a_loop_gets_all_messages_and_those_to_come(store: ServedStore) -> None:
    store.messaging.publish("t", [b"0", b"1", b"2"])
    async with connect_async(store.url) as messaging:
        consumer = await messaging.consumer("t", group="g")
        seen: list[bytes] = []
        async for message in consumer:
            seen.append(message.payload)
            if message.payload == b"1":
                await consumer.commit()
            if message.payload == b"2":
                await messaging.publish("t", [b"3", b"4"])
            if message.payload == b"3":
                break
        assert seen == [b"0", b"1", b"2", b"3"]
        again = await messaging.consumer("t", group="g")
        assert [m.payload for m in await again.poll()] == [b"2", b"3", b"4"]
        assert [m.payload for m in await consumer.poll()] == [b"4"]


@in_loop
async def test_a_cancelled_poll_loses_nothing(store: ServedStore) -> None:
    store.messaging.publish("t", [b"%d" % number for number in range(300)])
    async with connect_async(store.url) as messaging:
        for group in (None, "g"):
            consumer = await messaging.consumer("t", group=group)
            seen: list[Message] = []
            for turn in range(200):
                try:
                    async with asyncio.timeout(0.0004 * (turn % 8)):
                        page = await consumer.poll(3)
                except TimeoutError:
                    if group:
                        seen.clear()  # it begins anew, as after a rollback
                    continue
                seen += page
            while page := await consumer.poll():
                seen += page
            assert [m.payload for m in seen] == [b"%d" % n for n in range(300)]


@in_loop
async def test_the_same_decisions_are_made_as_in_threads(
    server: ScriptedServer,
) -> None:
    pauses = Pauses()
    async with scripted(server, pauses) as service:
        busy = answers(503, Retry_After="2", Txaware_Instance="one")
        server.script = [loses_answer, busy]
        await service.publish("t", [b"a"])
        first, second, third = server.of("/publish")
        assert first.body == second.body == third.body
        assert second.headers["txaware-instance"] == "one"
        assert pauses.slept_s == [0, 2.5]
        server.close_idle()
        await service.publish("t", [b"a"])


@in_loop
async def test_a_cancelled_call_is_not_repeated(server: ScriptedServer) -> None:
    async with scripted(server, Pauses()) as service:
        await service.info()
        server.script = [sleeps]
        asked = len(server.lines)
        call = asyncio.create_task(service.topics())
        assert await asyncio.to_thread(until, lambda: len(server.lines) > asked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(server.lines) == asked + 1


@in_loop
async def test_a_server_that_is_away_is_unavailable() -> None:
    with ScriptedServer() as server:
        url = server.url
    settings = ClientSettings(retry_for_s=0)
    async with connect_async(url, settings=settings) as messaging:
        with pytest.raises(Unavailable, match="no connection"):
            await messaging.topics()
        with pytest.raises(Unavailable, match="no connection"):
            async with messaging.transaction():
                pass
    with pytest.raises(Unavailable, match="closed"):
        await messaging.topics()


@in_loop
async def test_wrong_values_are_refused_as_everywhere(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        with pytest.raises(BadRequest):
            messaging.publisher("a b")
        with pytest.raises(BadRequest):
            await messaging.consumer("t", start="middle")  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            await messaging.publisher("t").publish_all(b"a")  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            await messaging.publish("t", [])


@in_loop
async def test_what_it_shows_is_its_state(store: ServedStore) -> None:
    messaging: AsyncMessaging
    async with connect_async(store.url, token="secret") as messaging:
        await messaging.topics()
        async with messaging.transaction() as tx:
            assert "active" in repr(tx)
        assert "1 idle" in repr(messaging)
        assert repr(await messaging.consumer("t")).endswith("consumer of t>>")
        assert repr(messaging.publisher("n:t")) == "<TopicPublisher of n:t>"
    assert "closed" in repr(messaging)
    assert "secret" not in repr(messaging)


@in_loop
async def test_a_worker_ends_what_it_began(store: ServedStore) -> None:
    workers, done = Workers(1, EmbeddedCoordinator()), threading.Event()

    def slow() -> None:
        done.wait(10)
        raise KeyError("what came of it")

    worker = await workers.take()
    task = asyncio.create_task(worker.run(slow))
    await asyncio.sleep(0.02)  # its worker has begun
    task.cancel()
    await asyncio.sleep(0.02)  # a task that does not wait for it is done by then
    assert not task.done()
    done.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, KeyError)
    workers.close()
    workers.give_back(worker)
    WorkerThread().close()


@in_loop
async def test_functions_for_the_end_are_called_in_the_task_and_awaited(
    store: ServedStore,
) -> None:
    log: list[str] = []

    async def later(text: str) -> None:
        await asyncio.sleep(0)
        log.append(text)

    async with connect_async(store.url) as messaging:
        async with messaging.transaction() as tx:
            await messaging.publisher("t").publish(b"x")
            tx.on_commit(lambda: log.append(threading.current_thread().name))
            tx.on_commit(lambda: later("awaited"))
            tx.on_rollback(lambda: log.append("never"))
        assert log == [threading.current_thread().name, "awaited"]
        with pytest.raises(ValueError, match="no") as caught:  # noqa: PT012
            async with messaging.transaction() as tx:
                tx.on_rollback(lambda: later(tx.status.value))
                tx.on_rollback(lambda: [][1])
                raise ValueError("no")
        assert log[2:] == ["aborted"]
        assert "IndexError" in caught.value.__notes__[0]
        async with messaging.transaction() as tx:
            tx.on_rollback(lambda: later("by hand"))
            await tx.abort()
            assert log[3:] == ["by hand"]


@in_loop
async def test_what_functions_raise_after_a_commit_is_raised_together(
    store: ServedStore,
) -> None:
    async with connect_async(store.url) as messaging:
        with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
            async with messaging.transaction() as tx:
                await messaging.publisher("t").publish(b"x")
                tx.on_commit(lambda: [][1])
                tx.on_commit(lambda: [][2])
        assert len(caught.value.exceptions) == 2
        assert "committed" in caught.value.__notes__[0]
        assert len(await messaging.poll("t", isolation="committed")) == 1
        with pytest.raises(MisusedTransaction, match="needs an open block"):
            tx.on_commit(print)


@in_loop
async def test_a_cancelled_task_still_calls_the_functions_for_its_end(
    store: ServedStore,
) -> None:
    log: list[str] = []
    async with connect_async(store.url) as messaging:

        async def work() -> None:
            async with messaging.transaction() as tx:
                tx.on_rollback(lambda: log.append(tx.status.value))
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert log == ["aborted"]


async def flushed(url: str) -> None:
    async with connect_async(url) as messaging:
        publisher = messaging.publisher("t")
        with pytest.raises(MisusedTransaction, match="none is open here"):
            await publisher.flush()
        async with messaging.transaction() as tx:
            await publisher.publish(b"a")
            await publisher.flush()
            await publisher.publish(b"b")
            await tx.flush()
            page = await messaging.poll("t", isolation="uncommitted")
            assert [message.payload for message in page] == [b"a", b"b"]
            assert not await messaging.poll("t", isolation="committed")
        assert len(await messaging.poll("t", isolation="committed")) == 2


def test_a_flush_is_awaited(store: ServedStore) -> None:
    asyncio.run(flushed(store.server.url))


@in_loop
async def test_the_latest_is_awaited_in_blocks_and_without(store: ServedStore) -> None:
    async with connect_async(store.url) as messaging:
        assert (await messaging.create_topic("config", compact=True)).is_compact
        publisher = messaging.publisher("config")
        await publisher.publish(b"info", key=b"level", headers={"by": b"ann"})
        async with messaging.transaction():
            before = await messaging.latest("config")
            await publisher.publish(b"debug", key=b"level")
            assert (await messaging.latest("config"))[b"level"] == before[b"level"]
        assert before[b"level"].headers == {"by": b"ann"}
        assert [*before.values()] == (await messaging.poll("config"))[:1]
        found = await messaging.latest("config")
        assert {key: one.payload for key, one in found.items()} == {b"level": b"debug"}
        page = await messaging.latest_page("config", start=before.place)
        assert [message.payload for message in page.messages] == [b"debug"]
