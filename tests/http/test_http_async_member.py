"""A member of a group in asyncio."""

import asyncio
from collections.abc import Iterator

import pytest

import txaware
from txaware.errors import MisusedTransaction
from txaware.messaging import Messaging


@pytest.fixture
def served() -> Iterator[Messaging]:
    with txaware.connect("memory:") as messaging, messaging.serve():
        messaging.create_topic("orders", partitions=3)
        for number in range(3):
            messaging.publish(f"orders.{number}", [b"%d-0" % number, b"%d-1" % number])
        yield messaging


def test_it_polls_in_a_block_and_the_commit_moves_it(served: Messaging) -> None:
    async def run() -> None:
        async with (
            txaware.connect_async(served.reach().url) as messaging,
            messaging.member("billing", topics=["orders"]) as m,
        ):
            async with messaging.transaction():
                assert len(await m.poll()) == 6
            async with messaging.transaction():
                assert await m.poll() == []
            assert m.assignment == {"orders": [0, 1, 2]}
            assert await m.lag() == {"orders": {0: 0, 1: 0, 2: 0}}
            with pytest.raises(MisusedTransaction, match="outside"):
                async with messaging.transaction():
                    await m.commit()

    asyncio.run(run())
    assert served.position("billing", "orders.2") is not None


def test_a_loop_stands_behind_the_message_in_hand(served: Messaging) -> None:
    async def run() -> None:
        async with txaware.connect_async(served.reach().url) as messaging:
            got = []
            async with messaging.member("billing", topics=["orders"]) as m:
                async for message in m:
                    got.append(message.payload)
                    if len(got) == 2:
                        await m.commit()
                    if len(got) == 4:
                        break
            async with messaging.member("billing", topics=["orders"]) as m:
                got = got[:2] + [one.payload for one in await m.poll()]
                await m.rollback()
            assert sorted(got) == [b"%d-%d" % (n, p) for n in range(3) for p in (0, 1)]

    asyncio.run(run())


def test_a_poll_that_is_cancelled_loses_nothing(served: Messaging) -> None:
    async def run() -> None:
        async with txaware.connect_async(served.reach().url) as messaging:
            member = messaging.member("billing", topics=["orders"], start="next")
            async with member as m:
                waiting = asyncio.create_task(m.poll(timeout_s=30))
                await asyncio.sleep(0.05)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await messaging.publish("orders.1", [b"new"])
                assert await m.wait(30)
                assert [one.payload for one in await m.poll(timeout_s=30)] == [b"new"]

    asyncio.run(run())
