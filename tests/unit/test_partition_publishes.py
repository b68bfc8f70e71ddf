"""A producer's publish to a whole topic is repeated where it is not stored."""

from collections.abc import Callable

import pytest

from tests.support.doubles import Clock
from txaware.errors import TopicNotFound, Unavailable
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId, Outgoing
from txaware.model.partitions import partition_of
from txaware.publish.partition_publishes import KNOWN_S, PartitionPublishes

MESSAGES: list[Payload] = [Outgoing(b"%d" % n, b"key-%d" % n) for n in range(20)]


class Parts:
    """Partitions that store what comes, unless one is down."""

    def __init__(self) -> None:
        self.stored: dict[str, list[Payload]] = {}
        self.down: str | None = None
        self.count = 3
        self.asked = 0

    def partitions(self, _: str) -> int:
        self.asked += 1
        return self.count

    def publish(self, name: str, messages: list[Payload]) -> list[MessageId]:
        if name == self.down:
            raise Unavailable("down")
        self.stored.setdefault(name, []).extend(messages)
        return [MessageId.of(number) for number, _ in enumerate(messages)]


def publishing(
    parts: Parts, clock_s: Callable[[], float] = lambda: 0.0
) -> Callable[[list[Payload], object], list[MessageId]]:
    spread = PartitionPublishes(parts.partitions, clock_s=clock_s)

    def publish(messages: list[Payload], caller: object) -> list[MessageId]:
        return spread.publish(
            "t", messages, parts.publish, caller=caller, sequence=None
        )

    return publish


def test_a_repeat_stores_what_is_not_stored_yet_and_nothing_twice() -> None:
    parts = Parts()
    publish = publishing(parts)
    parts.down = "t.1"
    with pytest.raises(Unavailable, match="goes to partition 0 of topic t is stored"):
        publish([*MESSAGES, b"no key"], "me")
    parts.down = None
    assert len(publish([*MESSAGES, b"no key"], "me")) == 21
    assert sum(map(len, parts.stored.values())) == 21


def test_other_messages_and_other_callers_are_no_repeat() -> None:
    parts = Parts()
    publish = publishing(parts)
    parts.down = "t.2"
    with pytest.raises(Unavailable):
        publish(MESSAGES, "me")
    parts.down = None
    publish(MESSAGES, "you")
    publish(MESSAGES[:5], "me")
    first = [one for one in MESSAGES if partition_of(_key(one), 3) == 0]
    assert parts.stored["t.0"] == [
        *first,
        *first,
        *[one for one in first if one in MESSAGES[:5]],
    ]


def _key(message: Payload) -> bytes:
    return message.key or b"" if isinstance(message, Outgoing) else b""


def test_new_partitions_are_found_after_a_while() -> None:
    parts, clock = Parts(), Clock()
    publish = publishing(parts, lambda: clock.now_ms / 1000)
    publish(MESSAGES, "me")
    publish(MESSAGES, "me")
    assert parts.asked == 1
    parts.count = 30
    clock.now_ms += int(KNOWN_S * 1000) + 1
    publish(MESSAGES, "me")
    assert len(parts.stored) > 3


def test_nothing_is_remembered_of_what_changed_nothing() -> None:
    parts = Parts()
    spread = PartitionPublishes(parts.partitions)

    def gone(*_: object) -> list[MessageId]:
        raise TopicNotFound("gone")

    with pytest.raises(TopicNotFound):
        spread.publish("t", MESSAGES, gone, caller="me", sequence=None)
    assert not spread.has("t")
