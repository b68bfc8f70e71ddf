"""The shards of one server: taken and given as home says, and drained before."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.support.concurrency import until
from txaware.errors import ShardAway, Unavailable
from txaware.server.cluster.server_map import ServerMap
from txaware.server.cluster.server_sessions import Orders
from txaware.server.cluster.shard_holder import ShardHolder
from txaware.server.cluster.shard_uses import ShardUses
from txaware.server.exchange import Reply, Request, Stream
from txaware.server.routing import Answer, Begin, Begun, OnReply, Route, in_a_task

MAP = ServerMap(1, "", (), ())


class _Request(msgspec.Struct, frozen=True):
    """A request, as far as it is looked at here."""

    peer: Any


class Copies:
    """Shards that open at once, or once their former owner is gone."""

    def __init__(self) -> None:
        self.open_now: set[int] = set()
        self.seized: set[int] = set()
        self.lives: set[int] = set()
        self.lost: set[int] = set()

    def open(self, shard: int, *, seizes: bool, pause: Any) -> None:
        while shard in self.lives and not seizes:
            pause(0.01)
        if seizes:
            self.seized.add(shard)
        self.open_now.add(shard)

    def close(self, shard: int) -> None:
        self.open_now.remove(shard)

    def rows(self, shard: int) -> Any:
        def require_owned() -> None:
            if shard in self.lost:
                raise Unavailable("another process has it")

        return SimpleNamespace(
            announce=print, require_owned=require_owned, look_owned=require_owned
        )


class Site:
    """A holder, and what it did."""

    def __init__(self) -> None:
        self.copies, self.uses = Copies(), ShardUses()
        self.did: list[tuple[str, int]] = []
        self.fails = 0
        part = SimpleNamespace(
            take=lambda shards: self.did.append(("here", shards[0])),
            give=lambda shard: self.did.append(("not here", shard)),
        )
        self.holder = ShardHolder(
            part,  # type: ignore[arg-type]
            self.copies,  # type: ignore[arg-type]
            self.uses,
            on_taken=self.taken,
            before_giving=lambda shard: self.did.append(("gives", shard)),
            drain_s=60,
        )

    def taken(self, shard: int) -> None:
        if self.fails:
            self.fails -= 1
            raise Unavailable("home is away")
        self.did.append(("taken", shard))

    def order(self, *has: int, seizes: tuple[int, ...] = ()) -> None:
        self.holder.follow(Orders(MAP, [0, *has], [*seizes]))

    def has(self, *shards: int) -> None:
        assert until(lambda: self.holder.holds() == [*shards] and not self.holder._busy)
        assert self.copies.open_now == {*shards}


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    with closing(made.holder):
        yield made


def test_it_has_what_it_is_to_have_and_each_step_comes_in_its_turn(site: Site) -> None:
    site.order(1)
    site.has(1)
    assert site.did == [("taken", 1), ("here", 1)]
    site.did.clear()
    site.order()
    site.has()
    assert site.did == [("gives", 1), ("not here", 1)]


def test_a_shard_that_home_does_not_hear_of_is_given_back_and_tried_again(
    site: Site,
) -> None:
    site.fails = 1
    site.order(1)
    assert until(lambda: not site.holder._busy)
    assert site.copies.open_now == set()
    assert site.holder.holds() == []
    site.order(1)
    site.has(1)


def test_what_is_given_may_come_back(site: Site) -> None:
    site.order(1, 2)
    site.has(1, 2)
    site.order(2)
    site.has(2)
    site.order(1, 2)
    site.has(1, 2)
    assert not site.uses.is_moving(1)


def test_an_owner_is_waited_for_until_its_shard_may_be_seized(site: Site) -> None:
    site.copies.lives = {1}
    site.order(1)
    site.order(1, seizes=(1,))
    assert until(lambda: not site.holder._busy)  # it waits no more
    site.order(1, seizes=(1,))
    site.has(1)
    assert site.copies.seized == {1}


def test_what_was_taken_away_is_let_go_at_once(site: Site) -> None:
    site.order(1)
    site.has(1)
    site.copies.lost = {1}
    with site.uses.using(1):  # whatever is under way there fails by itself
        site.order(1)
        site.has()


def test_a_shard_goes_once_nothing_is_under_way_there(site: Site) -> None:
    site.order(1, 2)
    site.has(1, 2)
    with site.uses.using(1), site.uses.using(2):
        site.order(2)
        assert until(lambda: ("not here", 1) in site.did)
        assert site.copies.open_now == {1, 2}
    site.has(2)


def test_a_poll_that_waits_answers_as_its_shard_goes() -> None:
    uses, waits = ShardUses(), threading.Event()

    class Peer:
        is_gone = False

        def set_when_gone(self, _: object) -> None:
            waits.set()

    async def handle(request: Any) -> Reply:
        event = asyncio.Event()
        request.peer.set_when_gone(event)
        await event.wait()
        assert request.peer.is_gone
        request.peer.set_when_gone(None)
        return Reply(200)

    async def run() -> None:
        route = uses.counting(Route("POST", "/poll", handle, waits=True), 1)
        assert route.begin is None
        request: Any = _Request(Peer())
        poll = asyncio.create_task(route.handle(request))
        await asyncio.to_thread(waits.wait)
        assert await asyncio.to_thread(uses.drain, 1, 60)
        assert isinstance(await poll, Reply)
        uses.take(1)
        assert not uses.is_moving(1)

    asyncio.run(run())


def test_an_answer_in_pieces_is_under_way_until_its_last_one() -> None:
    uses = ShardUses()

    async def pieces() -> Any:
        yield b"one"
        yield b"two"

    async def handle(_: object) -> Stream:
        return Stream(pieces(), "text/plain")

    async def run() -> None:
        route, request = Route("POST", "/poll", handle), _Request(None)
        answer: Any = await uses.counting(route, 1).handle(request)  # type: ignore[arg-type]
        first = await anext(answer.pieces)
        assert first == b"one"
        assert not uses.drain(1, 0)
        assert [one async for one in answer.pieces] == [b"two"]
        assert uses.drain(1, 0)

    asyncio.run(run())


def counting(uses: ShardUses, begin: Begin) -> Begin:
    """What begins requests in shard 1, which are counted there."""
    route = Route("POST", "/publish", in_a_task(begin), begin=begin)
    found = uses.counting(route, 1)
    assert uses.counting(route, 1) is found  # it is made once
    assert found.begin is not None
    return found.begin


def test_what_begins_without_a_task_is_under_way_until_it_is_told() -> None:
    uses, later = ShardUses(), list[OnReply]()
    found: list[Reply | Exception] = []
    request: Any = _Request(None)

    def begin(_: Request, told: OnReply) -> Begun:
        later.append(told)
        return None

    assert counting(uses, begin)(request, found.append) is None
    assert not uses.drain(1, 0)
    done, lost = Reply(200), Unavailable("the disk is full")
    later[0](done)
    assert uses.drain(1, 0)
    later[0](lost)  # as the time to drain is up
    assert found == [done, lost]
    with uses.using(1):  # which one that left twice would not show
        assert not uses.drain(1, 0)


def test_what_is_answered_or_refused_at_once_is_under_way_no_more() -> None:
    uses, request, reply = ShardUses(), _Request(None), Reply(200)

    def begin(_: Request, __: OnReply) -> Begun:
        assert not uses.drain(1, 0)
        uses.take(1)
        return reply

    def refuse(_: Request, __: OnReply) -> Begun:
        raise Unavailable("the disk is full")

    assert counting(uses, begin)(request, print) is reply  # type: ignore[arg-type]
    assert uses.drain(1, 0)
    uses.take(1)
    with pytest.raises(Unavailable):
        counting(uses, refuse)(request, print)  # type: ignore[arg-type]
    assert uses.drain(1, 0)


def test_a_request_that_was_on_its_way_as_its_shard_went_is_asked_again() -> None:
    """It was placed here, and its shard is closed before it begins."""
    uses, done = ShardUses(), list[str]()
    request: Any = _Request(None)

    def begin(_: Request, __: OnReply) -> Begun:
        done.append("at once")
        return Reply(200)

    async def handle(_: object) -> Reply:
        done.append("in a task")
        return Reply(200)

    waits = uses.counting(Route("POST", "/poll", handle, waits=True), 1).handle
    begins = counting(uses, begin)
    assert uses.drain(1, 0)
    with pytest.raises(ShardAway, match="shard 1 goes to another server"):
        begins(request, print)
    with pytest.raises(ShardAway, match="shard 1 goes to another server"):
        asyncio.run(waits(request))
    assert not done
    uses.take(1)
    assert isinstance(begins(request, print), Reply)
    asyncio.run(waits(request))
    assert done == ["at once", "in a task"]
    assert uses.drain(1, 0)


def test_what_goes_on_in_a_task_is_under_way_until_that_has_ended() -> None:
    uses = ShardUses()
    request: Any = _Request(None)

    async def run() -> None:
        go_on = asyncio.Event()

        async def answer() -> Answer:
            await go_on.wait()
            return Reply(200)

        begun = counting(uses, lambda _, __: answer())(request, print)
        assert asyncio.iscoroutine(begun)
        assert not uses.drain(1, 0)  # its task has not begun either
        task = asyncio.ensure_future(begun)
        go_on.set()
        await task
        assert uses.drain(1, 0)

    asyncio.run(run())
