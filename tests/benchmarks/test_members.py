"""The floors of groups with members: `python -m pytest -m benchmark -s`."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.benchmarks.measure import Figure
from tests.support.member_child import GROUP, HANDLED, TOPIC
from txaware.bench.measure import medians_in_turns, took_ms
from txaware.consume.member import Member
from txaware.errors import GroupNotFound
from txaware.messaging import Messaging
from txaware.model.groups import GroupMember
from txaware.model.settings import Settings

pytestmark = pytest.mark.benchmark

ROUNDS, TIMES = 5, 60
MEMBERS, PARTITIONS = 20, 100
SETTINGS = Settings(janitor_interval_s=0)
PATIENCE_S, LOOK_AGAIN_S = 60.0, 0.005
SESSION_S = 1.0


def polled(messaging: Messaging, poll: Callable[[], Any]) -> Callable[[], None]:
    """A transaction that polls ten messages, and moves the position with them."""

    def run() -> None:
        with messaging.transaction():
            assert len(poll()) == 10

    return run


def test_a_poll_of_a_member(tmp_path: Path) -> None:
    with txaware.connect(f"leveldb:{tmp_path}", settings=SETTINGS) as messaging:
        messaging.create_topic("orders")
        count = 10 * (ROUNDS * TIMES + 1)
        messaging.publish("orders", [b"x" * 100] * count)
        consumer = messaging.consumer("orders", group="alone")
        with messaging.member("shared", topics=["orders"]) as member:
            owned_by(messaging, "shared", lambda owners: len(owners) == 1, parts=1)
            found = medians_in_turns(
                ROUNDS,
                TIMES,
                alone=partial(
                    took_ms, polled(messaging, partial(consumer.poll, limit=10))
                ),
                member=partial(
                    took_ms, polled(messaging, partial(member.poll, limit=10))
                ),
            )
    assert Figure(
        "a member's poll in a transaction",
        "ms",
        found["member"],
        found["alone"],
        "consumer's",
    ).report(at_most=1.1)


def members_of(messaging: Messaging, group: str) -> list[GroupMember]:
    try:
        return messaging.group(group).members
    except GroupNotFound:  # nobody has joined yet
        return []


def owned_by(
    messaging: Messaging,
    group: str,
    fits: Callable[[dict[str, int]], bool],
    *,
    parts: int = PARTITIONS,
    polling: Sequence[Member] = (),
) -> None:
    """Polls until all partitions have an owner, and how many each has fits."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        owners = {
            one.member: len(one.partitions) for one in members_of(messaging, group)
        }
        if sum(owners.values()) == parts and fits(owners):
            return
        assert time.monotonic() < until_s, owners
        for one in polling:
            one.poll(limit=1)
        time.sleep(LOOK_AGAIN_S)


def test_twenty_members_settle(tmp_path: Path) -> None:
    share = PARTITIONS // MEMBERS
    took: dict[str, float] = {}
    with (
        txaware.connect(f"leveldb:{tmp_path}", settings=SETTINGS) as messaging,
        messaging.serve() as server,
        ExitStack() as stack,
    ):
        messaging.create_topic(TOPIC, partitions=PARTITIONS)
        messaging.create_topic(HANDLED)

        def settled(
            name: str,
            fits: Callable[[dict[str, int]], bool],
            polling: Sequence[Member],
            began_s: float,
        ) -> None:
            owned_by(messaging, GROUP, fits, polling=polling)
            took[name] = max(0.0, time.perf_counter() - began_s)

        def member() -> Member:
            return messaging.member(GROUP, topics=[TOPIC], session_s=SESSION_S)

        members = [member() for _ in range(MEMBERS)]
        joins = [threading.Thread(target=one.__enter__) for one in members]
        began_s = time.perf_counter()
        for join in joins:
            join.start()
        for join, one in zip(joins, members, strict=True):
            join.join()
            stack.callback(one.__exit__, None, None, None)
        settled(
            f"{MEMBERS} joins",
            lambda owners: [*owners.values()] == [share] * MEMBERS,
            members,
            began_s,
        )
        began_s = time.perf_counter()
        with member() as late:
            all_of_them = [*members, late]
            settled(
                "a join",
                lambda owners: len(owners) > MEMBERS and all(owners.values()),
                all_of_them,
                began_s,
            )
            began_s = time.perf_counter()
        settled("a leave", lambda owners: len(owners) == MEMBERS, members, began_s)
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.member_child", server.url),
                *("child", str(SESSION_S), "0", "-", ""),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with child:
            owned_by(
                messaging,
                GROUP,
                lambda owners: len(owners) > MEMBERS and all(owners.values()),
                polling=members,
            )
            child.kill()
            settled(
                "a kill, after its session",
                lambda owners: len(owners) == MEMBERS,
                members,
                time.perf_counter() + SESSION_S,
            )
    figures = [
        Figure(
            f"{MEMBERS} members over {PARTITIONS} partitions, {name}",
            "s",
            [took_s],
            [1.0],
            "limit",
        ).report(at_most=1)
        for name, took_s in took.items()
    ]
    assert all(figures)
