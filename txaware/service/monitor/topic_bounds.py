"""The bounds of topics, read again only where they may have changed."""

from collections.abc import Callable

import attrs

from coordinator.transaction import Transaction
from txaware.model.clock import ClockMs
from txaware.model.messages import Bounds
from txaware.model.topics import Topic
from txaware.service.local import LocalService
from txaware.service.write.topic_writer import TopicWriter

# A clean-up tells no topic what it removed: its rows may be named for so long.
KEPT_MS = 30_000
MOST_KNOWN = 10_000


@attrs.frozen
class _Known:
    """Bounds as they were read when `seen` was the count of the topic's signal."""

    topic: Topic
    writer: TopicWriter
    seen: int
    read_ms: int
    bounds: Bounds


class TopicBounds:
    """The bounds of topics, remembered until something happens in them.

    Only the process that asks adds rows, and tells the topic's signal of each, and of
    the end of each transaction that wrote any. So bounds in which all is decided hold
    until the next one, until the first row expires, or for `KEPT_MS`. One thread asks.
    """

    def __init__(
        self,
        service: LocalService,
        read: Callable[[str, Transaction | None], Bounds],
        clock_ms: ClockMs,
    ) -> None:
        self._service = service
        self._read = read
        self._clock_ms = clock_ms
        self._known: dict[str, _Known] = {}

    def of(self, topic: str, snapshot: Transaction | None = None) -> Bounds:
        """Returns the bounds of a topic; no snapshot is older than the last one."""
        place, now_ms = self._service.place(topic), self._clock_ms()
        writer, known = place.writer, self._known.get(topic)
        if (
            known is not None
            and known.topic is place.topic
            and known.writer is writer
            and known.seen == writer.signal.count
            and 0 <= now_ms - known.read_ms < KEPT_MS
            and _lives(known.bounds, place.topic.live_from_ms(now_ms))
        ):
            return known.bounds
        seen, mark = writer.signal.count, writer.mark()
        found = self._read(topic, snapshot)
        if found.next.row_key < mark:
            self._known.pop(topic, None)
            return found
        if len(self._known) >= MOST_KNOWN:
            self._known = {}
        self._known[topic] = _Known(place.topic, writer, seen, now_ms, found)
        return found


def _lives(bounds: Bounds, live_from_ms: int) -> bool:
    return bounds.first is None or bounds.first.publish_time_ms >= live_from_ms
