"""A server asks home for producers that were opened there, and nobody else."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_owners import Owner, close, made
from txaware.client.calls.call import Call, HttpAnswer
from txaware.errors import ProducerFenced, ShardAway, Unavailable
from txaware.model.interfaces import OrderedTable
from txaware.model.producers import ProducerIdentity
from txaware.protocol.frames import SERVER
from txaware.server.cluster.producers_at_home import ask_home, producer_route
from txaware.service.producers.producer_ids import ProducerIds
from txaware.store.memory import MemoryTable


def ids(table: OrderedTable | None = None) -> ProducerIds:
    return ProducerIds(table or MemoryTable(), lambda: 1, most=2)


class Asked:
    """Calls that come to the server that was home when its address was learned."""

    def __init__(self, there: ProducerIds, *, is_home: bool) -> None:
        async def in_thread(act: Callable[..., Any], *args: Any) -> Any:
            return act(*args)

        context: Any = SimpleNamespace(
            service=SimpleNamespace(producing=SimpleNamespace(ids=there)),
            in_thread=in_thread,
        )
        part: Any = SimpleNamespace(is_home=is_home)
        self._route = producer_route(context, part)

    def perform(self, shard: int, call: Call[Any]) -> Any:
        assert shard == 0
        number = call.path.rpartition("/")[2]
        request: Any = SimpleNamespace(
            headers={SERVER: b"seal"}, params={"producer": number}
        )
        reply: Any = asyncio.run(self._route.handle(request))
        return call.read(HttpAnswer(reply.status, reply.body, {}, "http://there"))


@pytest.mark.parametrize("is_home", [True, False])
def test_who_is_not_home_does_not_say_that_a_producer_is_unknown(is_home: bool) -> None:
    """It was home, and another server is by now, where the producer was opened."""
    home, here = ids(), ids()
    opened = home.open()
    ask_home(here, Asked(home if is_home else ids(), is_home=is_home))  # type: ignore[arg-type]
    identity = ProducerIdentity(opened.producer_id, opened.epoch)
    if is_home:
        assert here.require(identity, None) == opened
        with pytest.raises(ProducerFenced):
            here.require(ProducerIdentity(opened.producer_id + 1, 0), None)
    else:
        with pytest.raises(ShardAway):
            here.require(identity, None)


class Homes(NamedTuple):
    """The producers of a home that hangs before its next beat, and of the one since.

    The first one opened the `known` producer, and the other raised its epoch to 1.
    """

    former: ProducerIds
    later: ProducerIds
    known: int


@pytest.fixture
def homes() -> Iterator[Homes]:
    clock = Clock()
    hbase = made(FakeHBase(clock))
    tables = [Owner(hbase, clock).table()]
    former = ids(tables[0])
    known = former.open().producer_id
    tables.append(Owner(hbase, clock).table())
    later = ids(tables[1])
    later.raise_epoch(known)
    yield Homes(former, later, known)
    for table in tables:
        close(table)


def asking(home: ProducerIds) -> ProducerIds:
    """The producers of a server that takes another one for home."""
    here = ids()
    ask_home(here, Asked(home, is_home=True))  # type: ignore[arg-type]
    return here


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("by_server", [True, False])
def test_a_home_that_hung_and_was_replaced_fences_nobody(
    homes: Homes, *, is_new: bool, by_server: bool
) -> None:
    """It goes on, and its next beat, which would tell it, has not come yet."""
    identity = ProducerIdentity(homes.known, 1)
    if is_new:
        identity = ProducerIdentity(homes.later.open().producer_id, 0)
    assert homes.later.require(identity, None).epoch == identity.epoch
    asked = asking(homes.former) if by_server else homes.former
    with pytest.raises(Unavailable, match="was taken over"):
        asked.require(identity, None)


def test_a_home_that_hung_does_not_vouch_for_a_producer_that_was_fenced_since(
    homes: Homes,
) -> None:
    here = asking(homes.former)
    with pytest.raises(Unavailable, match="was taken over"):
        here.require(ProducerIdentity(homes.known, 0), None)


def test_a_home_that_is_there_fences_what_it_does_not_know(homes: Homes) -> None:
    for asked in (homes.later, asking(homes.later)):
        with pytest.raises(ProducerFenced):
            asked.require(ProducerIdentity(1, 0), None)
