"""Heartbeats at a server: their cost while nothing happens, and what ends a wait."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import txaware
from tests.support.concurrency import in_background, until
from txaware.messaging import Messaging
from txaware.model.group_service import GroupService
from txaware.model.groups import Beat, Joined, NamedPartition
from txaware.server.routes.members import beats_end_s
from txaware.service.groups.local_groups import LocalGroups

ALL = [NamedPartition("orders", number) for number in range(3)]


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
        owned=ALL,
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
