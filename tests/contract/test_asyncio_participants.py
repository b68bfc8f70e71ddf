"""Rows of asyncio beside messages: inboxes, pops, loops, and cancellation anywhere."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.support.asyncio_shops import DECIDING, PREPARED, Shop
from tests.support.concurrency import in_loop
from tests.support.http_served import ServedStore, served
from tests.support.messagings import payloads
from tests.support.postgres import PostgresServer
from txaware import (
    AsyncMessaging,
    ClientSettings,
    connect,
    connect_async,
    outbox_async,
    participants,
)
from txaware.errors import BadRequest, MisusedTransaction, TxAwareError, Unavailable


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(long_poll_s=0.1) as opened:
        for topic in ("t", "made"):
            opened.messaging.create_topic(topic)
        opened.messaging.create_queue("mail")
        yield opened


@pytest.fixture
def make_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Shop]:
    def make(kind: str) -> Shop:
        is_file = kind.endswith("aiosqlite")
        database = str(tmp_path / "shop.db")
        if not is_file:
            database = request.getfixturevalue("postgres_server").url
        shop = Shop(kind, database)
        shop.make_table()
        return shop

    return make


@pytest.fixture
def shop(make_shop: Callable[[str], Shop], kind: str) -> Shop:
    """The shop of a test that has several kinds."""
    return make_shop(kind)


async def ordered(messaging: AsyncMessaging, shop: Shop, who: str) -> None:
    async with messaging.transaction(shop.participant):
        await shop.order(who)
        await messaging.publisher("t").publish(who.encode())


@pytest.mark.parametrize("kind", [*DECIDING, *PREPARED])
@in_loop
async def test_rows_and_messages_commit_together_or_not_at_all(
    store: ServedStore, shop: Shop, kind: str
) -> None:
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        async with messaging.transaction(shop.participant):
            await shop.order("ann")
            await messaging.publisher("t").publish(b"ann")
        with suppress(ValueError):
            async with messaging.transaction(shop.participant):
                await shop.order("bob")
                await messaging.publisher("t").publish(b"bob")
                raise ValueError
    if kind in DECIDING:
        assert store.committed() == []
        shop.carry_over(store.messaging)
    assert (shop.orders(), store.committed()) == (["ann"], [b"ann"])


@pytest.mark.parametrize("kind", DECIDING)
@in_loop
async def test_an_inbox_moves_with_the_rows(store: ServedStore, shop: Shop) -> None:
    store.messaging.publish("t", [b"a", b"b"])
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        inbox = shop.participant.consumer("t", group="g")
        assert await inbox.wait(5)
        with suppress(ValueError):
            async with messaging.transaction(shop.participant):
                assert payloads(await inbox.poll()) == [b"a", b"b"]
                raise ValueError
        async with messaging.transaction(shop.participant):
            for message in await inbox.poll(limit=1):
                await shop.order(message.payload.decode())
        assert shop.orders() == ["a"]
        async with messaging.transaction(shop.participant):
            assert payloads(await inbox.poll()) == [b"b"]


@pytest.mark.parametrize("kind", DECIDING)
@in_loop
async def test_items_popped_in_a_block_are_handled_once(
    store: ServedStore, shop: Shop
) -> None:
    store.messaging.queue("mail").push_all([b"a", b"b"])
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        queue = await messaging.queue("mail")
        with suppress(ValueError):
            async with messaging.transaction(shop.participant):
                job = await queue.pop()
                assert job is not None
                raise ValueError
        for _ in range(2):
            async with messaging.transaction(shop.participant):
                job = await queue.pop()
                assert job is not None
                await shop.order(job.payload.decode())
        assert await queue.pop() is None
    assert shop.orders() == ["a", "b"]


@pytest.mark.parametrize("kind", [*DECIDING, *PREPARED])
@in_loop
async def test_loops_write_rows_in_the_blocks_of_their_handlers(
    store: ServedStore, shop: Shop
) -> None:
    store.messaging.publish("t", [b"a", b"b"])
    store.messaging.queue("mail").push(b"c")
    failed: list[bytes] = []
    async with connect_async(store.url) as messaging, shop.opened(messaging):

        async def handle(work: Any, *_: Any) -> None:
            await shop.order(work.payload.decode())
            if len(failed) < 2:
                failed.append(work.payload)
                raise ValueError("once")

        options: dict[str, Any] = {
            "participants": [shop.participant],
            "first_pause_s": 0.01,
            "idle_wait_s": 0.05,
        }
        loop = messaging.subscribe("t", handle, group="g", tries=5, **options)
        task = asyncio.create_task(loop.run())
        while loop.metrics().processed < 2:
            await asyncio.sleep(0.01)
        await loop.close()
        await task
        queue = await messaging.queue("mail")
        worker = queue.worker(handle, transaction=True, **options)
        task = asyncio.create_task(worker.run())
        while worker.metrics().done < 1:
            await asyncio.sleep(0.01)
        await worker.close()
        await task
    assert shop.orders() == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["aiosqlite", "psycopg", "asyncpg prepared"])
@in_loop
async def test_a_worker_has_a_connection_for_each_that_it_handles_at_once(
    store: ServedStore, shop: Shop, kind: str
) -> None:
    store.messaging.queue("mail").push_all([b"%d" % one for one in range(6)])
    async with connect_async(store.url) as messaging:
        connections: dict[object, Any] = {}

        async def make() -> Any:
            if kind == "aiosqlite":
                connection: Any = await aiosqlite.connect(shop.database)
                made: Any = participants.sqlite(messaging, connection, relay=False)
            elif kind == "psycopg":
                connection = await psycopg.AsyncConnection.connect(shop.database)
                made = participants.postgres(
                    messaging, connection, outbox=True, relay=False
                )
            else:
                connection = await asyncpg.connect(shop.database)
                made = participants.postgres(messaging, connection)
            connections[made] = connection
            return made

        async def handle(job: Any, tx: Any) -> None:
            [taking_part] = [one for one in tx.participants if one in connections]
            who = job.payload.decode()
            sql = f"INSERT INTO orders VALUES ('{who}')"
            await connections[taking_part].execute(sql)

        queue = await messaging.queue("mail")
        worker = queue.worker(
            handle,
            transaction=True,
            concurrency=3,
            participants=[make],
            idle_wait_s=0.05,
        )
        task = asyncio.create_task(worker.run())
        while worker.metrics().done < 6:
            await asyncio.sleep(0.01)
        await worker.close()
        await task
        assert 1 <= len(connections) <= 3
    assert shop.orders() == [str(one) for one in range(6)]


@pytest.mark.parametrize("kind", [*DECIDING, *PREPARED])
@in_loop
async def test_a_commit_that_is_cancelled_at_any_of_its_awaits_is_whole_or_nothing(
    store: ServedStore, shop: Shop, kind: str
) -> None:
    """Each try cancels before another step of a driver, a call or the thread."""
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        steps = Steps()
        for number in range(60):
            who = f"n{number:03}"
            task = asyncio.create_task(ordered(messaging, shop, who))
            steps.cancel_at(task, number)
            with suppress(asyncio.CancelledError):
                await task
            if steps.is_over:
                break
        steps.stop()
        assert steps.is_over
        async with messaging.transaction(shop.participant):
            await shop.order("last")
            await messaging.publisher("t").publish(b"last")
    if kind in DECIDING:
        shop.carry_over(store.messaging)
    published = sorted(one.decode() for one in store.committed())
    assert shop.orders() == published
    assert "last" in published


@pytest.mark.parametrize("kind", [*DECIDING, *PREPARED])
@in_loop
async def test_a_block_that_is_cancelled_at_any_await_is_whole_or_nothing(
    store: ServedStore, shop: Shop, kind: str
) -> None:
    numbers = count()
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        is_over = False
        while not is_over:
            number = next(numbers)
            work = CancelledAt(ordered(messaging, shop, f"n{number:03}"), number)
            with suppress(asyncio.CancelledError):
                await asyncio.create_task(work.run())
            is_over = not work.is_cancelled
        await ordered(messaging, shop, "last")
    if kind in DECIDING:
        shop.carry_over(store.messaging)
    assert next(numbers) > 4
    published = sorted(one.decode() for one in store.committed())
    assert shop.orders() == published
    assert "last" in published


class CancelledAt:
    """A coroutine whose task is cancelled while it waits for the time of a number."""

    def __init__(self, work: Coroutine[Any, Any, None], number: int) -> None:
        self._work = work
        self._number = number
        self.is_cancelled = False

    async def run(self) -> None:
        await self

    def __await__(self) -> Generator[Any, Any, None]:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        step = partial(self._work.send, None)
        for number in count():
            try:
                waited_for = step()
            except StopIteration:
                return
            if number == self._number:
                self.is_cancelled = True
                loop.call_soon(task.cancel)
            try:
                yield waited_for
            except BaseException as error:
                step = partial(self._work.throw, error)
            else:
                step = partial(self._work.send, None)


class Steps:
    """Cancels a task before a step that its event loop takes in a callback."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._run_once = self._loop.call_soon_threadsafe
        self._task: asyncio.Task[Any] | None = None
        self._left = 0
        self.is_over = False
        loop: Any = self._loop
        loop.call_soon_threadsafe = self._called

    def cancel_at(self, task: "asyncio.Task[Any]", number: int) -> None:
        self._task, self._left, self.is_over = task, number, True

    def stop(self) -> None:
        loop: Any = self._loop
        loop.call_soon_threadsafe = self._run_once

    def _called(self, *args: Any, **options: Any) -> Any:
        """Every end of a call in a thread, and every step for one, comes by here."""
        task = self._task
        if task is not None:
            if self._left == 0:
                self._task, self.is_over = None, False
                self._run_once(task.cancel)
            self._left -= 1
        return self._run_once(*args, **options)


def one_line(error: BaseException) -> str:
    assert isinstance(error, TxAwareError)
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("kind", ["aiosqlite", "psycopg", "asyncpg prepared"])
@in_loop
async def test_participants_and_blocks_of_the_other_kind_are_told_which_to_use(
    store: ServedStore, shop: Shop, kind: str
) -> None:
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        with connect(store.url) as blocking:
            context: Any = blocking.transaction(shop.participant)
            with pytest.raises(TxAwareError) as caught:
                context.__enter__()
            assert "async with" in one_line(caught.value)
            wrong: Any = blocking
            make: Any = participants.postgres
            if kind == "aiosqlite":
                make = participants.sqlite
            with pytest.raises(BadRequest) as caught_early:
                make(wrong, shop.connection)
            assert "async with" in one_line(caught_early.value)
            with shop.blocking() as connection:
                wrong = messaging
                with pytest.raises(BadRequest) as caught_early:
                    make(wrong, connection)
                said = one_line(caught_early.value)
                assert "with messaging.transaction" in said
                assert "async with" not in said
                sync = make(blocking, connection)
                with pytest.raises(MisusedTransaction) as caught_late:
                    async with messaging.transaction(sync):
                        pass
                said = one_line(caught_late.value)
                assert "(with messaging.transaction" in said


@in_loop
async def test_a_session_in_autocommit_is_refused(
    store: ServedStore, postgres_server: PostgresServer
) -> None:
    async with connect_async(store.url) as messaging:
        connection = await psycopg.AsyncConnection.connect(
            postgres_server.url, autocommit=True
        )
        async with connection:
            options: Any
            for options in ({}, {"outbox": True}):
                shop = participants.postgres(messaging, connection, **options)
                with pytest.raises(BadRequest, match="is in autocommit"):
                    async with messaging.transaction(shop):
                        pass
        for driver in ("psycopg", "asyncpg"):
            url = postgres_server.url.replace("postgresql:", f"postgresql+{driver}:")
            engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
            async with AsyncSession(engine) as session:
                made = participants.sqlalchemy(messaging, session, outbox=True)
                with pytest.raises(BadRequest, match="is in autocommit"):
                    async with messaging.transaction(made):
                        pass
            await engine.dispose()


@in_loop
async def test_a_pool_that_is_exhausted_begins_no_block(
    store: ServedStore, postgres_server: PostgresServer
) -> None:
    url = postgres_server.url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    async with (
        connect_async(store.url) as messaging,
        engine.connect(),
        AsyncSession(engine) as session,
    ):
        shop = participants.sqlalchemy(messaging, session, outbox=True)
        with pytest.raises(Unavailable, match="no connection is free in the pool"):
            async with messaging.transaction(shop):
                await messaging.publisher("t").publish(b"never")
        with pytest.raises(Unavailable, match="no connection is free in the pool"):
            await outbox_async(session).publish("t", b"never")
    await engine.dispose()
    assert store.committed() == []


@in_loop
async def test_what_is_open_before_the_block_is_refused(
    store: ServedStore, make_shop: Callable[[str], Shop]
) -> None:
    for kind in ("aiosqlite", "psycopg", "asyncpg", "session asyncpg"):
        shop = make_shop(kind)
        async with connect_async(store.url) as messaging, shop.opened(messaging):
            if kind == "asyncpg":
                await shop.connection.execute("BEGIN")
            await shop.order("before")
            with pytest.raises(MisusedTransaction, match="open that began before"):
                async with messaging.transaction(shop.participant):
                    pass


@pytest.mark.parametrize("kind", DECIDING)
@in_loop
async def test_blocks_that_a_database_decides_share_no_threads(
    store: ServedStore, shop: Shop
) -> None:
    """With one thread in all, a second block is open within the first."""
    settings = ClientSettings(pool_connections=1)
    async with (
        connect_async(store.url, settings=settings) as messaging,
        shop.opened(messaging),
        messaging.transaction(),  # it has the thread
    ):
        await asyncio.create_task(ordered(messaging, shop, "ann"))
        assert shop.orders() == ["ann"]
    shop.carry_over(store.messaging)
    assert store.committed() == [b"ann"]


@pytest.mark.parametrize("kind", DECIDING)
@in_loop
async def test_a_block_goes_on_in_a_thread_once_it_needs_one(
    store: ServedStore, shop: Shop
) -> None:
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        publisher = messaging.publisher("t")
        for end in ("commit", "abort", "commit"):
            async with messaging.transaction(shop.participant) as block:
                await publisher.publish(b"1")
                await shop.order("ann")
                assert await messaging.in_thread(threading.get_ident) != (
                    threading.get_ident()
                )
                await publisher.publish_all([b"2", b"3"])
                if end == "abort":
                    await block.abort()
        async with messaging.transaction(shop.participant) as block:
            await publisher.publish(b"4")
            assert block.transaction.transaction_id > 0  # which begins at the server
    shop.carry_over(store.messaging)
    assert shop.orders() == ["ann", "ann"]
    assert store.committed() == [b"1", b"2", b"3", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", DECIDING)
@in_loop
async def test_a_second_block_of_a_connection_is_refused_and_harms_nothing(
    store: ServedStore, shop: Shop
) -> None:
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        async with messaging.transaction(shop.participant):
            await shop.order("ann")
            with pytest.raises(MisusedTransaction, match="one at a time"):
                await asyncio.create_task(ordered(messaging, shop, "bob"))
            await messaging.publisher("t").publish(b"ann")
        await ordered(messaging, shop, "cid")
    shop.carry_over(store.messaging)
    assert (shop.orders(), store.committed()) == (["ann", "cid"], [b"ann", b"cid"])


@pytest.mark.parametrize("kind", DECIDING)
@in_loop
async def test_an_abort_in_a_block_undoes_it_and_the_connection_goes_on(
    store: ServedStore, shop: Shop
) -> None:
    told: list[str] = []
    async with connect_async(store.url) as messaging, shop.opened(messaging):
        async with messaging.transaction(shop.participant) as block:
            block.on_rollback(lambda: told.append("rolled back"))
            await shop.order("ann")
            await messaging.publisher("t").publish(b"ann")
            await block.abort()
        await ordered(messaging, shop, "bob")
    shop.carry_over(store.messaging)
    assert (shop.orders(), store.committed()) == (["bob"], [b"bob"])
    assert told == ["rolled back"]


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", [one for one in DECIDING if "session" in one])
@in_loop
async def test_a_session_that_is_ended_inside_of_its_block_is_refused(
    store: ServedStore, shop: Shop, end: str
) -> None:
    async with connect_async(store.url) as messaging, shop.opened(messaging):

        async def block() -> None:
            async with messaging.transaction(shop.participant):
                await shop.order("ann")
                await getattr(shop.connection, end)()
                await shop.order("bob")
                await messaging.publisher("t").publish(b"bob")

        with pytest.raises(MisusedTransaction, match="was ended inside"):
            await block()
        await ordered(messaging, shop, "cid")
    shop.carry_over(store.messaging)
    assert shop.orders() == ["ann"] * (end == "commit") + ["cid"]
    assert store.committed() == [b"cid"]


@pytest.mark.parametrize("publishes", ["before", "never"])
@pytest.mark.parametrize(
    "kind", ["psycopg", "asyncpg", "session psycopg", "session asyncpg"]
)
@in_loop
async def test_a_block_in_which_a_statement_failed_is_never_told_as_committed(
    store: ServedStore, shop: Shop, publishes: str
) -> None:
    """PostgreSQL answers its COMMIT with a rollback, and no error."""
    async with connect_async(store.url) as messaging, shop.opened(messaging):

        async def block() -> None:
            async with messaging.transaction(shop.participant):
                await shop.order("ann")
                if publishes == "before":
                    await messaging.publisher("t").publish(b"ann")
                with suppress(Exception):
                    await shop.order("ann', 'too much")

        with pytest.raises(MisusedTransaction, match="a statement failed"):
            await block()
        await ordered(messaging, shop, "bob")
    shop.carry_over(store.messaging)
    assert (shop.orders(), store.committed()) == (["bob"], [b"bob"])


@pytest.mark.parametrize("kind", ["session psycopg", "session asyncpg"])
@in_loop
async def test_a_session_whose_commit_has_no_answer_finds_out(
    store: ServedStore,
    make_shop: Callable[[str], Shop],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = make_shop(kind)
    commit, took_place = AsyncSession.commit, [True, False]

    async def lose_the_answer(session: AsyncSession) -> None:
        if took_place.pop():
            await commit(session)
        else:
            await session.rollback()
        raise ConnectionError("the answer was lost")

    async with connect_async(store.url) as messaging, shop.opened(messaging):
        with monkeypatch.context() as patched:
            patched.setattr(AsyncSession, "commit", lose_the_answer)
            with pytest.raises(ConnectionError):
                await ordered(messaging, shop, "ann")
            await ordered(messaging, shop, "bob")
    shop.carry_over(store.messaging)
    assert (shop.orders(), store.committed()) == (["bob"], [b"bob"])
