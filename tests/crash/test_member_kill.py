"""Members of a group come, go, hang and die: each message is handled once, in order.

`MEMBER_MINUTES` makes it longer, `MEMBER_SEED` another one, and `MEMBER_PATIENCE` waits
so many times longer for a partition to move.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from tests.support.cluster_run import ClusterServer
from tests.support.concurrency import until
from tests.support.database_server import DatabaseServer
from tests.support.hbase_cluster import hbase_url
from tests.support.hbase_cluster_run import HBaseServers
from tests.support.killed_server import Server
from tests.support.member_child import (
    APART,
    GROUP,
    HANDLED,
    HTTP,
    NO_KEY,
    PARTITIONS,
    TOPIC,
)
from tests.support.member_nemesis import (
    DATABASE_KINDS,
    ENDS_S,
    HOME_MOVES,
    KINDS,
    NOTHING,
    SHARDS,
    SLOW,
    Child,
    Findings,
    Kind,
    Nemesis,
    Publishing,
    Rewound,
    Stuck,
    Told,
    catch_up,
    check,
    numbers_of,
    served,
    served_over_hbase,
    served_over_shards,
)
from txaware.local_hbase import LocalHBase
from txaware.messaging import Messaging

RUN_S = 60 * float(os.environ.get("MEMBER_MINUTES", "0")) or 4.0


def live_through(
    directory: Path, kind: str, chosen: Kind, *, database: str = "", **where: str
) -> None:
    """Lets members of a kind suffer, and checks what they handled."""
    with served(directory, embedded=chosen.embedded, **where) as server:

        def say_where_it_is() -> None:
            if chosen.embedded:
                os.kill(server.pid, signal.SIGUSR1)  # it says what its threads do

        suffer(directory, kind, chosen, server, database, when_stuck=say_where_it_is)


def suffer(
    directory: Path,
    kind: str,
    chosen: Kind,
    server: Server | ClusterServer | HBaseServers,
    database: str = "",
    *,
    when_stuck: Callable[[], object] = lambda: None,
) -> None:
    """The same, at a server that is there."""
    with (
        txaware.connect(server.url) as messaging,
        Nemesis(directory, server, chosen, database) as nemesis,
    ):
        publishing = Publishing(server.url)
        told = Told(messaging, nemesis.database)
        try:
            nemesis.run(publishing, told, RUN_S)
            assert until(lambda: all(publishing.ids.values()))  # the newest one too
        finally:
            published = publishing.end()
        nemesis.begin()
        rewinds = nemesis.rewinds
        stuck = catch_up(messaging, told.read, published, rewinds)
        if stuck:
            when_stuck()
            print(*rewinds, sep="\n")
        assert stuck == [], (stuck, numbers_of(told.read()))
        nemesis.leave()
        for static in messaging.group(GROUP).members:
            messaging._parts.groups.leave_group(GROUP, static.member)
        handled, generation = told.read(), messaging.group(GROUP).generation
        print(
            f"{kind}: {len(handled):,} handled in {generation:,} generations, "
            f"{dict(nemesis.done)}"
        )
        assert check(handled, published, rewinds) == NOTHING
        assert min(published.values()) > 0
        assert not messaging.check().problems
        # Of one that was killed last the session is still to end.
        assert chosen.embedded or until(lambda: not messaging.group(GROUP).members)


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_come_go_and_die_handle_each_message_once(
    tmp_path: Path, kind: str
) -> None:
    live_through(tmp_path, kind, KINDS[kind])


def test_members_of_several_servers_handle_each_message_once(tmp_path: Path) -> None:
    """Home is killed, and so are owners of shards, while members come and go."""
    with served_over_shards(tmp_path) as server:
        suffer(tmp_path, "shards", SHARDS, server)


@pytest.mark.long
@pytest.mark.parametrize("kind", DATABASE_KINDS)
def test_members_whose_blocks_a_server_decides_handle_each_message_once(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    database: DatabaseServer = request.getfixturevalue(f"{kind}_server")
    live_through(tmp_path, kind, DATABASE_KINDS[kind], database=database.url)


@pytest.mark.long
@pytest.mark.tephra
def test_members_beside_a_tephra_handle_each_message_once(
    java: str, tmp_path: Path
) -> None:
    coordinator = f"tephra:{tmp_path / 'tephra'}"
    live_through(tmp_path, "tephra", SLOW, coordinator=coordinator)


@pytest.mark.long
@pytest.mark.hbase
def test_members_over_hbase_handle_each_message_once(
    shared_hbase: LocalHBase, tmp_path: Path
) -> None:
    url = hbase_url(shared_hbase, "members")
    live_through(tmp_path, "hbase", SLOW, url=url)


@pytest.mark.soak
@pytest.mark.hbase
def test_members_handle_each_message_once_while_home_moves(
    shared_hbase: LocalHBase, tmp_path: Path
) -> None:
    with served_over_hbase(tmp_path, shared_hbase) as server:
        suffer(tmp_path, "home moves", HOME_MOVES, server)


def test_a_backlog_moves_and_a_partition_that_is_stuck_does_not() -> None:
    lines = [b"0 0 a", b"1 0 a", b"0 1 a", b"0 2 a"]
    shown = iter(range(1, 1_000_000))
    with txaware.connect("memory:") as messaging:
        messaging.create_topic(TOPIC, partitions=2)
        messaging.create_topic(HANDLED)
        found = catch_up(
            messaging, lambda: lines[: next(shown)], {0: 3, 1: 2}, moves_s=0.2
        )
        assert found == [Stuck(1, 1, 2, "None", "", "")]
        assert catch_up(messaging, lambda: lines, {0: 3, 1: 1}) == []


def test_a_rewind_takes_a_partition_back_once() -> None:
    numbers = [0, 1, 2, 3, 2, 3, 4]
    handled = [b"0 %d a" % number for number in numbers]
    back = Rewound(0, 2, 3, is_sure=True)
    assert check(handled, {0: 5}, [back]) == NOTHING
    assert check(handled, {0: 5}).doubles == [(0, 2), (0, 3)]
    # Not before it was asked for, not twice, and not never.
    assert check(handled, {0: 5}, [attrs.evolve(back, after=5)]).doubles
    assert check([*handled, b"0 2 a", b"0 3 a"], {0: 5}, [back]).unordered == [
        (0, 4, 2)
    ]
    assert check(handled[:4], {0: 4}, [attrs.evolve(back, after=4)]).missing == [(0, 2)]
    maybe = attrs.evolve(back, after=4, is_sure=False)
    assert check(handled[:4], {0: 4}, [maybe]) == NOTHING


@pytest.mark.parametrize("frames", [True, False])
def test_a_member_that_is_killed_is_missed_before_its_session_ends(
    tmp_path: Path, *, frames: bool
) -> None:
    """Its connection ends, and nothing is heard of it any more."""
    options: dict[str, Any] = {"session_s": 300, "fault": "" if frames else HTTP}
    with served(tmp_path) as server, ExitStack() as ends:
        lives = Child(server.url, "lives", **options)
        ends.callback(lives.kill)
        lives.says("joined")
        with txaware.connect(server.url) as messaging:

            def dies_and_is_missed() -> bool:
                before = messaging.group(GROUP).members
                dies = Child(server.url, "dies", **options)
                dies.says("joined")
                time.sleep(0.5)  # mostly it waits in a heartbeat by then
                dies.kill()
                return until(
                    lambda: len(messaging.group(GROUP).members) == len(before),
                    timeout_s=ENDS_S / 4,
                )

            assert any(dies_and_is_missed() for _ in range(4))


def hang_in_a_block(server: Server, fault: str) -> Findings:
    """A member hangs in its block for longer than its session, and goes on."""
    with txaware.connect(server.url) as messaging, ExitStack() as ends:
        messaging.publish(f"{TOPIC}.0", [b"%d" % number for number in range(5)])
        first = Child(server.url, "first", pause_s=0.5, fault=fault)
        ends.callback(first.kill)
        first.says("in a block")
        first.signal(signal.SIGSTOP)
        second = Child(server.url, "second", fault=fault)
        ends.callback(second.kill)
        assert until(lambda: len(Told(messaging).read()) == 5, timeout_s=ENDS_S)
        first.signal(signal.SIGCONT)
        if fault:
            assert until(lambda: len(Told(messaging).read()) > 5, timeout_s=ENDS_S)
        else:
            first.says("refused")
        first.leave()
        second.leave()
        return check(Told(messaging).read(), {0: 5})


def test_a_member_that_wakes_up_in_its_block_commits_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert hang_in_a_block(server, "") == NOTHING


@pytest.mark.parametrize("fault", [NO_KEY, APART])
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    with served(tmp_path) as server:
        found = hang_in_a_block(server, fault)
    assert len(found.doubles) == 5
    assert found.unordered


def share(messaging: Messaging, members: list[Any], within_s: float) -> bool:
    """Tells whether two members each get half of the partitions in time."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        for one in members:
            one.poll()
            one.rollback()
        if [len(one._held) for one in members] == [PARTITIONS // 2] * 2:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def messaging() -> Iterator[Messaging]:
    with txaware.connect("memory:") as found:
        found.create_topic(TOPIC, partitions=PARTITIONS)
        yield found


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_member_that_never_lets_go_is_found(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    with messaging.member(GROUP, topics=[TOPIC]) as first:
        first.poll()
        if is_planted:
            monkeypatch.setattr(type(first), "_take", lambda *_: None)
        with messaging.member(GROUP, topics=[TOPIC]) as second:
            within_s = 0.5 if is_planted else ENDS_S
            assert share(messaging, [first, second], within_s) is not is_planted


@pytest.mark.parametrize("is_planted", [False, True])
def test_sessions_that_never_end_are_found(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    never: Callable[[object, float], list[str]] = lambda _, __: []  # noqa: E731
    if is_planted:
        monkeypatch.setattr(
            "txaware.service.groups.membership.Membership.expired", never
        )
    groups = messaging._parts.groups
    groups.join_group(GROUP, "dead", topics=[TOPIC], session_s=0.3)
    with messaging.member(GROUP, topics=[TOPIC]) as second:
        within_s = 1.0 if is_planted else float(ENDS_S)
        until_s = time.monotonic() + within_s
        while not second.assignment and time.monotonic() < until_s:
            second.poll(timeout_s=0.05)
        assert bool(second.assignment) is not is_planted
