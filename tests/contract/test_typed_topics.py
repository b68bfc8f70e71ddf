"""Topics of typed events: written as JSON, read as their class, bytes for others."""

import asyncio
import dataclasses
import json
from typing import Any, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest

import txaware
from tests.support.messagings import Site
from txaware.errors import BadRequest, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.event_type import EventType
from txaware.model.labels import MAX_HEADERS_BYTES


@attrs.frozen
class Attrs:
    """An order."""

    name: str
    amount: int = 1
    _note: str = ""


@dataclasses.dataclass
class Data:
    """An order."""

    name: str
    amount: int = 1


class Struct(msgspec.Struct, kw_only=True):
    """An order."""

    name: str
    amount: int = 1


class Dict(TypedDict):
    """An order."""

    name: str
    amount: NotRequired[int]


class Model(pydantic.BaseModel):
    """An order."""

    name: str
    amount: int = 1


@pydantic.dataclasses.dataclass
class PydanticData:
    """An order."""

    name: str
    amount: int = 1


@dataclasses.dataclass
class Basket:
    """An event with others inside."""

    first: Model
    others: list[Attrs]


KINDS: list[Any] = [Attrs, Data, Struct, Dict, Model, PydanticData]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_published_is_consumed_as_it_was(
    messaging: Messaging, kind: Any
) -> None:
    orders = messaging.topic("t", type=kind)
    orders.publish(kind(name="änn", amount=5))
    with messaging.transaction():
        orders.publish(kind(name="bob", amount=2), key=b"bob", headers={"h": b"v"})
        orders.publish_all([kind(name="c", amount=3), txaware.Outgoing(kind(name="d"))])
    expected = [
        kind(name="änn", amount=5),
        kind(name="bob", amount=2),
        kind(name="c", amount=3),
        kind(name="d"),
    ]
    with messaging.transaction():
        page = orders.consumer(group="g").poll()
    assert [message.payload for message in page] == expected
    handled: list[Any] = []
    assert orders.subscribe(handled.append, group="h").run_once() == 4
    assert [message.payload for message in handled] == expected
    raw = messaging.poll("t")
    labels = {"content-type": b"application/json", "type": kind.__name__.encode()}
    assert [message.headers for message in raw] == [
        labels,
        {**labels, "h": b"v"},
        labels,
        labels,
    ]
    assert raw[1].key == b"bob"
    read = json.loads(raw[1].payload)
    assert (read["name"], read["amount"]) == ("bob", 2)


MISFITS = [
    (b'{"name": "a", "amount": "5"}', b"amount"),
    (b'{"name": 5}', b"name"),
    (b'{"amount": 5}', b"name"),
    (b"no json", b"JSON"),
    (b"\xff", b""),
]


@pytest.mark.parametrize("kind", [Attrs, Model, Dict])
def test_a_misfit_is_a_dead_letter_at_once_that_names_its_field(
    messaging: Messaging, kind: Any
) -> None:
    messaging.create_topic("dead")
    orders = messaging.topic("t", type=kind)
    for payload, _ in MISFITS:
        messaging.publish("t", [txaware.Outgoing(payload, b"k", {"error": b"old"})])
    orders.publish(kind(name="good"))
    handled: list[Any] = []
    loop = orders.subscribe(handled.append, group="g", dead_letter_topic="dead")
    assert loop.run_once() == len(MISFITS) + 1
    assert [message.payload for message in handled] == [kind(name="good")]
    letters = messaging.poll("dead")
    assert [letter.payload for letter in letters] == [one for one, _ in MISFITS]
    assert {letter.key for letter in letters} == {b"k"}
    for letter, (_, field) in zip(letters, MISFITS, strict=True):
        assert field in letter.headers["error"]
        assert letter.headers["error"] != b"old"


def test_a_letter_without_room_for_its_error_goes_without_it(site: Site) -> None:
    messaging = site.open(message_limit_bytes=1000)
    for name in ("t", "dead"):
        messaging.create_topic(name, exist_ok=True)
    orders = messaging.topic("t", type=Data)
    messaging.publish("t", [b"-" * 1000, b"-"])
    orders.subscribe(print, group="g", dead_letter_topic="dead").run_once()
    full, other = messaging.poll("dead")
    assert not full.headers
    assert b"JSON" in other.headers["error"]
    messaging = site.open(message_limit_bytes=1 << 20)
    for name in ("t", "dead"):
        messaging.create_topic(name, exist_ok=True)
    headers = {"x": b"-" * (MAX_HEADERS_BYTES - 7)}
    messaging.publish("t", [txaware.Outgoing(b"-", None, headers)])
    orders = messaging.topic("t", type=Data)
    orders.subscribe(print, group="g", dead_letter_topic="dead").run_once()
    assert messaging.poll("dead")[-1].headers == headers


@pytest.mark.parametrize(
    ("kind", "odd", "why"),
    [
        (Data, Data(name=5), "name"),  # type: ignore[arg-type]
        (Data, {"name": "a"}, "is no Data"),
        (Data, b'{"name": "a"}', "is no Data"),
        (Attrs, Attrs("a", "b"), "amount"),  # type: ignore[arg-type]
        (Struct, Struct(name=5), "name"),  # type: ignore[arg-type]
        (Dict, {"amount": 5}, "name"),
        (Dict, {"name": "a", "amount": "b"}, "amount"),
        (Dict, 5, "object"),
        (Model, Model.model_construct(name=5), "name"),
        (Model, Data("a"), "is no Model"),
        (Data, Data("\ud800"), "is no JSON"),
        (Data, Data("a", object()), "is no JSON"),  # type: ignore[arg-type]
        (Basket, Basket(Model(name="a"), [Attrs(5)]), "name"),  # type: ignore[arg-type]
    ],
)
def test_an_event_that_does_not_fit_publishes_nothing(
    messaging: Messaging, kind: Any, odd: Any, why: str
) -> None:
    orders = messaging.topic("t", type=kind)
    with pytest.raises(BadRequest, match=why) as no:
        orders.publish(odd)
    assert "\n" not in str(no.value)
    good = Basket(Model(name="a"), []) if kind is Basket else kind(name="a")
    with messaging.transaction(), pytest.raises(BadRequest, match=why):
        orders.publish_all([good, odd])
    assert messaging.poll("t") == []


def test_a_reader_of_a_newer_class_reads_what_is_older_by_its_defaults(
    messaging: Messaging,
) -> None:
    @dataclasses.dataclass
    class Newer:
        name: str
        currency: str = "EUR"

    messaging.topic("t", type=Data).publish(Data("ann", 5))
    messaging.topic("t", type=Newer).publish(Newer("bob", "USD"))
    newer = messaging.topic("t", type=Newer).consumer().poll()
    assert [one.payload for one in newer] == [Newer("ann"), Newer("bob", "USD")]
    older = messaging.topic("t", type=Data).consumer().poll()
    assert [one.payload for one in older] == [Data("ann", 5), Data("bob")]


def test_events_inside_of_others_and_private_attributes_come_back(
    messaging: Messaging,
) -> None:
    basket = Basket(Model(name="a"), [Attrs("b", 2, "private")])
    baskets = messaging.topic("t", type=Basket)
    baskets.publish(basket)
    [message] = baskets.consumer().poll()
    assert message.payload == basket


class Placed(msgspec.Struct, tag=True):
    """One of two kinds of events."""

    name: str


class Cancelled(msgspec.Struct, tag=True):
    """The other one."""

    name: str


def test_a_topic_of_several_classes_names_that_of_each_event(
    messaging: Messaging,
) -> None:
    kind: Any = Placed | Cancelled
    orders = messaging.topic("t", type=kind)
    orders.publish_all([Placed("a"), Cancelled("a")])
    page = orders.consumer().poll()
    assert [one.payload for one in page] == [Placed("a"), Cancelled("a")]
    assert [one.headers["type"] for one in page] == [b"Placed", b"Cancelled"]


def test_a_handle_may_come_before_its_topic(messaging: Messaging) -> None:
    orders = messaging.topic("late", type=Data)
    with pytest.raises(TopicNotFound):
        orders.publish(Data("ann"))
    messaging.create_topic("late")
    orders.publish(Data("ann"))
    assert orders.consumer().poll()[0].payload == Data("ann")
    assert str(messaging.topic("late").topic) == "late"


class NoFields:
    """A class that nothing is known of."""


@pytest.mark.parametrize("odd", [NoFields, "Order", 5, object(), list[NoFields] | int])
def test_what_is_no_class_of_events_is_refused_at_once(
    messaging: Messaging, odd: Any
) -> None:
    with pytest.raises(BadRequest) as no:
        messaging.topic("t", type=odd)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize("kind", [*KINDS, Basket, list[Data]])
def test_a_class_describes_itself_as_json_schema(kind: Any) -> None:
    schema = EventType(kind).json_schema()
    text = json.dumps(schema)
    assert '"name"' in text
    assert text.count("#/$defs/") == 0 or schema["$defs"]


def test_asyncio_publishes_and_reads_the_same() -> None:
    async def program(url: str) -> None:
        async with txaware.connect_async(url) as messaging:
            orders = messaging.topic("t", type=Data)
            assert await orders is orders
            await orders.publish(Data("ann", 5), key=b"k")
            async with messaging.transaction():
                await orders.publish_all([Data("bob"), Data("cid")])
            with pytest.raises(BadRequest, match="name"):
                await orders.publish(Data(5))  # type: ignore[arg-type]
            reader = await orders.consumer(group="g")
            async with messaging.transaction():
                page = await reader.poll()
            events = [message.payload for message in page]
            assert events == [Data("ann", 5), Data("bob"), Data("cid")]
            assert page[0].headers["type"] == b"Data"
            await messaging.publish("t", [b'{"name": 5}'])
            handled: list[Any] = []

            async def handle(message: Any) -> None:
                handled.append(message.payload)

            loop = orders.subscribe(handle, group="h", dead_letter_topic="dead")
            assert await loop.run_once() == 4
            await loop.close()
            assert handled == events
            [letter] = await messaging.poll("dead")
            assert b"name" in letter.headers["error"]
            assert str((await messaging.topic("t")).topic) == "t"

    with txaware.connect("memory:") as owner, owner.serve() as server:
        owner.create_topic("t")
        owner.create_topic("dead")
        asyncio.run(program(server.url))
