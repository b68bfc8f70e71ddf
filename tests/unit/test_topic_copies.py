"""Copies of topics' rows in shards that are at other servers, and move meanwhile."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import attrs
import msgspec
import pytest

from tests.support.concurrency import PATIENCE_S, until
from txaware.client.calls.call import Call
from txaware.errors import ShardAway, Unavailable
from txaware.model.topics import Topic, TopicName
from txaware.protocol.frames import SERVER
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.server_map import ServerEntry, ServerMap, ShardEntry
from txaware.server.cluster.topic_copies import HomeCopies, SentCopies, copy_route
from txaware.store.memory import MemoryTable
from txaware.store.topic_table import TopicTable

ORDERS = Topic(TopicName("orders"), 1, properties={"shards": "1"})
HERE, THERE = (ServerEntry(one, f"http://{one}:1", f"http://{one}:1") for one in "ab")


def map_with(other: ServerEntry, *, epoch: int = 1) -> ServerMap:
    """The map of home and a server that has shard 1."""
    shards = (ShardEntry(0, HERE.id), ShardEntry(1, other.id))
    return ServerMap(epoch, "life", (HERE, other), shards)


@attrs.define
class Calls:
    """The way to the owner of shard 1, which does not have it for so many calls."""

    away: int = 0
    sent: list[SentCopies] = attrs.field(factory=list)
    meanwhile: Callable[[], object] = print

    def perform(self, _: int, call: Call[Any]) -> None:
        self.meanwhile()
        self.sent.append(msgspec.msgpack.decode(call.body or b"", type=SentCopies))
        if len(self.sent) <= self.away:
            raise ShardAway("it moves")


@attrs.define
class Home:
    """Home's end, its part in the cluster, and the shards that have come to it."""

    calls: Calls
    copies: HomeCopies
    topics: TopicTable
    membership: ClusterPart
    here: set[int]


@pytest.fixture
def home() -> Iterator[Home]:
    membership = ClusterPart("a", bytes(32), map_with(THERE), token="", shards=[0])
    here, calls = set[int](), Calls()

    def rows(shard: int) -> object:
        if shard not in here:
            raise ShardAway("it is elsewhere")
        return here

    membership.copies = SimpleNamespace(rows=rows)
    copies = HomeCopies(
        membership,
        calls,  # type: ignore[arg-type]
        wait_s=PATIENCE_S,
        pause_s=0.01,
    )
    with closing(copies):
        yield Home(calls, copies, TopicTable(MemoryTable()), membership, here)


def test_a_server_that_has_the_shard_no_more_is_not_asked_again() -> None:
    """After 503 it would be, for ten seconds: topics are locked meanwhile."""
    for copies in (None, object()):
        membership: Any = SimpleNamespace(copies=copies, has=lambda _: False)
        context: Any = None
        body = SentCopies.of(1, [ORDERS], is_all=True)
        request: Any = SimpleNamespace(headers={SERVER: b"sealed"}, body=body)
        answer: Any = asyncio.run(copy_route(context, membership).handle(request))
        assert answer.status == 421
        assert b"ShardAway" in answer.body


def test_a_shard_that_did_not_hear_of_all_topics_is_told_again(home: Home) -> None:
    """No later map may come, and a shard may come here between two tries."""
    home.topics.keep(ORDERS)
    home.calls.away = 2
    home.copies.follow(home.topics)
    assert until(lambda: len(home.calls.sent) == 3)
    assert all(one.is_all and one.topics() == [ORDERS] for one in home.calls.sent)
    home.topics.unchanged(list)


def test_what_has_moved_on_is_mended_at_its_next_server_alone(home: Home) -> None:
    begun, moved = threading.Event(), threading.Event()

    def meanwhile() -> None:
        begun.set()
        assert moved.wait(PATIENCE_S)

    home.calls.away, home.calls.meanwhile = 1, meanwhile
    home.copies.follow(home.topics)
    assert begun.wait(PATIENCE_S)
    other = ServerEntry("c", "http://c:1", "http://c:1")
    home.membership.change(map_with(other, epoch=2))
    moved.set()
    assert until(lambda: len(home.calls.sent) == 2)
    home.copies.close()
    assert len(home.calls.sent) == 2


@pytest.mark.parametrize("owner", [HERE.id, None])
def test_a_shard_that_came_home_is_mended_once_it_goes_again(
    home: Home, owner: str | None
) -> None:
    """Until then nobody is asked, and no line is logged every 0.1 s."""
    tried, moved = threading.Event(), threading.Event()

    def meanwhile() -> None:
        tried.set()
        assert moved.wait(PATIENCE_S)

    home.calls.away, home.calls.meanwhile = 1, meanwhile
    home.copies.follow(home.topics)
    assert tried.wait(PATIENCE_S)
    shards = (ShardEntry(0, HERE.id), ShardEntry(1, owner))
    home.membership.change(ServerMap(2, "life", (HERE, THERE), shards))
    moved.set()
    mending = home.copies._mending
    assert until(lambda: len(home.calls.sent) == 1)
    mending.submit(print).result(PATIENCE_S)  # behind what would be tried again
    mending.submit(print).result(PATIENCE_S)
    assert len(home.calls.sent) == 1
    home.membership.change(map_with(THERE, epoch=3))
    assert until(lambda: len(home.calls.sent) == 2)


def test_a_copy_waits_for_a_shard_that_moves(home: Home) -> None:
    home.calls.away = 1
    assert home.copies.keep(1, ORDERS) is True
    assert [one.is_all for one in home.calls.sent] == [False, False]


def test_a_server_that_did_not_take_a_copy_is_told_of_all_topics(home: Home) -> None:
    """Home's row holds by then, or is not written: either way the copy is wrong."""
    home.copies.follow(home.topics)
    assert until(lambda: len(home.calls.sent) == 1)
    home.topics.keep(ORDERS)

    def lost() -> None:
        home.calls.meanwhile = print
        raise Unavailable("the line was cut")

    home.calls.meanwhile = lost
    with pytest.raises(Unavailable, match="was cut"):
        home.copies.keep(1, ORDERS)
    assert until(lambda: len(home.calls.sent) == 2)
    assert [one.topics() for one in home.calls.sent] == [[], [ORDERS]]


def test_a_copy_is_kept_here_where_the_shard_has_come_to_home(home: Home) -> None:
    """It waits for the topics' lock, which whoever keeps a copy has."""
    home.calls.away = 1000
    home.calls.meanwhile = lambda: home.here.add(1)
    assert home.copies.keep(1, ORDERS) is False
    assert len(home.calls.sent) == 1


def test_a_shard_that_stays_away_is_named(home: Home) -> None:
    home.calls.away = 1000
    copies = HomeCopies(home.membership, home.calls, wait_s=0)  # type: ignore[arg-type]
    with closing(copies), pytest.raises(ShardAway):
        copies.keep(1, ORDERS)
