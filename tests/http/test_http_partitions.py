"""Partitions over HTTP and in asyncio: rights, numbers, the page, and copies."""

import asyncio
import io
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.concurrency import in_loop
from tests.support.http_access import Guarded, guarded
from tests.support.http_served import ServedStore, served
from txaware.errors import BadRequest, NotAuthorized, PartitionNeeded, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer.backup import restore

SETTINGS = Settings(janitor_interval_s=0)
SENT = [Outgoing(b"%d" % n, b"key-%d" % (n % 20)) for n in range(60)]


@pytest.fixture
def store() -> Iterator[ServedStore]:
    with served(long_poll_s=0.1) as opened:
        opened.messaging.create_topic("orders", partitions=3)
        yield opened


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path) as found:
        found.messaging.update_topic("orders", partitions=3)
        yield found


def got(store: ServedStore, path: str) -> str:
    with urllib.request.urlopen(store.url + path) as answer:
        return str(answer.read().decode())


def counts(messaging: Messaging) -> list[int]:
    return [len(messaging.poll(f"orders.{n}", limit=1000)) for n in range(3)]


def test_the_rights_of_a_partition_are_those_of_its_topic(site: Guarded) -> None:
    url = site.server.url
    with txaware.connect(url, token=site.tokens["writer"]) as writer:
        writer.publish("orders.1", [b"a"])
        writer.publish("orders", [*SENT])
        with pytest.raises(NotAuthorized, match="may not consume from topic orders"):
            writer.poll("orders.1")
    with (
        txaware.connect(url, token=site.tokens["rival"]) as rival,
        pytest.raises(NotAuthorized, match="create, change or delete topic orders"),
    ):
        rival.update_topic("orders", partitions=9)
    with txaware.connect(url, token=site.tokens["consumer"]) as reader:
        assert len(reader.poll("orders", limit=1000)) == 61
        with pytest.raises(NotAuthorized, match="may not publish to topic orders"):
            reader.publish("orders.2", [b"a"])


@pytest.mark.parametrize("frames", [True, False])
def test_both_ways_tell_the_same_of_partitions(
    store: ServedStore, frames: bool
) -> None:
    store.messaging.publish("orders", [*SENT])
    whole = store.messaging.poll("orders", limit=1000)
    with txaware.connect(store.server.url, frames=frames) as client:
        assert client.poll("orders", limit=1000) == whole
        assert client.poll("orders", limit=1000).next == whole.next
        one = client.poll("orders.2", limit=1000)
        assert one == store.messaging.poll("orders.2", limit=1000)
        assert client.offsets("orders") == store.messaging.offsets("orders")
        with pytest.raises(PartitionNeeded, match=r"name one of them, as orders\.0"):
            client.bounds("orders")
        with pytest.raises(TopicNotFound, match="has 3 partitions"):
            client.poll("orders.3")


def test_a_client_publishes_to_new_partitions_at_once(store: ServedStore) -> None:
    with txaware.connect(store.server.url) as client:
        client.publish("orders", [*SENT])
        store.messaging.update_topic("orders", partitions=30)
        client.publish("orders", [*SENT])
        most = max(one.partition for one in client.poll("orders", limit=1000))
        assert most > 2
        client.delete_topic("orders")
        client.create_topic("orders")
        client.publish("orders", [*SENT])
        assert {one.partition for one in client.poll("orders")} == {0}


def test_the_page_and_the_metrics_name_partitions(store: ServedStore) -> None:
    messaging = store.messaging
    messaging.publish("orders", [*SENT])
    consumer = messaging.consumer("orders", partition=0, group="g")
    with messaging.transaction():
        consumer.poll(1)
    whole = messaging.consumer("orders", group="all")
    with messaging.transaction():
        whole.poll(1000)
    with messaging.transaction() as tx:
        messaging.publish("orders.2", [b"open"], transaction=tx.transaction)
        report = json.loads(got(store, "/v1/overview"))
        found = {one["topic"]: one for one in report["topics"]}
        assert found.keys() == {"orders.0", "orders.1", "orders.2"}
        assert found["orders.2"]["blockedBy"]["pointer"] > 0
        assert found["orders.0"]["blockedBy"] is None
        groups = {(one["group"], one["topic"]) for one in report["groups"]}
        assert groups == {
            *{("all", f"orders.{number}") for number in range(3)},
            ("g", "orders.0"),
        }
        assert report["leftOut"] == []
    text = got(store, "/metrics")
    assert 'topic="orders.0"' in text
    assert 'topic="orders.2"' in text
    lags = messaging.metrics().groups
    assert {(one.group, one.topic) for one in lags} == groups


def test_asyncio_publishes_polls_and_consumes_partitions(store: ServedStore) -> None:
    @in_loop
    async def work() -> None:
        async with txaware.connect_async(store.server.url) as client:
            await client.create_topic("new", partitions=2)
            assert await client.partitions("new") == 2
            await client.update_topic("new", partitions=3)
            await client.publish("orders", [*SENT])
            page = await client.poll("orders", limit=7)
            rest = await client.poll(
                "orders", start=page.next, inclusive=False, limit=1000
            )
            assert len(page) + len(rest) == 60
            [named] = [await client.poll("orders.1", limit=1000)]
            assert {one.partition for one in named} == {1}
            async with client.transaction():
                publisher = client.publisher("orders")
                for message in SENT:
                    await publisher.publish(message)
            assert sum(counts(store.messaging)) == 120
            offsets = await client.offsets("orders", at="stable")
            assert offsets == store.messaging.offsets("orders")
            consumer = await client.consumer("orders", partition=1, group="g")
            async with client.transaction():
                found = await consumer.poll(1000)
            assert len(found) == counts(store.messaging)[1]
            whole = await client.consumer("orders")
            seen = []
            async with asyncio.timeout(20):
                async for each in whole:
                    seen.append(each)
                    if len(seen) == 120:
                        break
            assert len({(one.partition, one.id) for one in seen}) == 120
            async with client.producer() as producer:
                assert len(await producer.publish("orders", [*SENT])) == 60
                assert len(await producer.publish("orders", [*SENT])) == 60

    work()
    assert sum(counts(store.messaging)) == 240


def test_partitions_are_copied_and_restored(tmp_path: Path) -> None:
    here, there = f"leveldb:{tmp_path / 'here'}", f"leveldb:{tmp_path / 'there'}"
    file = io.BytesIO()
    with txaware.connect(here, settings=SETTINGS) as messaging:
        messaging.create_topic("orders", partitions=3)
        publisher = messaging.publisher("orders", buffer_limit_bytes=100)
        with messaging.transaction():
            for message in SENT:
                publisher.publish(message)
        consumer = messaging.consumer("orders", group="g")
        with messaging.transaction():
            consumer.poll(10)
        before = messaging.poll("orders", limit=1000, isolation="committed")
        messaging.backup(file)
    txaware.copy(here, there, settings=SETTINGS)
    file.seek(0)
    restore(file, tmp_path / "restored", SETTINGS)
    for found in ("there", "restored"):
        report = check_directory(tmp_path / found, SETTINGS)
        assert report.is_clean, report.problems
        with txaware.connect(f"leveldb:{tmp_path / found}", settings=SETTINGS) as copy:
            assert copy.partitions("orders") == 3
            after = copy.poll("orders", limit=1000, isolation="committed")
            assert after == before
            rest = copy.consumer("orders", group="g").poll(1000)
            assert len(rest) == 50


def test_rows_of_no_partition_are_found(tmp_path: Path) -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("orders", partitions=3)
        messaging.publish("orders.2", [b"a"])
        table = messaging._administration._table  # type: ignore[attr-defined]
        [(key, value)] = table.scan(b"mdefault:orders.2:")
        table.submit([(b"mdefault:orders.7:" + key, value)])()
        [problem] = messaging.check().problems
        assert "orders.7" in problem.sentence


def test_a_subscriber_without_a_group_is_refused_a_whole_topic(
    store: ServedStore,
) -> None:
    store.messaging.publish("orders", [*SENT])
    with pytest.raises(BadRequest, match="name one of them here, as orders"):
        store.messaging.subscribe("orders", lambda _: None).run_once()
