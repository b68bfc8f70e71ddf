"""Tables for asyncio."""

import asyncio

import pytest

from tests.support.http_raw import Served
from txaware import AsyncMessaging, TransactionConflict, connect_async


async def rows_of(messaging: AsyncMessaging) -> list[tuple[bytes, bytes]]:
    table = await messaging.table("accounts")
    return [row async for row in table.items()]


def test_rows_commit_with_messages_and_roll_back_with_them(served: Served) -> None:
    async def run() -> None:
        async with connect_async(served.url) as messaging:
            await messaging.create_topic("a")
            table = await messaging.table("accounts")
            async with messaging.transaction(table):
                await table.put(b"ann", b"5")
                await messaging.publisher("a").publish(b"ann has 5")
                assert await table.get(b"ann") == b"5"
            assert await rows_of(messaging) == [(b"ann", b"5")]

            async def delete_and_fail() -> None:
                async with messaging.transaction():
                    await table.delete(b"ann")
                    assert await rows_of(messaging) == []
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await delete_and_fail()
            await table.put(b"bob", b"1")
            assert await rows_of(messaging) == [(b"ann", b"5"), (b"bob", b"1")]
            assert await messaging.tables() == ["accounts"]

    asyncio.run(run())


def test_two_tasks_that_change_one_row_conflict(served: Served) -> None:
    async def run() -> None:
        async with connect_async(served.url) as messaging:
            table = await messaging.table("n", encode=lambda n: b"%d" % n, decode=int)
            await table.put(b"n", 1)
            both_read = asyncio.Barrier(2)

            async def add() -> None:
                async with messaging.transaction():
                    value = await table.get(b"n") or 0
                    await both_read.wait()
                    await table.put(b"n", value + 1)

            ends = await asyncio.gather(add(), add(), return_exceptions=True)
            assert sorted(map(type, ends), key=str) == sorted(
                [type(None), TransactionConflict], key=str
            )
            assert await table.get(b"n") == 2

    asyncio.run(run())


def test_many_rows_come_page_by_page(served: Served) -> None:
    async def run() -> None:
        async with connect_async(served.url) as messaging:
            table = await messaging.table("accounts")
            async with messaging.transaction():
                for number in range(2100):
                    await table.put(b"%05d" % number, b"x")
            found = [
                key async for key, _ in table.scan(b"0", start=b"00005", limit=2050)
            ]
            assert found == [b"%05d" % number for number in range(5, 2055)]

    asyncio.run(run())
