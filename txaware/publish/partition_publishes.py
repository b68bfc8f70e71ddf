"""Publishes of a producer to whole topics: each part goes to its partition."""

import sys
import time
from collections.abc import Callable
from itertools import count

import attrs

from txaware.errors import BadRequest, Unavailable, leaves_no_doubt
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId, Outgoing
from txaware.model.partitions import partition_name, partition_of
from txaware.model.requests import checked_payloads

# A number of partitions is asked for again after so long.
KNOWN_S = 10.0
# Publishes a part to a named partition, in its order; returns the ids.
PublishPart = Callable[[str, list[Payload]], list[MessageId]]


@attrs.define
class SpreadCall:
    """A publish that goes to several partitions, and the ids that it has so far."""

    messages: list[Payload]
    numbers: list[int]
    ids: dict[int, list[MessageId]] = attrs.field(factory=dict)

    def parts_left(self) -> list[tuple[int, list[Payload]]]:
        """Returns the messages of each partition that has no ids, by its number."""
        parts: dict[int, list[Payload]] = {}
        for message, number in zip(self.messages, self.numbers, strict=True):
            parts.setdefault(number, []).append(message)
        return sorted(
            (number, part) for number, part in parts.items() if number not in self.ids
        )

    def all_ids(self) -> list[MessageId]:
        """Returns the ids of all messages, in their order."""
        left = {number: iter(ids) for number, ids in self.ids.items()}
        return [next(left[number]) for number in self.numbers]


class PartitionPublishes:
    """Splits what a producer publishes to topics of several partitions.

    `partitions` asks for their number. What is repeated after a failure, by the same
    thread or task, goes to the same partitions, and to none that has stored it.
    """

    def __init__(
        self,
        partitions: Callable[[str], int],
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._partitions = partitions
        self._clock_s = clock_s
        self._known: dict[str, tuple[float, int]] = {}
        self._turns = count()
        self._failed: dict[tuple[object, str], SpreadCall] = {}

    def has(self, topic: str) -> bool:
        """Tells whether a topic is known to have several partitions."""
        return topic in self._known

    def publish(
        self,
        topic: str,
        messages: list[Payload],
        publish: PublishPart,
        *,
        caller: object,
        sequence: int | None,
    ) -> list[MessageId]:
        """Publishes each part; an error says which are stored already."""
        if sequence is not None:
            raise BadRequest(
                f"a sequence is that of one partition; name one of topic {topic}, as "
                f"{partition_name(topic, 0)}"
            )
        call = self._failed.pop((caller, topic), None)
        if call is None or call.messages != messages:
            call = SpreadCall(messages, self._numbers(topic, messages))
        try:
            for number, part in call.parts_left():
                call.ids[number] = publish(partition_name(topic, number), part)
        except Exception as error:
            self._known.pop(topic, None)  # it may have become another one
            if not call.ids and leaves_no_doubt(error):
                raise
            self._failed[caller, topic] = call
            if not call.ids:
                raise
            stored = ", ".join(map(str, sorted(call.ids)))
            raise Unavailable(
                f"what goes to partition {stored} of topic {topic} is stored, and the "
                f"rest may not be: {error}"
            ) from error
        return call.all_ids()

    def _numbers(self, topic: str, messages: list[Payload]) -> list[int]:
        """Returns the partition of each message."""
        checked_payloads(messages, limit_bytes=sys.maxsize)
        partitions, turn = self._count(topic), next(self._turns)
        keys = [
            message.key if isinstance(message, Outgoing) else None
            for message in messages
        ]
        return [
            turn % partitions if key is None else partition_of(key, partitions)
            for key in keys
        ]

    def _count(self, topic: str) -> int:
        until_s, partitions = self._known.get(topic, (float("-inf"), 0))
        if self._clock_s() >= until_s:
            partitions = self._partitions(topic)
            self._known[topic] = self._clock_s() + KNOWN_S, partitions
        return partitions
