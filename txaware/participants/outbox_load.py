"""The rows of one batch of an outbox, as messages of topics and items of queues."""

import math
from collections.abc import Iterable

import attrs

from txaware.messaging import Messaging
from txaware.model.interfaces import Payload
from txaware.participants.outbox_row import OutboxDestination, Row, payload_of
from txaware.queue.queue import Pusher


@attrs.define
class PushedItems:
    """Items that are pushed one after the other by one pusher, of one priority.

    They are due at `due_ms`, or at once.
    """

    queue: str
    pusher: str
    priority: int
    due_ms: float = 0
    items: list[Payload] = attrs.field(factory=list)


class OutboxLoad:
    """Messages by topic, and items by queue, each in the order of its rows.

    What has expired is left out; `count` says how many are not.
    """

    def __init__(self, rows: Iterable[Row], *, now_ms: int) -> None:
        self.count = 0
        self._now_ms = now_ms
        self._messages: dict[str, list[Payload]] = {}
        self._pushes: list[PushedItems] = []
        self._last: dict[str, PushedItems] = {}
        self._delayed: dict[tuple[str, int, int], PushedItems] = {}
        queues: dict[str, str | None] = {}
        for row in rows:
            payload = payload_of(row, now_ms=now_ms)
            if payload is None:
                continue
            self.count += 1
            topic = row.topic
            if topic not in queues:
                to = OutboxDestination.of(topic)
                queues[topic] = to.name if to.is_queue else None
            queue = queues[topic]
            if queue is not None:
                self._push_of(row, queue).items.append(payload)
            elif topic in self._messages:
                self._messages[topic].append(payload)
            else:
                self._messages[topic] = [payload]

    def _push_of(self, row: Row, queue: str) -> PushedItems:
        """Returns the push that an item is of; it keeps the order within its queue."""
        pusher, priority = row.pusher or "", row.priority or 0
        due_ms = (row.written_ms or 0) + (row.delay_s or 0) * 1000
        if due_ms > self._now_ms and row.delay_s:
            # A queue makes whole seconds of delays, and each has a pipe for all.
            key = (queue, priority, math.ceil(due_ms / 1000))
            if key not in self._delayed:
                self._delayed[key] = PushedItems(queue, pusher, priority)
                self._pushes.append(self._delayed[key])
            found = self._delayed[key]
            found.due_ms = max(found.due_ms, due_ms)
            return found
        last = self._last.get(queue)
        if last is None or (last.pusher, last.priority) != (pusher, priority):
            last = self._last[queue] = PushedItems(queue, pusher, priority)
            self._pushes.append(last)
        return last

    def publish(self, messaging: Messaging, *, pusher: str) -> None:
        """Publishes and pushes with the open transaction; `pusher` is for the unnamed.

        Items that nobody named a pusher for come in the order of the outbox.
        """
        for topic, messages in self._messages.items():
            messaging.publisher(topic).publish_all(messages)
        pushers: dict[tuple[str, str], Pusher] = {}
        for push in self._pushes:
            key = push.queue, push.pusher or pusher
            if key not in pushers:
                pushers[key] = messaging.queue(push.queue).pusher_of(key[1])
            left_s = max(0, push.due_ms - self._now_ms) / 1000
            pushers[key].push_all(push.items, delay_s=left_s, priority=push.priority)
