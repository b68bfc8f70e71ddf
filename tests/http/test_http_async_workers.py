"""Transactions of the asyncio client that use up all threads still come to an end."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.http_served import ServedStore, served
from txaware.client import ClientSettings
from txaware.client.aio.async_messaging import connect_async

THREADS = 3
DEADLINE_S = 25.0


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served() as opened:
        opened.messaging.create_topic("t")
        opened.messaging.publish("t", [b"a", b"b"])
        yield opened


@pytest.mark.parametrize("group", [None, "g"])
def test_transactions_that_hold_all_threads_may_each_ask_for_a_consumer(
    store: ServedStore, group: str | None
) -> None:
    async def main() -> list[list[bytes]]:
        all_begun = asyncio.Barrier(THREADS)
        settings = ClientSettings(pool_connections=THREADS)
        async with connect_async(store.url, settings=settings) as messaging:

            async def one() -> list[bytes]:
                async with messaging.transaction() as tx:
                    await all_begun.wait()
                    consumer = await messaging.consumer("t", group=group)
                    page = await consumer.poll()
                    await tx.abort()  # so that members of one group do not conflict
                return [message.payload for message in page]

            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.gather(*(one() for _ in range(THREADS)))

    assert asyncio.run(main()) == [[b"a", b"b"]] * THREADS


def test_a_consumer_asked_for_in_a_transaction_moves_with_its_commit(
    store: ServedStore,
) -> None:
    async def main() -> None:
        settings = ClientSettings(pool_connections=1)
        async with (
            asyncio.timeout(DEADLINE_S),
            connect_async(store.url, settings=settings) as messaging,
        ):
            async with messaging.transaction():
                consumer = await messaging.consumer("t", group="g")
                assert [m.payload for m in await consumer.poll(1)] == [b"a"]
            again = await messaging.consumer("t", group="g")
            assert [m.payload for m in await again.poll()] == [b"b"]

    asyncio.run(main())
