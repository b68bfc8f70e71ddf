"""Counts what happens in this process; cheap enough to be always on."""

import threading
from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen
class Timing:
    """How long something took, all together and at most."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """How long it took on average."""
        return self.total_s / self.count if self.count else 0.0


@attrs.frozen
class TopicMetrics:
    """What went into a topic and out of it since the start of the process."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_stored: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    rollbacks: int = 0
    publish: Timing = Timing()
    poll: Timing = Timing()


class TopicCounters:
    """Counts for one topic, under a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(
            ("in", "bytes_in", "stored", "out", "bytes_out", "rollbacks"), 0
        )
        self._times = {"publish": [0, 0.0, 0.0], "poll": [0, 0.0, 0.0]}

    def published(self, messages: int, size_bytes: int, took_s: float) -> None:
        """A publish is done."""
        with self._lock:
            self._values["in"] += messages
            self._values["bytes_in"] += size_bytes
            self._time("publish", took_s)

    def stored(self, messages: int) -> None:
        """Payloads are stored ahead of their commit."""
        with self._lock:
            self._values["stored"] += messages

    def polled(self, messages: int, size_bytes: int, took_s: float) -> None:
        """A poll is done."""
        with self._lock:
            self._values["out"] += messages
            self._values["bytes_out"] += size_bytes
            self._time("poll", took_s)

    def rolled_back(self) -> None:
        """A publish was taken back."""
        with self._lock:
            self._values["rollbacks"] += 1

    def _time(self, name: str, took_s: float) -> None:
        times = self._times[name]
        times[0] += 1
        times[1] += took_s
        times[2] = max(times[2], took_s)

    def snapshot(self) -> TopicMetrics:
        """The counts as they are now."""
        with self._lock:
            values = self._values
            return TopicMetrics(
                values["in"],
                values["bytes_in"],
                values["stored"],
                values["out"],
                values["bytes_out"],
                values["rollbacks"],
                _timing(self._times["publish"]),
                _timing(self._times["poll"]),
            )


def _timing(times: list[float]) -> Timing:
    return Timing(int(times[0]), times[1], times[2])


@attrs.frozen
class GroupLag:
    """How far a group is behind: in time, and in rows (counted up to 10,000)."""

    group: str
    topic: str
    lag_ms: int
    rows: int


@attrs.frozen
class Metrics:
    """What `messaging.metrics()` answers: counts, and how things stand now.

    `expired_unseen` counts, by topic, how often a clean-up removed what a blocked
    reader had yet to see.
    """

    topics: Mapping[str, TopicMetrics]
    groups: Sequence[GroupLag]
    expired_unseen: Mapping[str, int]
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    open_transactions: int | None
    invalid_transactions: int
