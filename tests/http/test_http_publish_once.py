"""Publishes of producers over HTTP: lost answers, restarts, forks and tasks."""

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.concurrency import in_threads
from tests.support.http_served import ServedStore
from tests.support.lossy_proxy import LossyProxy
from txaware import Settings, connect, connect_async
from txaware.auth import Principal
from txaware.client import ClientSettings, HttpService, Link, Transport
from txaware.errors import NotAuthorized
from txaware.messaging import Messaging
from txaware.model.producers import ProducerIdentity
from txaware.publish import Producer


def post_json(url: str, body: object, *, key: str | None = None) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = key
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read())


def counted(messaging: Messaging) -> Counter[bytes]:
    return Counter(message.payload for message in messaging.poll("t", limit=10_000))


@pytest.mark.parametrize("frames", [False, True])
def test_each_message_of_many_threads_is_there_once(
    store: ServedStore, frames: bool
) -> None:
    with LossyProxy(store.url, seed=1, one_in=12, double_one_in=4) as proxy:
        link = Link(proxy.url, settings=ClientSettings(frames=frames))
        transport = Transport(link, sleep=lambda _: None)
        service = HttpService(transport)
        producer = Producer(
            service, message_limit_bytes=1 << 20, partitions=lambda _: 1
        )

        def publish(name: int) -> None:
            for number in range(40):
                producer.publish("t", [b"%d %d" % (name, number)])
                service.publish("t", [b"plain %d %d" % (name, number)])

        in_threads(publish, range(3))
        transport.close()
        assert proxy.lost
        assert proxy.doubled or frames  # in frames a request is on its stream alone
    found = counted(store.messaging)
    assert set(found.values()) == {1}
    assert len(found) == 240
    messages = [one.payload for one in store.messaging.poll("t", limit=10_000)]
    for name in range(3):
        own = [one for one in messages if one.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, number) for number in range(40)]


def test_a_plain_publish_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    settings = Settings(janitor_interval_s=0)
    with connect(f"leveldb:{tmp_path / 'data'}", settings=settings) as owner:
        owner.create_topic("t")
        with owner.serve() as server:
            port = int(server.url.rpartition(":")[2])
            client = connect(server.url)
            client.publish("t", [b"1"])
    data = f"leveldb:{tmp_path / 'data'}"
    with (
        client,
        connect(data, settings=settings) as owner,
        owner.serve(port=port),
    ):
        client.publish("t", [b"2"])
        assert set(counted(owner).values()) == {1}
        (own,) = owner.producers()
        owner.forget_producer(own.producer_id)
        client.publish("t", [b"3"])
        assert sorted(counted(owner)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_key_is_known_after_a_restart(tmp_path: Path, size: int) -> None:
    """With its request: another one with the same key is refused."""
    data = f"leveldb:{tmp_path / 'data'}"
    first: dict[str, Any] = {"utf8": "x" * size, "key": "k", "headers": {"h": "1"}}
    messages = [first, {"utf8": "z", "expireAfterMs": 86_400_000}]
    others = [
        *(messages[:1], [*messages, "more"], [messages[0], "z"]),
        *([first | {"utf8": "y" * size}, messages[1]], messages[::-1]),
        *([first | {"key": "l"}, messages[1]], [first | {"headers": {}}, messages[1]]),
    ]
    for key in ("one", "one", "two"):
        with connect(data) as owner, owner.serve() as server:
            if not owner.topics():
                owner.create_topic("t")
            path = server.url + "/v1/namespaces/default/topics/t/publish"
            post_json(path, {"messages": messages}, key=key)
            count = len(owner.poll("t"))
    assert count == 4
    with connect(data) as owner, owner.serve() as server:
        path = server.url + "/v1/namespaces/default/topics/t/publish"
        for other in others:
            with pytest.raises(urllib.error.HTTPError, match="422") as refused:
                post_json(path, {"messages": other}, key="one")
            assert b"has been used for another request" in refused.value.read()
        assert len(owner.poll("t")) == 4
        owner.delete_topic("t")
        owner.create_topic("t")  # what is known of the messages is how many
        post_json(path, {"messages": messages}, key="one")
        assert not owner.poll("t")


def test_a_forked_child_publishes_by_producers_of_its_own(store: ServedStore) -> None:
    service = HttpService(Transport(Link(store.url)))
    service.publish("t", [b"parent 0"])
    child = os.fork()
    if not child:
        try:
            for number in range(3):
                service.publish("t", [b"child %d" % number])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    for number in range(1, 3):
        service.publish("t", [b"parent %d" % number])
    service.close()
    assert set(counted(store.messaging).values()) == {1}
    assert len(counted(store.messaging)) == 6


def test_json_has_producers_too(store: ServedStore) -> None:
    opened = post_json(store.url + "/v1/producers", {})
    body = {**{"epoch": 0, "sequence": 0}, "producerId": opened["producerId"]}
    path = store.url + "/v1/namespaces/default/topics/t/publish-once"
    first = post_json(path, {**body, "messages": ["a", {"utf8": "b"}]})
    again = post_json(path, {**body, "messages": ["a", {"utf8": "b"}]})
    assert first == again
    ids = [str(message.id) for message in store.messaging.poll("t")]
    assert first == {"ids": ids}


def test_calls_of_many_tasks_keep_their_order(store: ServedStore) -> None:
    async def publish() -> list[bytes]:
        async with (
            connect_async(store.url) as messaging,
            messaging.producer() as producer,
        ):
            calls = [producer.publish("t", [b"%03d" % n]) for n in range(50)]
            found = await asyncio.gather(*calls)
        return [bytes(ids[0]) for ids in found]

    found = asyncio.run(publish())
    messages = store.messaging.poll("t", limit=100)
    assert [one.payload for one in messages] == [b"%03d" % n for n in range(50)]
    assert [bytes(one.id) for one in messages] == found


def test_producers_that_clients_draw_count_for_their_principal() -> None:
    settings = Settings(max_producers_per_principal=2)
    with connect("memory:", settings=settings) as messaging:
        messaging.create_topic("t")
        assert messaging._parts.served is not None
        producing = messaging._parts.served.service.producing
        first = producing.open_producer(owner="ann")
        own = ProducerIdentity(77, by_client=True)
        ann = Principal(name="ann")
        producing.publish_once("t", [b"a"], producer=own, sequence=0, caller=ann)
        with pytest.raises(NotAuthorized, match="max_producers_per_principal"):
            producing.open_producer(owner="ann")
        producing.open_producer(owner="bob")
        messaging.forget_producer(first.producer_id)
        producing.open_producer(owner="ann")
