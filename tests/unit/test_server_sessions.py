"""Sessions of servers with home: who is given which shard, and loses it when."""

import itertools
import random
from collections import Counter
from typing import cast

import msgspec
import pytest

from tests.support.concurrency import PATIENCE_S, until
from txaware.client.calls.call import Call
from txaware.errors import BadRequest
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.home_session import HomeSession
from txaware.server.cluster.sealed_calls import SealedCalls
from txaware.server.cluster.server_map import ServerEntry
from txaware.server.cluster.server_sessions import (
    GREET_S,
    SPEAKS,
    SUSPECT_S,
    Orders,
    SentHello,
    ServerSessions,
    assigned,
)

SILENCE_S = 12.0


def test_shards_are_spread_evenly() -> None:
    assert assigned(range(4), ["a"], {0: "a"}, {}) == dict.fromkeys(range(4), "a")
    found = assigned(range(4), ["a", "b"], {0: "a"}, {})
    assert Counter(found.values()) == {"a": 2, "b": 2}
    assert found[0] == "a"
    assert assigned(range(4), [], {0: "a"}, {}) == {}


def test_as_few_as_can_be_move() -> None:
    before = {0: "a", 1: "a", 2: "b", 3: "b", 4: "a"}
    joined = assigned(range(5), ["a", "b", "c"], before, {})
    assert Counter(joined.values()) == {"a": 2, "b": 2, "c": 1}
    assert [one for one in before if joined[one] != before[one]] == [4]
    gone = assigned(range(5), ["a", "c"], joined, {})
    assert all(gone[one] == joined[one] for one in range(5) if joined[one] != "b")
    assert Counter(gone.values()) == {"a": 3, "c": 2}


def test_what_an_operator_named_stays_there_while_that_server_lives() -> None:
    named = {1: "b", 2: "b", 3: "b"}
    before = dict.fromkeys(range(4), "b") | {0: "a"}
    assert assigned(range(4), ["a", "b"], before, named) == before
    assert assigned(range(4), ["a"], before, named) == dict.fromkeys(range(4), "a")


@pytest.mark.parametrize("seed", range(20))
def test_no_assignment_moves_more_than_evenness_needs(seed: int) -> None:
    chance = random.Random(seed)
    servers = [f"s{n}" for n in range(chance.randrange(1, 6))]
    shards = range(chance.randrange(1, 20))
    before = {one: chance.choice([*servers, "gone"]) for one in shards}
    before[0] = servers[0]
    found = assigned(shards, servers, before, {})
    assert found.keys() == {*shards}
    assert found[0] == servers[0]
    counts = [sum(1 for each in found.values() if each == one) for one in servers]
    assert max(counts) - min(counts) <= 1
    stayed = sum(1 for one in shards if found[one] == before[one])
    best = 0
    has = Counter(before.values())
    least, more = divmod(len(shards), len(servers))
    for extra in itertools.combinations(servers, more):
        best = max(best, sum(min(has[one], least + (one in extra)) for one in servers))
    assert stayed == best


class World:
    """Home, other servers, and time."""

    def __init__(self, shards: int = 4) -> None:
        self.now_s = 0.0
        self.sessions = ServerSessions(
            self.entry("home"),
            range(shards),
            silence_s=SILENCE_S,
            epoch=7,
            clock_s=lambda: self.now_s,
        )
        self.holds: dict[str, list[int]] = {}

    def entry(self, name: str) -> ServerEntry:
        return ServerEntry(name, f"http://{name}:1", f"http://{name}:1")

    def hello(self, name: str, *, is_leaving: bool = False) -> Orders:
        """A server says what it has, and then has what it is to have."""
        epoch = self.sessions.server_map.epoch
        if name == "home":
            orders = self.sessions.orders()
            self.sessions.hold(orders.has)
        else:
            sent = SentHello(self.entry(name), self.holds.get(name, []), epoch)
            sent.is_leaving = is_leaving
            orders = self.sessions.hello(sent)
        self.holds[name] = orders.has
        return orders

    def settle(self, *names: str) -> None:
        for _ in range(4):
            for name in ("home", *names):
                self.hello(name)

    @property
    def owners(self) -> dict[int, str | None]:
        return {one.number: one.server for one in self.sessions.server_map.shards}


@pytest.fixture
def world() -> World:
    made = World()
    made.now_s = GREET_S
    return made


def test_a_server_that_comes_gets_its_part_once_the_others_gave_it(
    world: World,
) -> None:
    world.settle()
    assert set(world.owners.values()) == {"home"}
    orders = world.hello("a")
    assert orders.has == []  # home has them still
    assert len(world.hello("home").has) == 2
    assert world.hello("a").has == [2, 3]
    world.hello("a")
    assert world.owners == {0: "home", 1: "home", 2: "a", 3: "a"}


def test_what_a_silent_server_has_is_offered_and_then_seized(world: World) -> None:
    world.settle("a", "b")
    [lost] = [one for one, server in world.owners.items() if server == "b"]
    world.now_s += SUSPECT_S + 0.1
    sent = SentHello(world.entry("a"), world.holds["a"], 0)
    orders = world.sessions.hello(sent), world.sessions.orders()
    [offered] = [one for one in orders if lost in one.has]
    assert offered.seizes == []
    assert world.sessions.server_map.server("b") is not None
    world.hello("b")  # it lives, and nobody could take it
    world.settle("a", "b")
    assert world.owners[lost] == "b"


def test_who_is_offered_a_shard_is_of_another_life_before_it_takes_it(
    world: World,
) -> None:
    """It answers at once, and what the owner before has done it does not know."""
    world.settle("a", "b")
    [lost] = [one for one, server in world.owners.items() if server == "b"]
    has = world.holds["a"]

    def offered() -> str:
        """The instance by which a server takes what another one has still."""
        sent = SentHello(world.entry("a"), has, 0)
        orders = world.sessions.hello(sent), world.sessions.orders()
        [taking] = [one.server_map for one in orders if lost in one.has]
        assert taking.owner(lost) == world.entry("b")
        return taking.instance

    instances = [world.sessions.server_map.instance]
    for _ in range(2):
        world.now_s += SUSPECT_S + 0.1
        instances += [offered()]
        assert offered() == instances[-1]
        world.hello("b")  # it lives
    assert len({*instances}) == 3


def test_a_server_that_stays_silent_is_gone_and_its_shards_are_seized(
    world: World,
) -> None:
    world.settle("a", "b")
    [lost] = [one for one, server in world.owners.items() if server == "b"]
    before = world.sessions.server_map
    for _ in range(13):
        world.now_s += 1
        sent = SentHello(world.entry("a"), world.holds["a"], before.epoch)
        last = [world.sessions.hello(sent), world.sessions.orders()]
    assert world.sessions.server_map.server("b") is None
    assert [one.seizes for one in last if one.seizes] == [[lost]]
    world.settle("a")
    assert world.owners[lost] in ("home", "a")
    assert world.sessions.server_map.instance != before.instance
    assert not any(one.seizes for one in (world.hello("a"), world.hello("home")))


def test_what_was_offered_to_a_server_is_not_offered_to_another_meanwhile() -> None:
    """To take a shard takes a while, and others report theirs before."""
    world = World(6)
    world.now_s = GREET_S

    def said(name: str, *holds: int) -> list[int]:
        sent = SentHello(world.entry(name), [*holds], 0)
        return world.sessions.hello(sent).has

    said("a"), said("b")
    offered = {"a": said("a"), "b": said("b"), "home": world.sessions.orders().has}
    every = [shard for has in offered.values() for shard in has]
    assert sorted(every) == [*range(6)]
    assert said("b", offered["b"][-1]) == offered["b"]
    assert said("a") == offered["a"]
    assert world.sessions.orders().has == offered["home"]


def test_an_owner_that_is_late_does_not_get_back_what_another_has(
    world: World,
) -> None:
    world.settle("a", "b")
    [lost] = [one for one, server in world.owners.items() if server == "b"]
    world.now_s += SILENCE_S + 0.1
    world.settle("a")
    taken = world.owners[lost]
    orders = world.hello("b")
    assert lost not in orders.has
    assert world.owners[lost] == taken


def test_a_server_that_leaves_is_asked_to_give_all(world: World) -> None:
    world.settle("a")
    assert world.hello("a", is_leaving=True).has == []
    assert "a" in world.owners.values()  # until it says that it has given them
    world.hello("a", is_leaving=True)
    assert world.sessions.server_map.server("a") is None
    world.settle()
    assert set(world.owners.values()) == {"home"}


def test_a_new_home_asks_who_has_what_before_it_gives_anything() -> None:
    world = World()
    assert world.hello("home").has == [0]
    world.holds["a"] = [1, 3]
    sent = SentHello(world.entry("a"), [1, 3], 1000)
    orders = world.sessions.hello(sent)
    assert orders.has == [1, 3]
    assert orders.server_map.epoch > 1000  # also where the clock of home is behind
    world.now_s = GREET_S
    world.settle("a")
    assert world.owners == {0: "home", 1: "a", 2: "home", 3: "a"}


def test_a_process_that_began_anew_replaces_its_former_self(world: World) -> None:
    world.settle("a")
    entry = ServerEntry("anew", "http://a:1", "http://a:1")
    world.sessions.hello(SentHello(entry, [], 0))
    listed = {one.id for one in world.sessions.server_map.servers}
    assert listed == {"home", "anew"}


def test_a_shard_is_given_to_a_server_that_is_named(world: World) -> None:
    world.settle("a")
    mine = [one for one, server in world.owners.items() if server == "a"]
    world.sessions.give(mine[0], "home")
    world.settle("a")
    assert world.owners[mine[0]] == "home"
    for shard, server in ((0, "a"), (9, "a"), (1, "nobody")):
        with pytest.raises(BadRequest):
            world.sessions.give(shard, server)


def test_home_is_in_no_session_of_its_own(world: World) -> None:
    with pytest.raises(BadRequest, match="has no session"):
        world.sessions.hello(SentHello(world.entry("home"), [], 0))


def test_a_server_of_another_version_is_refused(world: World) -> None:
    sent = SentHello(world.entry("b"), [], 7, speaks=SPEAKS + 1)
    with pytest.raises(BadRequest, match=r"b, http://b:1, has another version"):
        world.sessions.hello(sent)
    assert world.sessions.server_map.server("b") is None


class Home:
    """Answers one server's HELLO: as another version, or as one that refuses it."""

    def __init__(self, answer: Orders | BadRequest) -> None:
        self._answer = answer

    def perform(self, *_: object) -> Orders:
        if isinstance(self._answer, BadRequest):
            raise self._answer
        return self._answer


def test_a_server_that_takes_a_shard_leaves_home_in_peace_until_it_has_it(
    world: World,
) -> None:
    """Home answers at once that it is to have the shard, as often as it is asked."""
    said = list[SentHello]()
    orders = Orders(world.sessions.server_map, [1], [])

    class Asked:
        def perform(self, _: int, call: Call[Orders]) -> Orders:
            said.append(msgspec.msgpack.decode(call.body or b"", type=SentHello))
            return orders

    session = HomeSession(
        world.entry("b"),
        ClusterPart("b", bytes(32), orders.server_map, token="t"),
        cast(SealedCalls, Asked()),
        holds=list,
        follow=lambda _: None,
        take_map=lambda _: None,
        following_s=100 * PATIENCE_S,
    )
    assert until(lambda: len(said) == 1)
    session.say_hello()
    assert until(lambda: len(said) == 2)
    session.close()
    assert len(said) == 2


@pytest.mark.parametrize("is_told", [True, False])
def test_a_server_that_cannot_be_one_of_home_s_says_why(
    world: World, is_told: bool
) -> None:
    server_map = world.sessions.server_map
    other = Orders(server_map, [1], [], speaks=SPEAKS + 1)
    home = Home(BadRequest("no: has another version") if is_told else other)
    followed = list[Orders]()
    session = HomeSession(
        world.entry("b"),
        ClusterPart("b", bytes(32), server_map, token="t"),
        cast(SealedCalls, home),
        holds=list,
        follow=followed.append,
        take_map=followed.append,  # type: ignore[arg-type]
    )
    session.close()
    assert session.refused is not None
    assert "another version" in str(session.refused)
    assert not session.is_home_away
    assert not session.has_begun.is_set()
    assert not followed
