"""The outbox of a database, for the program and for the people who look after it."""

from datetime import datetime

from txaware.errors import BadRequest, MisusedTransaction, TxAwareError
from txaware.model.partitions import full_name
from txaware.model.queues import checked_count, time_of
from txaware.model.topics import DEFAULT_NAMESPACE, QueueName
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import (
    OutboxDestination,
    OutboxRows,
    SetAside,
    SetAsideMessage,
)


class NothingSetAside(BadRequest):
    """Nothing is set aside for that topic or queue; the message says for which."""


class SetAsideAgain(TxAwareError):
    """Some of what was tried again was refused again; the message says why."""


class DatabaseOutbox:
    """The rows that wait in an outbox, and those set aside, which cannot be carried.

    A topic or queue that is made again takes what was set aside for it by `retry`, and
    never by itself. `queue` tells whether a name is that of a queue; by default it is
    of what something is set aside for, and of the topic where that holds for both.
    """

    def __init__(
        self, rows: OutboxRows, relay: OutboxRelay[OutboxRows] | None = None
    ) -> None:
        self.rows = rows
        self._relay = relay

    def waiting(self) -> int:
        """Returns how many messages and items wait; none of them is set aside."""
        return self.rows.waiting()

    def waiting_since(self) -> datetime | None:
        """Returns when the oldest of these was written; None where none waits."""
        oldest_ms = self.rows.oldest_ms()
        return None if oldest_ms is None else time_of(oldest_ms)

    def set_aside(self) -> list[SetAside]:
        """Returns what is set aside, an entry for each topic and queue."""
        return self.rows.set_aside()

    def entry(self, topic: str, *, queue: bool | None = None) -> SetAside:
        """Returns what is set aside for a topic or queue; raises where nothing is."""
        name = topic.removeprefix(f"{DEFAULT_NAMESPACE}:")
        entries = self.set_aside()
        for one in sorted(entries, key=lambda one: one.is_queue):
            if one.topic == name and queue in (None, one.is_queue):
                return one
        others = ", ".join([str(one.destination) for one in entries]) or "nobody"
        kind = {None: "", True: "queue ", False: "topic "}[queue]
        raise NothingSetAside(
            f"nothing is set aside for {kind}{topic}; it is for {others}"
        )

    def messages(
        self, topic: str, *, queue: bool | None = None, limit: int = 100
    ) -> list[SetAsideMessage]:
        """Returns the first ones that are set aside for a topic or queue."""
        found = self.entry(topic, queue=queue).destination
        return self.rows.set_aside_messages(found, limit=checked_count("limit", limit))

    def retry(self, topic: str, *, queue: bool | None = None) -> int:
        """Carries over, in order, what is set aside for a topic or queue.

        Returns how many. Where the topic is not there, all stays as it is.
        """
        found = self.entry(topic, queue=queue)
        return self._carried(found, found.destination)

    def send(self, topic: str, *, to: str, queue: bool | None = None) -> int:
        """Carries over, in order, to another topic; of a queue to another queue.

        Returns how many. Where that one is not there, all stays as it is.
        """
        found = self.entry(topic, queue=queue)
        name = str(QueueName.parse(to)) if found.is_queue else full_name(to)
        return self._carried(found, OutboxDestination(name, found.is_queue))

    def discard(self, topic: str, *, queue: bool | None = None) -> int:
        """Removes what is set aside for a topic or queue; returns how many messages."""
        count = self.rows.discard(self.entry(topic, queue=queue).destination)
        if self._relay is not None:
            self._relay.report()
        return count

    def _carried(self, found: SetAside, to: OutboxDestination) -> int:
        relay = self._relay
        if relay is None:
            raise MisusedTransaction("an outbox without a relay carries nothing over")
        relay.require(to)
        before = self._count_of(to) if found.destination != to else 0
        count = self.rows.put_back(found.destination, to=to.column)
        relay.carry_over()
        again = self._count_of(to) - before
        if again > 0:
            reason = self.entry(to.name, queue=to.is_queue).reason
            raise SetAsideAgain(
                f"{again} of {count} messages for {to} are set aside again: {reason}"
            )
        return count

    def _count_of(self, to: OutboxDestination) -> int:
        found = [one.count for one in self.set_aside() if one.destination == to]
        return sum(found)
