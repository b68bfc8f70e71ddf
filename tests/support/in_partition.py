"""A service whose topics are each one partition of a topic of several."""

from collections.abc import Iterable
from typing import Any

import attrs

from txaware.model.interfaces import Payload
from txaware.model.messages import Receipt
from txaware.model.partitions import partition_name

PARTITIONS, NUMBER = 3, 1
# The files of the contract that are about messages, and not about topics themselves.
FILES = {
    "test_first_undecided",
    "test_last_stable",
    "test_paging",
    "test_positions",
    "test_publish_end",
    "test_publish_poll",
    "test_publish_spill",
    "test_references",
    "test_visibility",
    "test_waiting",
}
# Tests in them that say the name of a topic, or look inside.
LEFT_OUT = {
    "test_receipts_name_the_attempts_that_are_delivered",
    "test_a_reference_that_could_not_be_written_may_be_published_again",
}


def named(topic: Any) -> Any:
    """Returns the name of the partition that stands for a topic."""
    if not isinstance(topic, str) or "." in topic or topic.startswith(":"):
        return topic
    return partition_name(topic, NUMBER)


class Names:
    """Passes all on, but for the names of topics."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _first(name: str) -> Any:
    def call(self: Names, topic: Any, *arguments: Any, **options: Any) -> Any:
        return getattr(self._inner, name)(named(topic), *arguments, **options)

    return call


def _second(name: str) -> Any:
    def call(self: Names, group: Any, topic: Any, *rest: Any, **options: Any) -> Any:
        return getattr(self._inner, name)(group, named(topic), *rest, **options)

    return call


class InPartition(Names):
    """A messaging service by such names."""

    rollback = _first("rollback")
    poll = _first("poll")
    wait = _first("wait")
    bounds = _first("bounds")
    offsets = _first("offsets")
    publish_once = _first("publish_once")
    position = _second("position")
    save_position = _second("save_position")

    @property
    def carrier(self) -> Any:
        """The carrier, by such names."""
        carrier = self._inner.carrier
        return None if carrier is None else CarrierInPartition(carrier)

    def create_topic(self, topic: str, **options: Any) -> Any:
        """Creates a topic of several partitions."""
        return self._inner.create_topic(topic, **{"partitions": PARTITIONS, **options})

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        receipts: Iterable[Receipt] | None = None,
        **options: Any,
    ) -> Any:
        """Publishes to the partition."""
        if isinstance(receipts, list):
            receipts = [
                attrs.evolve(one, topic=named(one.topic))
                if isinstance(one, Receipt)
                else one
                for one in receipts
            ]
        return self._inner.publish(named(topic), messages, receipts=receipts, **options)

    def store(self, topic: str, messages: Iterable[Payload], **options: Any) -> Receipt:
        """Stores for the partition; the receipt names the topic."""
        receipt: Receipt = self._inner.store(named(topic), messages, **options)
        return attrs.evolve(receipt, topic=topic)


class CarrierInPartition(Names):
    """The part of it that makes cargoes."""

    def cargo(self, coordinator: Any, tx: Any, messages: Iterable[Any]) -> Any:
        """Returns messages for partitions."""
        listed = [(named(topic), payloads) for topic, payloads in messages]
        return self._inner.cargo(coordinator, tx, listed)

    def position_cargo(
        self, coordinator: Any, tx: Any, group: str, topic: str, position: Any
    ) -> Any:
        """Returns the position in a partition."""
        return self._inner.position_cargo(
            coordinator, tx, group, named(topic), position
        )


class OperatorInPartition(Names):
    """The verbs of operators by such names."""

    peek = _first("peek")
    inspect = _first("inspect")
    splits = _first("splits")
    first_undecided = _first("first_undecided")
    lag_ms = _second("lag_ms")
    oldest_unread_ms = _second("oldest_unread_ms")


def in_partition(messaging: Any) -> Any:
    """Has a messaging that was just opened read topics as one of their partitions."""
    messaging._service = InPartition(messaging._service)
    messaging._administration = OperatorInPartition(messaging._administration)
    messaging._producers = InPartition(messaging._producers)
    messaging._publishes_once = InPartition(messaging._publishes_once)
    return messaging
