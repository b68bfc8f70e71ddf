"""What the verbs see inside a block: its snapshot, unless the call says otherwise."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.transaction import Transaction
from tests.support.concurrency import in_loop
from tests.support.http_served import served
from tests.support.messagings import payloads, publish
from txaware.client.aio.async_messaging import connect_async
from txaware.errors import BadRequest, MisusedTransaction
from txaware.messaging import Messaging
from txaware.model.messages import MessageId


def test_a_poll_in_a_block_sees_its_own_rows_and_stops_at_undecided_ones(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"before"])
    with messaging.transaction() as tx:
        other = messaging.coordinator.start_short()
        publish(messaging, b"own", transaction=tx.transaction)
        publish(messaging, b"open", transaction=other)
        messaging.publish("t", [b"behind it"])
        page = messaging.poll("t")
        assert payloads(page) == [b"before", b"own"]
        assert page.blocked_by is not None
        assert page.blocked_by.pointer == other.transaction_id
        assert page == messaging.poll("t", transaction=tx.transaction)
    everything = [b"before", b"own", b"open", b"behind it"]
    assert payloads(messaging.poll("t")) == everything
    messaging.coordinator.invalidate(other)


def test_what_commits_after_the_block_began_is_not_seen_in_it(
    messaging: Messaging,
) -> None:
    with messaging.transaction():
        other = messaging.coordinator.start_short()
        publish(messaging, b"later", transaction=other)
        messaging.coordinator.can_commit(other, [])
        messaging.coordinator.commit(other)
        assert payloads(messaging.poll("t")) == []
        assert payloads(messaging.poll("t", isolation="committed")) == [b"later"]
    assert payloads(messaging.poll("t")) == [b"later"]


def test_an_isolation_that_is_named_counts_in_a_block_too(
    messaging: Messaging,
) -> None:
    with messaging.transaction() as tx:
        publish(messaging, b"own", transaction=tx.transaction)
        assert payloads(messaging.poll("t", isolation="uncommitted")) == [b"own"]
        assert payloads(messaging.poll("t", isolation="committed")) == []
        assert payloads(messaging.poll("t", isolation="uncommitted", wait_s=9)) == [
            b"own"
        ]


def test_a_poll_in_a_block_does_not_wait_for_what_it_cannot_see(
    messaging: Messaging,
) -> None:
    with messaging.transaction():
        with pytest.raises(BadRequest, match="cannot wait: its snapshot sees nothing"):
            messaging.poll("t", wait_s=60)
        assert messaging.poll("t", wait_s=0) == []


def test_a_position_in_a_block_is_the_one_that_its_snapshot_sees(
    messaging: Messaging,
) -> None:
    first, second, third = (MessageId.of(ms) for ms in (1, 2, 3))
    with messaging.transaction() as tx:
        messaging.save_position("g", "t", first, transaction=tx.transaction)
        assert messaging.position("g", "t") == first
    with messaging.transaction() as tx:
        other = messaging.coordinator.start_short()
        messaging.save_position("g", "t", third, transaction=other)
        messaging.coordinator.can_commit(other, [])
        messaging.coordinator.commit(other)
        assert messaging.position("g", "t") == first
        messaging.save_position("g", "t", second, transaction=tx.transaction)
        assert messaging.position("g", "t") == second
    assert messaging.position("g", "t") == third


@pytest.mark.parametrize("verb", ["poll", "position"])
def test_a_block_that_was_rolled_back_shows_nothing_more(
    messaging: Messaging, verb: str
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: messaging.poll("t"),
        "position": lambda: messaging.position("g", "t"),
    }
    with messaging.transaction() as tx:
        tx.abort()
        with pytest.raises(MisusedTransaction, match=f"{verb}\\(\\) needs an active"):
            calls[verb]()
        assert messaging.poll("t", isolation="uncommitted") == []


def test_a_block_is_of_its_thread(messaging: Messaging) -> None:
    found: list[list[bytes]] = []
    with messaging.transaction() as tx:
        publish(messaging, b"own", transaction=tx.transaction)
        elsewhere = threading.Thread(
            target=lambda: found.append(payloads(messaging.poll("t")))
        )
        elsewhere.start()
        elsewhere.join()
    assert found == [[b"own"]]


def test_who_flushes_reads_what_the_block_sees(messaging: Messaging) -> None:
    class Reader:
        transaction_aware_name = "reader"
        seen: list[bytes] | None = None

        def __getattr__(self, name: str) -> Any:
            return lambda *_: True

        def get_tx_changes(self) -> list[bytes]:
            return []

        def commit_tx(self) -> bool:
            self.seen = payloads(messaging.poll("t"))
            return True

    other = messaging.coordinator.start_short()
    publish(messaging, b"open", transaction=other)
    reader = Reader()
    with messaging.transaction(reader):
        pass
    assert reader.seen == []
    messaging.coordinator.invalidate(other)


def test_nothing_escapes_from_a_block_by_a_loop_that_runs_inside_it(
    messaging: Messaging,
) -> None:
    consumer = messaging.consumer("t")
    group = messaging.consumer("t", group="g")
    publisher = messaging.publisher("t")
    subscriber = messaging.subscribe("t", print, group="g")
    calls: list[Callable[[Transaction], object]] = [
        lambda tx: publisher.publish(b"escaped"),
        lambda tx: publisher.publish_all([b"escaped"]),
        lambda tx: messaging.publisher("t").publish(b"escaped"),
        lambda tx: publish(messaging, b"escaped", transaction=tx),
        lambda tx: messaging.store("t", [b"escaped"], transaction=tx),
        lambda tx: messaging.save_position("g", "t", MessageId.of(5), transaction=tx),
        lambda tx: messaging.poll("t"),
        lambda tx: messaging.position("g", "t"),
        lambda tx: consumer.poll(),
        lambda tx: consumer.position,
        lambda tx: group.poll(),
        lambda tx: group.seek("first"),
        lambda tx: group.commit(),
        lambda tx: subscriber.run(),
    ]
    refused = 0

    async def main(tx: Transaction) -> None:
        nonlocal refused
        for call in calls:
            with pytest.raises(MisusedTransaction, match="outside of the event loop"):
                call(tx)
            refused += 1
        with messaging.transaction():
            messaging.publisher("t").publish(b"of its own")

    def run_and_fail() -> None:
        asyncio.run(main(tx.transaction))
        publisher.publish(b"rolled back")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), messaging.transaction() as tx:
        run_and_fail()
    assert refused == len(calls)
    assert payloads(messaging.poll("t")) == [b"of its own"]
    assert messaging.position("g", "t") is None


@in_loop
async def test_a_poll_in_a_block_of_a_task_sees_its_snapshot() -> None:
    with served() as store:
        store.messaging.create_topic("t")
        async with connect_async(store.url) as messaging:
            other = store.messaging.coordinator.start_short()
            async with messaging.transaction() as tx:
                await messaging.publish("t", [b"own"], transaction=tx.transaction)
                publish(store.messaging, b"open", transaction=other)
                here = MessageId.of(5)
                await messaging.save_position(
                    "g", "t", here, transaction=tx.transaction
                )
                assert payloads(await messaging.poll("t")) == [b"own"]
                assert await messaging.position("g", "t") == here
                named = await messaging.poll("t", isolation="uncommitted")
                assert payloads(named) == [b"own", b"open"]
                with pytest.raises(BadRequest, match="cannot wait"):
                    await messaging.poll("t", wait_s=60)
                await tx.abort()
                with pytest.raises(MisusedTransaction, match=r"poll\(\) needs"):
                    await messaging.poll("t")
            assert payloads(await messaging.poll("t")) == [b"own", b"open"]
            store.messaging.coordinator.invalidate(other)
