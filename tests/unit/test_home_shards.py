"""What home does with new shards, and with those that an operator gives to a server."""

import logging
from collections.abc import Iterator
from contextlib import closing
from unittest.mock import Mock

import attrs
import pytest

from txaware.errors import Unavailable
from txaware.model.shards import HOME
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.home_shards import GIVE_S, HomeShards, waited
from txaware.server.cluster.server_map import ServerEntry
from txaware.server.cluster.server_sessions import SentHello, ServerSessions
from txaware.server.cluster.shard_uses import ShardUses

WAIT_S = 5.0
OTHER = ServerEntry("other", "http://other:1", "http://other:1")


@attrs.define
class Site:
    """Home, a second server, and the time, which only passes where somebody waits."""

    sessions: ServerSessions
    shards: HomeShards
    now_s: list[float]
    takes: bool = True
    has: list[int] = attrs.field(factory=list)

    def sleep(self, pause_s: float) -> None:
        """Has the other server say what it has, while home waits."""
        self.now_s[0] += pause_s
        orders = self.sessions.hello(SentHello(OTHER, self.has, 0))
        if self.takes:
            self.has = orders.has
            self.sessions.hello(SentHello(OTHER, self.has, 0))


@pytest.fixture
def site() -> Iterator[Site]:
    now_s = [100.0]
    own = ServerEntry("own", "http://own:1", "http://own:1")
    sessions = ServerSessions(
        own, [HOME], silence_s=1000, epoch=1, clock_s=lambda: now_s[0]
    )
    membership = ClusterPart(
        "own", b"s" * 32, sessions.server_map, token="", leads=True
    )
    membership.copies, membership.uses = Mock(), ShardUses()
    sessions.hello(SentHello(OTHER, [], 0))
    now_s[0] += 10
    shards = HomeShards(
        sessions,
        membership,
        Mock(),
        Mock(),
        here=None,
        wait_s=WAIT_S,
        waited=lambda *asked: waited(
            *asked, clock_s=lambda: now_s[0], sleep=lambda pause_s: made.sleep(pause_s)
        ),
    )
    made = Site(sessions, shards, now_s)
    with closing(shards):
        yield made


def test_new_shards_are_waited_for_until_servers_have_them(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    began_s = site.now_s[0]
    site.shards.hand_out([1])
    assert site.sessions.holder_of(1) == "other"
    assert site.now_s[0] < began_s + WAIT_S
    assert not caplog.messages


def test_new_shards_that_no_server_takes_are_named_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.takes = False
    began_s = site.now_s[0]
    with caplog.at_level(logging.WARNING):
        site.shards.hand_out([1, 2])
    assert WAIT_S < site.now_s[0] - began_s < WAIT_S + 1
    [said] = caplog.messages
    assert said.startswith("no server has the new shards 1, 2 after 5 s; each goes to")


def test_a_shard_that_does_not_come_to_the_server_named_is_said(site: Site) -> None:
    site.shards.hand_out([1])
    site.takes = False
    site.sessions.add([2])
    began_s = site.now_s[0]
    with pytest.raises(Unavailable, match="shard 2 is not there after 20 s"):
        site.shards.give_to(2, "other")
    assert GIVE_S < site.now_s[0] - began_s < GIVE_S + 1
    site.takes = True
    site.shards.give_to(2, "other")
    assert site.sessions.holder_of(2) == "other"
