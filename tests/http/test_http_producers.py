"""Transactional producers over the network: restarts of the server, and asyncio."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.transaction_status import OPEN, standings
from tests.support.concurrency import in_loop
from tests.support.doubles import Recorder
from tests.support.http_served import served
from tests.support.messagings import committed
from tests.support.ports import free_port
from txaware.client.aio.async_messaging import connect_async
from txaware.client.transport import Transport
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    ProducerFenced,
    Unavailable,
)
from txaware.messaging import Messaging


def test_a_transaction_survives_a_restart_until_another_client_opens_its_producer(
    tmp_path: Path,
) -> None:
    data, port = f"leveldb:{tmp_path / 'data'}", free_port()
    with txaware.connect(data) as owner, owner.serve(port=port) as server:
        owner.create_topic("t")
        url = server.url
        kept = txaware.connect(url)
        left = txaware.connect(url)
        one, two = kept.producer("kept"), left.producer("left")
        for producer in (one, two):
            producer.begin(timeout_s=600)
            producer.publish("t", [producer.transactional_id.encode()])
    with txaware.connect(data) as owner, owner.serve(port=port):
        one.commit()
        with txaware.connect(url) as other:
            newer: Any = other.producer("left")
            assert newer.commits == 0
        assert not owner.coordinator.snapshot().in_progress
        with pytest.raises(ProducerFenced):
            two.commit()
        assert committed(owner) == [b"kept"]
        assert one.commits == 1
        assert not owner.coordinator.snapshot().in_progress
        kept.close()
        left.close()


@in_loop
async def test_the_asyncio_client_has_the_same_producers() -> None:
    with served() as store:
        store.messaging.create_topic("t")
        store.messaging.publish("t", [b"in"])
        store.messaging.create_topic("out")
        async with connect_async(store.url) as messaging:
            consumer = await messaging.consumer("t", group="g")
            async with messaging.producer("p") as producer:
                async with producer.transaction(Recorder()):
                    await producer.publish("out", [b"block"])
                page = await consumer.poll()
                await producer.begin()
                await producer.publish("out", [message.payload for message in page])
                await producer.save_positions(consumer)
                await producer.commit()
                await producer.begin()
                await producer.publish("out", [b"undone"])
                await producer.abort()
                assert not await producer.run_once("k", lambda tx: tx.abort())
                assert await producer.run_once("k", lambda: None)
                assert not await producer.run_once("k", lambda: None)
                assert await producer.commits() == 3

                async def step() -> None:
                    await producer.publish("out", [b"step"])
                    await messaging.publisher("out").publish(b"joined")

                with pytest.raises(BadRequest, match="a coroutine"):
                    await producer.run_once("step", lambda: step())
                assert await producer.run_once("step", step)
                assert not await producer.run_once("step", step)
                assert await producer.commits() == 4
                with pytest.raises(MisusedTransaction, match="no transaction"):
                    await producer.commit()
                async with messaging.producer("p") as newer:
                    assert newer.epoch == producer.epoch + 1
                    with pytest.raises(ProducerFenced):
                        await producer.begin()
        assert committed(store.messaging, "out") == [
            *(b"block", b"in", b"step", b"joined"),
        ]
        assert store.messaging.position("g", "t") == store.messaging.bounds("t").last


@pytest.fixture
def remote() -> Iterator[tuple[Messaging, Messaging]]:
    """A store, and a client of its server."""
    with served() as store, txaware.connect(store.url) as client:
        store.messaging.create_topic("t")
        yield store.messaging, client


def test_a_transaction_is_begun_and_entered_in_one_request(
    remote: tuple[Messaging, Messaging], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, client = remote
    asked: list[str] = []
    perform = Transport.perform

    def noted(transport: Transport, call: Any) -> Any:
        asked.append(call.path)
        return perform(transport, call)

    producer = client.producer("p")
    monkeypatch.setattr(Transport, "perform", noted)
    producer.begin(timeout_s=5)
    assert asked == ["/v1/transactional-ids/p/begin"]
    [standing] = standings(store.coordinator, OPEN)
    assert standing.expires_ms is not None
    assert 4000 < standing.expires_ms - standing.began_ms <= 5000
    producer.publish("t", [b"m"])
    producer.commit()
    assert (committed(store), producer.commits) == ([b"m"], 1)


def test_a_begin_that_is_refused_leaves_nothing_open(
    remote: tuple[Messaging, Messaging],
) -> None:
    store, client = remote
    old, new = client.producer("p"), client.producer("p")
    with pytest.raises(ProducerFenced):
        old.begin()
    for timeout_s in (0, -1, 1e300):
        with pytest.raises(BadRequest):
            new.begin(timeout_s=timeout_s)
    with pytest.raises(ZeroDivisionError):
        new.begin(Recorder(start_tx=ZeroDivisionError()))
    snapshot = store.coordinator.snapshot()
    assert not snapshot.in_progress
    assert not snapshot.invalids
    assert new.commits == 0
    with new.transaction():
        new.publish("t", [b"m"])
    assert (committed(store), new.commits) == ([b"m"], 1)


def test_what_a_begin_without_an_answer_left_ends_with_the_next(
    remote: tuple[Messaging, Messaging], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, client = remote
    producer = client.producer("p")
    perform = Transport.perform

    def unanswered(transport: Transport, call: Any) -> Any:
        answer = perform(transport, call)
        if call.path.endswith("/begin"):
            raise Unavailable("the answer was lost")
        return answer

    with monkeypatch.context() as away:
        away.setattr(Transport, "perform", unanswered)
        with pytest.raises(Unavailable):
            producer.begin()
    [left] = store.coordinator.snapshot().in_progress
    producer.begin()
    producer.publish("t", [b"m"])
    assert left not in store.coordinator.snapshot().in_progress
    producer.commit()
    assert (committed(store), producer.commits) == ([b"m"], 1)


def test_with_a_coordinator_elsewhere_a_begin_goes_there(tmp_path: Path) -> None:
    with (
        txaware.connect(f"leveldb:{tmp_path / 'c'}") as other,
        other.serve() as decides,
    ):
        data = f"leveldb:{tmp_path / 'data'}"
        with (
            txaware.connect(data, coordinator=decides.url) as owner,
            owner.serve() as server,
            txaware.connect(server.url, coordinator=decides.url) as client,
        ):
            owner.create_topic("t")
            producer = client.producer("p")
            producer.begin()
            producer.publish("t", [b"m"])
            assert len(other.coordinator.snapshot().in_progress) == 1
            producer.commit()
            assert (committed(owner), producer.commits) == ([b"m"], 1)
