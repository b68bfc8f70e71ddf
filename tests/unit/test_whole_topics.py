"""Which publishes to a whole topic become one to a partition that is here."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from txaware.auth import ANYBODY
from txaware.errors import RequestTooLarge
from txaware.model.partitions import partition_of
from txaware.model.settings import Settings
from txaware.model.topics import Topic, TopicName
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.forwarding import Forwarding
from txaware.server.cluster.server_map import ServerMap
from txaware.server.cluster.shard_finder import ShardFinder
from txaware.server.cluster.whole_topics import WholeTopics
from txaware.server.exchange import Request
from txaware.server.idempotency import INSTANCE, KEY
from txaware.server.routing import Match, Route, Routes
from txaware.service.topic_handles import TopicHandles
from txaware.store.memory import MemoryTable


@pytest.fixture
def handles() -> TopicHandles:
    """A topic whose first partition is here, and whose second one is elsewhere."""
    found = TopicHandles(MemoryTable(), Settings())
    found.topics.keep(a_topic("0,1"))
    return found


def a_topic(shards: str) -> Topic:
    """The topic, with a partition in each of these shards."""
    spread = {"partitions": str(len(shards.split(","))), "shards": shards}
    return Topic(TopicName("t"), 1, properties=spread)


def renamed(
    handles: TopicHandles, body: Any, headers: dict[bytes, bytes] | None = None
) -> Request | None:
    """What a publish becomes at the server of the first shard."""
    own: Any = None
    settings = Settings(message_limit_bytes=20)
    whole = WholeTopics(first_server(), own, settings, perform=own, find=own)
    place: Any = handles.find("default:t")
    found = whole.of_one_partition(place, publish(body, headers))
    if found is None:
        return None
    shard, alone = found
    assert shard == 0
    return alone


def first_server() -> ClusterPart:
    """The part of the server that has the first shard."""
    part = ClusterPart("a", bytes(32), ServerMap(1, "x", (), ()), token="")
    part.take([0])
    return part


def publish(body: Any, headers: dict[bytes, bytes] | None = None) -> Request:
    """A publish to the whole topic."""
    own: Any = None
    return Request(
        "POST",
        "/v1/namespaces/default/topics/t/publish",
        {"namespace": "default", "topic": "t"},
        {b"content-type": b"application/json", **(headers or {})},
        b"",
        json.dumps(body).encode(),
        ANYBODY,
        own,
        lambda: None,
    )


def key_of(number: int) -> str:
    """A key whose messages are in a partition."""
    keys = (str(one) for one in range(100))
    return next(key for key in keys if partition_of(key.encode(), 2) == number)


def keyed(number: int) -> Any:
    return {"key": key_of(number), "utf8": "x"}


@pytest.mark.parametrize("messages", [["a", "b"], [keyed(0), keyed(0)]])
def test_a_publish_to_one_partition_here_is_read_once(
    handles: TopicHandles, messages: Any
) -> None:
    for _ in range(3):  # the partition whose turn it is, is one that is here
        found = renamed(handles, {"messages": messages})
        assert found is not None
        assert found.topic == found.arguments.topic == "default:t.0"
        assert found.arguments.read().topic == "default:t.0"
        assert found.arguments.read() is found.arguments.read()
        assert len(found.arguments.read().messages) == len(messages)


@pytest.mark.parametrize(
    "messages", [[keyed(1)], [keyed(0), keyed(1)]], ids=["elsewhere", "both"]
)
def test_what_goes_elsewhere_is_passed_on_as_it_came(
    handles: TopicHandles, messages: Any
) -> None:
    assert renamed(handles, {"messages": messages}) is None


def test_a_publish_in_a_transaction_or_with_a_key_is_put_together(
    handles: TopicHandles,
) -> None:
    plain = {"messages": ["a"]}
    assert renamed(handles, {**plain, "transactionWritePointer": 5}) is None
    for name in (KEY, INSTANCE):
        assert renamed(handles, plain, {name: b"one"}) is None


def test_a_message_that_is_too_large_is_refused(handles: TopicHandles) -> None:
    with pytest.raises(RequestTooLarge):
        renamed(handles, {"messages": ["x" * 21]})


def test_the_route_of_publishes_to_a_whole_topic_is_made_once(
    handles: TopicHandles,
) -> None:
    asked: list[Request] = []

    def begin(request: Request, _: Any) -> None:
        asked.append(request)

    own: Any = None
    path = "/v1/namespaces/{namespace}/topics/{topic}/publish"
    route = Route("POST", path, own, begin=begin, keyed=True)
    rules: Any = SimpleNamespace(routes=Routes([route]))
    part = first_server()
    forwarding = Forwarding(
        part, ShardFinder(part, handles, own), own, own, Settings(), rules
    )

    def placed() -> Route:
        request = publish({"messages": ["a"]})
        match = Match(route, request.path, request.params)
        return forwarding.placed(match, request).route

    first = placed()
    assert first is placed() is not route
    assert first.keyed
    assert first.begin is not None
    first.begin(publish({"messages": ["a"]}), own)
    assert [one.topic for one in asked] == ["default:t.0"]

    handles.topics.keep(a_topic("0,1,0"))
    now = placed()
    assert now is placed() is not first
    assert now.begin is not None
    for _ in range(2):  # of three partitions two are here now
        now.begin(publish({"messages": ["a"]}), own)
    assert {one.topic for one in asked[1:]} == {"default:t.0", "default:t.2"}
