"""Consumers of which each gets every message: an instance of a program has one."""

import json
from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import Any, Generic, Protocol, Self, cast

import attrs

from txaware.consume import Consumer
from txaware.errors import BadRequest
from txaware.model.clock import ClockMs
from txaware.model.encoding import decoder
from txaware.model.latest import Latest
from txaware.model.messages import Message, MessageId, T
from txaware.model.partitions import full_name
from txaware.model.queues import checked_seconds, checked_text, time_of
from txaware.model.start_places import Position, place_in_partition
from txaware.tables import Table
from txaware.tables.table_changes import Conflicts

TABLE = "txaware-instances"
MAX_LEASE_S = 7 * 86_400
LEASE_S = 60.0
# The row of an instance is written anew when so much of its lease is over.
RENEWED_AFTER = 1 / 3


@attrs.frozen
class Instance:
    """An instance that gets all messages of a topic: how far it has come, and when.

    Everything up to `position`, inclusively, was handled. It is None for one that has
    handled nothing yet, and an id for each partition of a topic of several.
    """

    name: str
    position: Position | None
    seen_at: datetime

    def has_handled(self, message: Message[Any]) -> bool:
        """Tells whether a message lies before its position, or there."""
        return message.id <= place_in_partition(self.position, message.partition)


class ReadsTopics(Protocol):
    """Holds what a broadcast consumer works with, as a `Messaging` does."""

    @property
    def clock_ms(self) -> ClockMs:
        """The clock, in ms since 1970."""

    def latest(self, topic: str) -> Latest:
        """Returns the newest message of each key."""

    def consumer(self, topic: str) -> Consumer:
        """Returns a reader of a topic."""

    def table(self, name: str, *, conflicts: Conflicts = "row") -> Table:
        """Returns a table of rows."""


class Instances:
    """The rows of the instances of all topics, which go when their leases end."""

    def __init__(self, messaging: ReadsTopics) -> None:
        self._table: Table = messaging.table(TABLE, conflicts="none")
        self._clock_ms = messaging.clock_ms

    def save(
        self, topic: str, name: str, position: Position | None, lease_s: float
    ) -> None:
        """Writes how far an instance has come, with the open transaction or at once."""
        found = {"position": _to_json(position), "seenMs": self._clock_ms()}
        value = json.dumps(found).encode()
        self._table.put(_key(topic, name), value, ttl_s=lease_s)

    def forget(self, topic: str, name: str) -> None:
        """Removes an instance."""
        self._table.delete(_key(topic, name))

    def of(self, topic: str) -> dict[str, Instance]:
        """Returns the instances of a topic whose leases have not ended, by name."""
        prefix = _key(full_name(topic), "")
        found: dict[str, Instance] = {}
        for key, value in self._table.scan(prefix=prefix):
            row, name = json.loads(value), key[len(prefix) :].decode()
            position = _from_json(row["position"])
            found[name] = Instance(name, position, time_of(row["seenMs"]))
        return found


def _key(topic: str, name: str) -> bytes:
    return f"{topic}\0{name}".encode()


def _to_json(position: Position | None) -> str | dict[int, str] | None:
    if isinstance(position, dict):
        return {number: str(place) for number, place in position.items()}
    return None if position is None else str(position)


def _from_json(position: str | dict[str, str] | None) -> Position | None:
    if isinstance(position, dict):
        places = position.items()
        return {int(number): MessageId.parse(place) for number, place in places}
    return None if position is None else MessageId.parse(position)


@attrs.frozen
class _Saved:
    """A place that was written to the row of an instance, and when."""

    position: Position | None
    at_ms: int


class BroadcastConsumer(Generic[T]):
    """A reader of every message of a topic, for one instance of a program.

    The first poll returns the newest message of each key, in their order; later ones
    return what comes behind. In a transaction the place moves with its commit, and so
    does the row that tells others how far this instance has come. Outside, a poll
    counts as handled at the next call.

    The place is that of this object: a new one begins with the newest messages again.
    Its row goes with `close`, or `lease_s` after the last call. It serves one
    transaction at a time.
    """

    def __init__(
        self,
        messaging: ReadsTopics,
        topic: str,
        instance: str,
        *,
        lease_s: float = LEASE_S,
        decode: Callable[[bytes], Any] | None = None,
        in_block: Callable[[], bool],
    ) -> None:
        self.topic = full_name(topic)
        self.instance = checked_text("instance", instance)
        if not self.instance:
            raise BadRequest("an instance has a name")
        self._lease_s = checked_seconds("lease_s", lease_s, most=MAX_LEASE_S)
        self._messaging = messaging
        self._decode = None if decode is None else decoder(decode)
        self._in_block = in_block
        self._consumer = messaging.consumer(self.topic)
        self._instances = Instances(messaging)
        # What its row says for sure, and what it says once a transaction commits.
        self._saved: _Saved | None = None
        self._within: _Saved | None = None
        if not in_block():
            self.renew()

    @property
    def renewed_after_s(self) -> float:
        """The time after which its row is written anew."""
        return self._lease_s * RENEWED_AFTER

    @property
    def position(self) -> Any:
        """The message behind which the next poll goes on; None before the first.

        Of a topic of several partitions that is the place in each, by its number.
        """
        return self._consumer.position

    def poll(self, limit: int = 100) -> list[Message[T]]:
        """Returns the newest message of each key first, then the next messages.

        There are at most `limit` of the next ones, and none if nothing is new.
        """
        in_block = self._in_block()
        if not in_block:
            self.renew()
        before = self.position
        found = self._newest() if before is None else self._consumer.poll(limit)
        if in_block and self.position != before:
            self._within = _Saved(self.position, self._messaging.clock_ms())
            self._save(self._within.position)
        if self._decode is None:
            return cast(list[Message[T]], list(found))
        return [message.decoded(self._decode) for message in found]

    def _newest(self) -> list[Message]:
        latest = self._messaging.latest(self.topic)
        self._consumer.seek(latest.next, inclusive=False)
        return sorted(latest.values(), key=attrgetter("id"))

    def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; False after the time-out.

        It comes before the transaction. While it waits it keeps the lease.
        """
        step_s = self.renewed_after_s
        while True:
            self.renew()
            if self.position is None:
                return True
            if self._consumer.wait(min(step_s, timeout_s)):
                return True
            timeout_s -= step_s
            if timeout_s <= 0:
                return False

    def renew(self) -> None:
        """Tells others that this instance is there, and what it has handled.

        `poll` and `wait` do so by themselves. Who handles a message for longer than the
        lease does it meanwhile, outside of the transaction.
        """
        position, now_ms = self._consumer.position, self._messaging.clock_ms()
        if self._within is not None and self._within.position == position:
            self._saved = self._within  # its transaction has committed
        saved, lasts_ms = self._saved, self.renewed_after_s * 1000
        is_due = saved is None or now_ms >= saved.at_ms + lasts_ms
        if saved is None or is_due or saved.position != position:
            self._save(position)
            self._saved = _Saved(position, now_ms)

    def _save(self, position: Position | None) -> None:
        self._instances.save(self.topic, self.instance, position, self._lease_s)

    def close(self) -> None:
        """Has others see this instance no longer."""
        self._instances.forget(self.topic, self.instance)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<BroadcastConsumer of {self.topic}, instance {self.instance}>"
