"""A part of a commit goes to the owner of its shard, wherever that is by then."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.support.concurrency import PATIENCE_S
from txaware.client.calls.call import Call
from txaware.errors import ShardAway
from txaware.model.requests import checked_payloads
from txaware.protocol.frames import SERVER
from txaware.server.cluster.commit_parts import (
    CommitParts,
    SentPart,
    WrittenPart,
    parts_route,
)

PAYLOADS = checked_payloads([b"x"], limit_bytes=10)


class Calls:
    """The way to a shard that is away so many times, and what was sent there."""

    def __init__(self, away: int) -> None:
        self.sent: list[SentPart] = []
        self._away = away

    @contextmanager
    def using(self, _: int) -> Iterator[bool]:
        yield False

    def perform(self, _: int, call: Call[Any]) -> WrittenPart:
        self.sent.append(msgspec.msgpack.decode(call.body or b"", type=SentPart))
        if len(self.sent) <= self._away:
            raise ShardAway("it moves")
        return WrittenPart(f"ticket {len(self.sent)}")


class Entries:
    """Notes which transactions have entered, and that they have left."""

    def __init__(self) -> None:
        self.inside: list[int] = []

    @contextmanager
    def sending(self, _: int, pointer: int) -> Iterator[str]:
        self.inside.append(pointer)
        try:
            yield "since"
        finally:
            self.inside.remove(pointer)


def parts(calls: Calls, *, wait_s: float) -> CommitParts:
    any_calls: Any = calls
    entries: Any = Entries()
    service: Any = None
    return CommitParts(service, any_calls, entries, wait_s=wait_s)


def test_a_shard_that_moves_is_asked_again() -> None:
    calls = Calls(away=1)
    sender = parts(calls, wait_s=PATIENCE_S)
    sender.publish(1, "t", PAYLOADS, 7)
    sender.publish(1, "t", PAYLOADS, 8)
    sender.publish(2, "u", PAYLOADS, 8)
    assert [one.ticket for one in calls.sent] == ["", "", "ticket 2", ""]
    assert {one.since for one in calls.sent} == {"since"}


def test_a_shard_that_stays_away_is_named() -> None:
    with pytest.raises(ShardAway):
        parts(Calls(away=9), wait_s=0).publish(1, "t", PAYLOADS, 7)


def test_a_server_that_has_the_shard_no_more_says_so_and_writes_nothing() -> None:
    """It is not asked again, as after 503: home looks for the owner."""
    context: Any = SimpleNamespace(service=None, coordinator=None)
    membership: Any = SimpleNamespace(uses=None, has=lambda _: False)
    sent = SentPart(1, "t", b"", "since", "ticket")
    request: Any = SimpleNamespace(
        headers={SERVER: b"sealed"}, body=msgspec.msgpack.encode(sent)
    )
    answer: Any = asyncio.run(parts_route(context, membership).handle(request))
    assert answer.status == 421
    assert b"ShardAway" in answer.body
