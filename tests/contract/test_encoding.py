"""Values for messages: publishers that encode, consumers that decode."""

import asyncio
import dataclasses
import json
from collections import deque
from datetime import UTC, date, datetime
from enum import Enum
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, NotRequired, TypedDict, cast

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
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


@attrs.frozen
class Private:
    """A class of which msgspec would write less."""

    _name: str
    made: int = attrs.field(init=False, default=3)
    days: dict[date, Any] = attrs.field(factory=dict)


class Shade(Enum):
    DARK = "dark"
    RAW = b"raw"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (
            ORDER,
            '{"name":"änn","amount":5,"at":"2026-01-31T12:00:00+00:00","sig":"/w=="}',
        ),
        (Private("a"), '{"_name":"a","days":{}}'),
        (
            Private("a", {date(2026, 1, 31): Shade.DARK}),
            '{"_name":"a","days":{"2026-01-31":"dark"}}',
        ),
        ({b"k": {1: None}}, '{"aw==":{"1":null}}'),
        ([Shade.RAW, (1, b"")], '["cmF3",[1,""]]'),
        (frozenset([1]), "[1]"),
        (MappingProxyType({"a": deque([1.5, True])}), '{"a":[1.5,true]}'),
        (PurePosixPath("/a"), '"/a"'),
    ],
)
def test_each_kind_of_value_is_json_of_its_own(value: object, written: str) -> None:
    found = txaware.to_json(value).decode()
    assert (
        found.replace(": ", ":").replace(", ", ",").replace("signature", "sig")
        == written
    )


def test_a_value_that_has_no_repr_is_named_by_its_class() -> None:
    deep: list[object] = []
    for _ in range(200_000):
        deep = [deep]
    for value, name in ((deep, "list"), (10**5000, "int")):
        with pytest.raises(BadRequest, match=f"^this {name} is no JSON"):
            txaware.to_json(value)


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


@attrs.frozen
class Basket:
    """A class with others inside, and each kind of value."""

    owner: str
    orders: list[Order]
    kind: Literal["gift", "own"] = "own"
    note: str | None = None
    paid: float = 0.0


@dataclasses.dataclass
class Data:
    name: str
    amount: int = 1


class Typed(TypedDict):
    name: str
    amount: NotRequired[int]


class Packed(msgspec.Struct):
    name: str
    amount: int = 1


class Model(pydantic.BaseModel):
    name: str
    amount: int = 1
    at: datetime | None = None


@pydantic.dataclasses.dataclass
class ModelData:
    name: str
    amount: pydantic.PositiveInt = 1


@attrs.frozen
class Around:
    """A class of attrs around those of others."""

    model: Model
    packed: Packed


KINDS: list[Any] = [Order, Data, Typed, Packed, Model, ModelData]


def given(kind: Any, **fields: Any) -> bytes:
    """An object in JSON with what each kind needs."""
    needed = {"amount": 5} if kind is Order else {}
    return json.dumps({"name": "ann"} | needed | fields).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_class_of_values_is_what_decodes(messaging: Messaging, kind: Any) -> None:
    value = kind(name="änn", amount=5)
    messaging.publisher("t", encode=txaware.to_json).publish(value)
    handled: list[Any] = []
    messaging.subscribe("t", handled.append, decode=kind).run_once()
    page = messaging.consumer("t", decode=kind).poll()
    assert values(page) == values(handled) == [value]
    assert type(page[0]) is txaware.Message
    table = messaging.table("values", encode=txaware.to_json, decode=kind)
    table.put(b"k", value)
    assert table.get(b"k") == value
    assert txaware.from_json_as(list[kind])(txaware.to_json([value])) == [value]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_does_not_fit_a_class_of_values_names_the_field(kind: Any) -> None:
    decode, wrong = txaware.from_json_as(kind), cast(Any, None)
    for wrong in (5, None, True, ["ann"], {"a": "b"}, 5.5):
        with pytest.raises(BadRequest, match=rf"is no {kind.__name__}: .*name") as no:
            decode(given(kind, name=wrong))
        assert "\n" not in str(no.value)
    for wrong in ("5", 5.5, True, None, []):
        with pytest.raises(BadRequest, match=rf"is no {kind.__name__}: .*amount"):
            decode(given(kind, amount=wrong))
    with pytest.raises(BadRequest, match=rf"is no {kind.__name__}: .*name"):
        decode(b'{"amount": 5}')
    for wrong in ([], "ann", 5, None):
        with pytest.raises(BadRequest, match=f"is no {kind.__name__}"):
            decode(json.dumps(wrong).encode())
    for payload in (b"", b"{", b'{"name": "ann"} x', b"\xff", b"[" * 100_000):
        with pytest.raises(BadRequest, match="is no "):
            decode(payload)
    assert decode(given(kind, other=[1])) == decode(given(kind))


def test_values_inside_of_values_are_checked_too() -> None:
    basket = Basket("bob", [ORDER], "gift", None, 5)
    assert txaware.from_json_as(Basket)(txaware.to_json(basket)) == basket
    for changed, where in (
        ({"orders": [{"name": 1, "amount": 2}]}, r"orders\[0\]\.name"),
        ({"orders": "text"}, "orders"),
        ({"kind": "other"}, "kind"),
        ({"paid": "5"}, "paid"),
        ({"orders": [{"name": "a", "amount": 1, "at": "noon"}]}, "at"),
    ):
        fields = {"owner": "bob", "orders": []} | changed
        with pytest.raises(BadRequest, match=f"is no Basket: .*{where}"):
            txaware.from_json_as(Basket)(json.dumps(fields).encode())
    around = Around(Model(name="a"), Packed("b"))
    assert txaware.from_json_as(Around)(txaware.to_json(around)) == around
    wrong = b'{"model": {"name": "a", "amount": "1"}, "packed": {"name": "b"}}'
    with pytest.raises(BadRequest, match=r"is no Around: .*amount"):
        txaware.from_json_as(Around)(wrong)


def test_a_class_that_json_cannot_be_read_as_is_refused_at_once() -> None:
    kinds: list[Any] = [Order | Basket, list[Order | Basket], dict[int, Order] | Order]
    for kind in kinds:
        with pytest.raises(BadRequest, match=r"cannot be read as .* give a function"):
            txaware.from_json_as(kind)


@pytest.mark.parametrize("decode", [int, bytes.decode, lambda payload: payload * 2])
def test_any_other_class_or_function_is_called_with_the_payload(
    messaging: Messaging, decode: Any
) -> None:
    messaging.publish("t", [b"12"])
    [message] = messaging.consumer("t", decode=decode).poll()
    assert message.payload == decode(b"12")
    assert message.as_dict()["id"] == str(message.id)


async def awaited(*_: Any) -> Any:
    """Nobody awaits it where a function is called."""


class CalledLater:
    """An object that is called like a coroutine function."""

    async def __call__(self, *_: Any) -> Any: ...


@pytest.mark.parametrize(
    "later", [awaited, CalledLater(), partial(awaited, 5)], ids=["def", "call", "part"]
)
@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("decode", lambda m, f: m.consumer("t", decode=f)),
        ("encode", lambda m, f: m.publisher("t", encode=f)),
        ("decode", lambda m, f: m.table("n", decode=f)),
        ("encode", lambda m, f: m.table("n", encode=f)),
        ("handler", lambda m, f: m.subscribe("t", f)),
        ("decode", lambda m, f: m.subscribe("t", print, decode=f)),
        ("alone", lambda m, f: m.subscribe("t", print, alone=f)),
        ("after_commit", lambda m, f: m.subscribe("t", print, after_commit=f)),
        ("function", lambda m, f: m.process("t", "u", f, group="g", producer="p")),
        ("on_commit", lambda m, f: in_a_block(m, "on_commit", f)),
        ("on_rollback", lambda m, f: in_a_block(m, "on_rollback", f)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_coroutine_function_is_refused_where_it_is_called(
    messaging: Messaging, what: str, call: Any, later: Any
) -> None:
    with pytest.raises(BadRequest, match=rf"^{what} = .* which nobody awaits here"):
        call(messaging, later)


def in_a_block(messaging: Messaging, verb: str, function: Any) -> None:
    with messaging.transaction() as tx:
        getattr(tx, verb)(function)


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
