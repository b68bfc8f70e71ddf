"""Values for messages: publishers that encode, consumers that decode."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

import txaware
from tests.support.messagings import payloads
from txaware.errors import BadRequest
from txaware.messaging import Messaging

outgoing: Any = txaware.Outgoing


@attrs.frozen
class Order:
    """What most examples send."""

    name: str
    amount: int
    at: datetime | None = None
    signature: bytes = b""


ORDER = Order("änn", 5, datetime(2026, 1, 31, 12, tzinfo=UTC), b"\xff")
VALUES = [{"a": [1, 2.5, None, True]}, "text", 5, ["ä"]]


def values(page: list[Any]) -> list[Any]:
    return [one.payload for one in page]


def test_values_are_json_on_the_way(messaging: Messaging) -> None:
    publisher = messaging.publisher("t", encode=txaware.to_json)
    publisher.publish(VALUES[0])
    with messaging.transaction():
        publisher.publish_all(VALUES[1:])
        publisher.publish(outgoing({"b": 1}, key=b"k", headers={"h": b"v"}))
    assert payloads(messaging.poll("t")) == [
        b'{"a": [1, 2.5, null, true]}',
        b'"text"',
        b"5",
        '["ä"]'.encode(),
        b'{"b": 1}',
    ]
    page = messaging.consumer("t", decode=txaware.from_json).poll()
    assert values(page) == [*VALUES, {"b": 1}]
    labelled = page[-1]
    assert (labelled.key, labelled.headers) == (b"k", {"h": b"v"})
    assert labelled.time == messaging.poll("t")[-1].time
    assert page.next == messaging.poll("t").next


def test_attrs_classes_come_back_as_they_were(messaging: Messaging) -> None:
    messaging.publisher("t", encode=txaware.to_json).publish_all([ORDER, Order("b", 1)])
    consumer = messaging.consumer("t", decode=txaware.from_json_as(Order), group="g")
    with messaging.transaction():
        assert values(consumer.poll()) == [ORDER, Order("b", 1)]
    handled: list[Any] = []
    subscriber = messaging.subscribe(
        "t", handled.append, decode=txaware.from_json_as(Order)
    )
    subscriber.run_once()
    assert values(handled) == [ORDER, Order("b", 1)]


@pytest.mark.parametrize(
    "odd", [object(), float("nan"), {"a": object()}, "\ud800"], ids=type
)
def test_a_value_that_is_no_json_publishes_nothing(
    messaging: Messaging, odd: object
) -> None:
    publisher = messaging.publisher("t", encode=txaware.to_json)
    with pytest.raises(BadRequest, match="is no JSON"):
        publisher.publish(odd)
    with pytest.raises(BadRequest, match="is no JSON"):
        publisher.publish_all([1, odd])
    encodes_text: Any = str
    with pytest.raises(BadRequest, match="a payload is bytes"):
        messaging.publisher("t", encode=encodes_text).publish(5)
    assert payloads(messaging.poll("t")) == []


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"no", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[]", "is no Order"),
        (b'{"name": "a"}', "amount"),
        (b'{"name": "a", "amount": "b"}', "amount"),
    ],
)
def test_what_is_no_such_value_says_why(payload: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as no:
        txaware.from_json_as(Order)(payload)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_stands_where_it_stood_when_a_payload_cannot_be_read(
    messaging: Messaging, group: str | None
) -> None:
    messaging.publish("t", [b"1", b"2", b"no", b"3"])
    consumer = messaging.consumer("t", decode=txaware.from_json, group=group)
    assert values(consumer.poll(2)) == [1, 2]
    for _ in range(2):
        with pytest.raises(BadRequest, match="is no JSON"):
            consumer.poll()
    if group is not None:
        consumer.commit()
    with pytest.raises(BadRequest, match="is no JSON"):
        read_in_transaction(messaging, consumer)
    with pytest.raises(BadRequest, match="is no JSON"):
        consumer.poll()
    consumer.seek(messaging.poll("t", limit=3).next, inclusive=False)
    assert values(consumer.poll()) == [3]


def read_in_transaction(messaging: Messaging, consumer: txaware.Consumer) -> None:
    with messaging.transaction():
        consumer.seek("first")
        consumer.poll()


def test_values_over_asyncio() -> None:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        messaging.create_topic("t")

        async def use() -> list[Any]:
            async with txaware.connect_async(server.url) as client:
                publisher = client.publisher("t", encode=txaware.to_json)
                await publisher.publish(VALUES[0])
                async with client.transaction():
                    await publisher.publish_all([ORDER, outgoing(5, key=b"k")])
                reader = await client.consumer("t", decode=txaware.from_json)
                return [*await reader.poll()]

        found = asyncio.run(use())
    assert [one.payload for one in found][::2] == [VALUES[0], 5]
    assert txaware.from_json_as(Order)(txaware.to_json(found[1].payload)) == ORDER
    assert found[2].key == b"k"
