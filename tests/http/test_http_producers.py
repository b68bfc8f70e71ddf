"""Transactional producers over the network: restarts of the server, and asyncio."""

from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.concurrency import in_loop
from tests.support.doubles import Recorder
from tests.support.http_served import served
from tests.support.messagings import committed
from tests.support.ports import free_port
from txaware.errors import MisusedTransaction, ProducerFenced
from txaware.http.client.aio import connect_async


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
                assert await producer.run_once("k", lambda: None)
                assert not await producer.run_once("k", lambda: None)
                assert await producer.commits() == 3
                with pytest.raises(MisusedTransaction, match="no transaction"):
                    await producer.commit()
                async with messaging.producer("p") as newer:
                    assert newer.epoch == producer.epoch + 1
                    with pytest.raises(ProducerFenced):
                        await producer.begin()
        assert committed(store.messaging, "out") == [b"block", b"in"]
        assert store.messaging.position("g", "t") == store.messaging.bounds("t").last
