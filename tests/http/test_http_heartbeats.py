"""Heartbeats at a server: their cost while nothing happens, and what ends a wait."""

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.concurrency import in_background, until
from tests.support.doubles import Clock
from tests.support.frame_client import RawFrames
from tests.support.http_access import guarded
from txaware.errors import (
    GroupNotFound,
    MemberFenced,
    NotAuthenticated,
    TxAwareError,
)
from txaware.messaging import Messaging
from txaware.model.group_service import GroupService
from txaware.model.groups import Beat, Joined, NamedPartition
from txaware.model.start_places import BEGINNING
from txaware.protocol.frames import PIECE, REQUEST, RequestHead, frame, head_frame
from txaware.protocol.members import HEARTBEAT
from txaware.server import frame_connection
from txaware.server.frame_connection import FrameConnection
from txaware.server.routes.members import beats_end_s
from txaware.service.groups.local_groups import LocalGroups


class Looks:
    """Notes in which thread each look for a heartbeat was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        look = LocalGroups.look

        def noted(groups: LocalGroups, *args: Any, **options: Any) -> Any:
            self.threads.append(threading.current_thread().name)
            return look(groups, *args, **options)

        monkeypatch.setattr(LocalGroups, "look", noted)


@pytest.fixture(params=[True, False], ids=["frames", "http"])
def client(request: pytest.FixtureRequest) -> Iterator[Messaging]:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        messaging.create_topic("orders", partitions=3)
        with txaware.connect(server.url, frames=request.param) as client:
            yield client


def beat(groups: GroupService, joined: Joined, *, wait_s: float) -> Beat:
    return groups.heartbeat(
        "billing",
        joined.member,
        incarnation=joined.incarnation,
        generation=joined.generation,
        owned=[NamedPartition(*one.pair) for one in joined.partitions],
        wait_s=wait_s,
    )


def test_a_heartbeat_without_news_looks_once_and_takes_no_thread(
    client: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = client._parts.groups
    joined = groups.join_group("billing", topics=["orders"], session_s=60)
    quiet = Beat(joined.generation, [], [], [])
    assert beat(groups, joined, wait_s=0) == quiet
    looks = Looks(monkeypatch)
    assert beat(groups, joined, wait_s=0.05) == quiet
    assert looks.threads == ["txaware-http"]


def test_a_heartbeat_that_waits_is_answered_when_another_joins(
    client: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = client._parts.groups
    joined = groups.join_group("billing", topics=["orders"], session_s=60)
    assert beat(groups, joined, wait_s=0).revoke == []
    looks, found = Looks(monkeypatch), list[Beat]()
    waits = in_background(lambda: found.append(beat(groups, joined, wait_s=30)))
    assert until(lambda: looks.threads)
    groups.join_group("billing", topics=["orders"], session_s=60)
    waits.join(20)
    assert len(found[0].revoke) == 1


def test_long_waits_end_together_and_none_late() -> None:
    ends_s = {beats_end_s(1000 + at / 97, 3.3) for at in range(97)}
    assert len(ends_s) <= 11
    for at in range(97):
        early_s = 1000 + at / 97 + 3.3 - beats_end_s(1000 + at / 97, 3.3)
        assert 0 <= early_s <= 0.1
    assert beats_end_s(1000.123, 0.5) == 1000.623  # a short one ends as it was asked


# ---- heartbeats that come again as they were
@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[tuple[Messaging, Messaging]]:
    """A store that is served, and a client of it by frames."""
    with (
        txaware.connect("memory:", clock_ms=clock) as messaging,
        messaging.serve() as server,
        txaware.connect(server.url) as client,
    ):
        messaging.create_topic("orders", partitions=3)
        yield messaging, client


def known(groups: GroupService, joined: Joined) -> None:
    """Sends a heartbeat that the server knows from then on."""
    quiet = Beat(joined.generation, [], [], [])
    assert beat(groups, joined, wait_s=0.02) == quiet


def test_a_heartbeat_that_comes_again_as_it_was_is_not_looked_at(
    server: tuple[Messaging, Messaging], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = server[1]._parts.groups
    joined = groups.join_group("billing", topics=["orders"], session_s=60)
    known(groups, joined)
    looks = Looks(monkeypatch)
    for _ in range(3):
        known(groups, joined)
    assert looks.threads == []


def test_what_comes_again_keeps_its_session(
    server: tuple[Messaging, Messaging], clock: Clock
) -> None:
    groups = server[1]._parts.groups
    joined = groups.join_group("billing", topics=["orders"], session_s=10)
    for _ in range(2):
        known(groups, joined)
        clock.advance_s(6)
    assert [one.member for one in groups.group("billing").members] == [joined.member]
    clock.advance_s(11)
    assert groups.group("billing").members == []
    with pytest.raises(MemberFenced):
        known(groups, joined)


def test_what_comes_again_waits_for_news_as_the_first_did(
    server: tuple[Messaging, Messaging],
) -> None:
    here, groups = server[0]._parts.groups, server[1]._parts.groups
    joined, found = groups.join_group("billing", topics=["orders"]), list[Beat]()
    for _ in range(2):
        assert beat(groups, joined, wait_s=1.0).revoke == []
    waits = in_background(lambda: found.append(beat(groups, joined, wait_s=1.0)))
    here.rewind_group("billing", "orders", to="first")
    waits.join(20)
    # It came before the rewind or after it, and hears of it now or at once.
    rewound = found[0].rewound or beat(groups, joined, wait_s=1.0).rewound
    assert [one.position for one in rewound] == [BEGINNING] * 3


def test_what_comes_again_without_its_token_is_refused_and_not_heard(
    tmp_path: Path,
) -> None:
    with guarded(tmp_path) as site:
        token = site.tokens["member"]
        with txaware.connect(site.server.url, token=token) as client:
            groups = client._parts.groups
            joined = groups.join_group("billing", topics=["orders"])
            for _ in range(2):
                known(groups, joined)
            heard_s = heard_of(site.messaging, joined)
            site.without("member")
            with pytest.raises(NotAuthenticated):
                beat(groups, joined, wait_s=0.02)
            assert heard_of(site.messaging, joined) == heard_s


def test_one_whose_body_comes_in_pieces_is_not_known_by_its_first(
    server: tuple[Messaging, Messaging],
) -> None:
    messaging, _ = server
    groups = messaging._parts.groups
    names, bodies = ("a", "b"), list[bytes]()
    for name in names:
        joined = groups.join_group(name, "me", topics=["orders"])
        asked = HEARTBEAT.build_request(
            name,
            "me",
            incarnation=joined.incarnation,
            generation=joined.generation,
            owned=[NamedPartition(*one.pair) for one in joined.partitions],
            wait_s=0.02,
        )
        bodies.append(HEARTBEAT.shape.packed(asked))
    groups.join_group("b", "other", topics=["orders"])
    sizes, assigned = {len(body) for body in bodies}, list[int]()
    assert len(sizes) == 1  # so both have one head
    with messaging.serve() as other, RawFrames(other.url) as client:
        for body in bodies:
            client.number += 1
            assert HEARTBEAT.number is not None
            head = RequestHead(HEARTBEAT.number, len(body))
            client.send(head_frame(REQUEST, client.number, head, b""))
            client.send(frame(PIECE, client.number, body))
            assigned.append(len(client.answer(client.number).value()["revoke"]))
    assert assigned == [0, 1]


def test_of_all_connections_so_many_heartbeats_are_known(
    server: tuple[Messaging, Messaging], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_connection, "MOST_KNOWN_OF_ALL", 5)
    messaging, _ = server
    with messaging.serve() as other:
        connections = other._server.server_state.connections
        with txaware.connect(other.url) as first, txaware.connect(other.url) as second:
            joined = first._parts.groups.join_group("billing", topics=["orders"])
            for number in range(30):
                groups = (first, second)[number % 2]._parts.groups
                wait_s = 0.01 + number / 1000
                assert beat(groups, joined, wait_s=wait_s).revoke == []
            here = [one for one in connections if isinstance(one, FrameConnection)]
            counts = [len(one._known) for one in here]
            (limits,) = {one.rules.limits for one in here}
            assert sum(counts) == limits.known == 5
            looks = Looks(monkeypatch)
            beat(groups, joined, wait_s=wait_s)  # the last one is known
            assert looks.threads == []
        assert until(lambda: limits.known == 0)


def heard_of(messaging: Messaging, joined: Joined) -> float:
    """When a member was heard last."""
    inside = messaging._parts.groups
    assert isinstance(inside, LocalGroups)
    [live] = inside._live.values()
    assert live.state is not None
    return live.state.heard_s[joined.member]


def test_a_client_that_goes_while_it_waits_again_is_missed(
    server: tuple[Messaging, Messaging], clock: Clock
) -> None:
    messaging, _ = server
    with messaging.serve() as other, txaware.connect(other.url) as client:
        groups = client._parts.groups
        joined = groups.join_group("billing", topics=["orders"], session_s=300)
        for _ in range(2):
            known(groups, joined)
        errors = list[Exception]()

        def wait() -> None:
            try:
                beat(groups, joined, wait_s=60)
            except TxAwareError as error:
                errors.append(error)

        known(groups, joined)
        waits = in_background(wait)
        inside = messaging._parts.groups
        assert isinstance(inside, LocalGroups)
        [live] = inside._live.values()
        assert until(lambda: live.signal.is_awaited)
    waits.join(20)
    clock.advance_s(2)
    assert until(lambda: not messaging._parts.groups.group("billing").members)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the class of its error."""
    try:
        return call()
    except TxAwareError as error:
        return type(error)


class World:
    """A store with a group, a member of it, and whatever befalls both.

    Its heartbeats go by the way that `groups` is.
    """

    def __init__(
        self, here: Messaging, groups: GroupService, clock: Clock, *, wait_s: float
    ) -> None:
        self.here, self.groups, self.clock = here, groups, clock
        self.wait_s = wait_s
        self.inside = here._parts.groups
        self.others: list[str] = []
        here.create_topic("orders", partitions=3)
        here.create_topic("more")
        self._join()

    def _join(self) -> None:
        self.me = self.groups.join_group("billing", "me", topics=["orders"])
        self.generation, self.owned = (
            self.me.generation,
            [NamedPartition(*one.pair) for one in self.me.partitions],
        )

    def beat(self) -> Any:
        """What one heartbeat finds; what it is told to, it does."""

        def send() -> Beat:
            return self.groups.heartbeat(
                "billing",
                "me",
                incarnation=self.me.incarnation,
                generation=self.generation,
                owned=self.owned,
                wait_s=self.wait_s,
            )

        found = outcome(send)
        if isinstance(found, Beat):
            self.generation = found.generation
            left = {one.pair for one in found.revoke}
            got = [NamedPartition(*one.pair) for one in found.assign]
            self.owned = [one for one in (*self.owned, *got) if one.pair not in left]
        elif found in (MemberFenced, GroupNotFound):
            self._join()
        return found

    def befalls(self, what: str, number: int) -> Any:
        """Has something happen to the group; returns how that went."""
        inside, name = self.inside, f"m{number % 3}"
        if what == "joins":
            return outcome(
                lambda: inside.join_group("billing", name, topics=["orders"]).generation
            )
        if what == "leaves":
            return outcome(lambda: inside.leave_group("billing", name))
        if what == "is fenced":
            return outcome(
                lambda: inside.join_group("billing", "me", topics=["orders"]).generation
            )
        if what == "is thrown out":
            return outcome(lambda: inside.leave_group("billing", "me"))
        if what == "rewinds":
            return outcome(lambda: inside.rewind_group("billing", "orders", to="first"))
        if what == "grows":
            most = min(8, self.here.topic("orders").partitions + 1)
            return outcome(lambda: self.here.update_topic("orders", partitions=most))
        if what == "another topic":
            return outcome(lambda: self.here.update_topic("more", ttl_s=number + 1))
        if what == "assigns":
            return outcome(
                lambda: inside.assign_group("billing", {"me": {"orders": [number % 3]}})
            )
        if what == "is sticky":
            return outcome(
                lambda: inside.create_group("billing", assignment="sticky").assignment
            )
        if what == "sessions end":
            self.clock.advance_s(11)
        return None


BEFALLS = (
    *("nothing", "nothing", "nothing", "joins", "leaves", "is fenced"),
    *("is thrown out", "rewinds", "grows", "another topic", "assigns", "is sticky"),
    "sessions end",
)


@pytest.mark.parametrize("seed", range(4))
def test_what_comes_again_finds_what_it_finds_embedded(
    server: tuple[Messaging, Messaging], clock: Clock, seed: int
) -> None:
    """Two stores that the same befalls, with heartbeats by frames and without."""
    chance = random.Random(seed)
    with (
        txaware.connect("memory:", clock_ms=clock) as embedded,
        txaware.connect("memory:", clock_ms=clock) as served,
        served.serve() as its_server,
        txaware.connect(its_server.url) as client,
    ):
        plain = World(embedded, embedded._parts.groups, clock, wait_s=0)
        again = World(served, client._parts.groups, clock, wait_s=0.01)
        for step in range(60):
            what = chance.choice(BEFALLS)
            # An answer says ids and generations, which are alike in both.
            assert _said(plain.befalls(what, step)) == _said(again.befalls(what, step))
            for _ in range(chance.randrange(1, 4)):
                assert plain.beat() == again.beat(), (step, what)


@pytest.mark.parametrize("what", sorted({*BEFALLS} - {"nothing"}))
def test_a_look_is_not_taken_again_once_something_befell_its_group(
    clock: Clock, what: str
) -> None:
    with txaware.connect("memory:", clock_ms=clock) as messaging:
        groups = messaging._parts.groups
        assert isinstance(groups, LocalGroups)
        world = World(messaging, groups, clock, wait_s=0)
        world.befalls("joins", 0)
        while (found := world.beat()).revoke:
            pass
        look = groups.look(
            "billing",
            "me",
            incarnation=world.me.incarnation,
            generation=found.generation,
            owned=world.owned,
        )
        assert not look.is_news
        assert look.again() is not None
        heard_s = heard_of(messaging, world.me)
        world.befalls(what, 0)
        assert look.again() is None
        if what not in ("is fenced", "is thrown out"):
            assert heard_of(messaging, world.me) == heard_s


def _said(found: Any) -> Any:
    """Leaves out what differs by store: times and incarnations."""
    return found if isinstance(found, int | str | list | type) else None
