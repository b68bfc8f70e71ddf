"""Counts of what happens in this process, cheap enough to be always on."""

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Self, TypeVar

import attrs

from txaware.model.numbers import (
    MOST_TOPICS,
    TOPIC,
    counter,
    gauge,
    histogram,
    in_order,
)

T = TypeVar("T", bound=attrs.AttrsInstance)

# Upper bounds, each about as many times the one before: 1, 2.5, 5, 10.
LATENCY_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 4096.0, 16384.0)


@attrs.frozen
class Histogram:
    """Counts of values by size: `counts[i]` are above `bounds[i - 1]`, to `bounds[i]`.

    The last count is of the values above all bounds. `total` is the sum of all values.
    """

    bounds: Sequence[float] = ()
    counts: Sequence[int] = (0,)
    total: float = 0.0

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @classmethod
    def together(cls, found: Sequence[Self]) -> Self:
        """Returns the values of several histograms of the same bounds in one."""
        counts = [
            sum(each) for each in zip(*(one.counts for one in found), strict=True)
        ]
        return cls(found[0].bounds, tuple(counts), sum(one.total for one in found))


class HistogramCounter:
    """A counter of values for one histogram, under a lock that others may share."""

    def __init__(
        self,
        bounds: Sequence[float] = LATENCY_S,
        lock: "threading.Lock | None" = None,
    ) -> None:
        self._lock = threading.Lock() if lock is None else lock
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Counts one value."""
        with self._lock:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.total += value

    def snapshot(self) -> Histogram:
        """Returns the counts as they are now."""
        with self._lock:
            return Histogram(self.bounds, tuple(self.counts), self.total)


@attrs.frozen
class Timing:
    """The time that something took, all together and at most."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """The time that it took on average."""
        return self.total_s / self.count if self.count else 0.0


class Latencies:
    """Histograms of the time that publishes and polls took, over all topics.

    The counters of all topics share the lock, so that an event is counted under one.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.publish = HistogramCounter(lock=self.lock)
        self.poll = HistogramCounter(lock=self.lock)


class Counters(Generic[T]):
    """Counts into the fields of a class of metrics, for any number of threads."""

    def __init__(self, kind: type[T], lock: "threading.Lock | None" = None) -> None:
        self._kind = kind
        self._lock = threading.Lock() if lock is None else lock
        self._values: dict[str, Any] = attrs.asdict(kind(), recurse=False)

    def add(self, field: str, number: int = 1) -> None:
        """Counts something, once or more often."""
        with self._lock:
            self._values[field] += number

    def set(self, **values: Any) -> None:
        """Notes how something stands now."""
        with self._lock:
            self._values.update(values)

    def snapshot(self) -> T:
        """Returns the counts as they are now."""
        with self._lock:
            return self._kind(**self._values)


@attrs.frozen
class Traffic:
    """Counts of what went into a topic and out of it, which a report tells as well."""

    messages_in: Annotated[
        int, counter("messages_published", "Messages that were published.")
    ] = 0
    bytes_in: Annotated[
        int, counter("published_bytes", "Bytes of payload that were published.")
    ] = 0
    messages_out: Annotated[
        int, counter("messages_polled", "Messages that were delivered.")
    ] = 0
    bytes_out: Annotated[
        int, counter("polled_bytes", "Bytes of payload that were delivered.")
    ] = 0


@attrs.frozen(field_transformer=in_order("messages_in", "bytes_in", "messages_stored"))
class TopicMetrics(Traffic):
    """Counts of what went into a topic and out of it since the process started."""

    messages_stored: Annotated[
        int, counter("messages_stored", "Payloads stored ahead of their commit.")
    ] = 0
    rollbacks: Annotated[
        int, counter("rollbacks", "Publishes that were taken back.")
    ] = 0
    publish: Timing = Timing()
    poll: Timing = Timing()


class TopicCounters(Counters[TopicMetrics]):
    """Counters for one topic, under the lock of all latencies."""

    def __init__(self, latencies: Latencies) -> None:
        super().__init__(TopicMetrics, latencies.lock)
        self._latencies = latencies
        self._times = {"publish": [0, 0.0, 0.0], "poll": [0, 0.0, 0.0]}
        self._last_snapshot: tuple[tuple[Any, ...], TopicMetrics] = (), TopicMetrics()

    def published(self, messages: int, size_bytes: int, took_s: float) -> None:
        """Counts a publish that is done."""
        with self._lock:
            self._values["messages_in"] += messages
            self._values["bytes_in"] += size_bytes
            self._time("publish", took_s, self._latencies.publish)

    def published_beside(self, messages: int, size_bytes: int) -> None:
        """Counts another part of a publish, whose time is counted with the first."""
        with self._lock:
            self._values["messages_in"] += messages
            self._values["bytes_in"] += size_bytes

    def flushed(
        self, pointer: int, messages: int, size_bytes: int, took_s: float
    ) -> None:
        """Counts a publish that is done, and whose transaction is not decided."""
        self.published(messages, size_bytes, took_s)

    def referred(self, pointer: int, messages: int) -> None:
        """Does nothing: stored messages were counted before their reference."""

    def stored(self, messages: int) -> None:
        """Counts payloads that are stored ahead of their commit."""
        self.add("messages_stored", messages)

    def polled(self, messages: int, size_bytes: int, took_s: float) -> None:
        """Counts a poll that is done."""
        with self._lock:
            self._values["messages_out"] += messages
            self._values["bytes_out"] += size_bytes
            self._time("poll", took_s, self._latencies.poll)

    def rolled_back(self, pointer: int) -> None:
        """Counts a publish of a transaction that was rolled back."""
        self.add("rollbacks")

    def _time(self, name: str, took_s: float, latencies: HistogramCounter) -> None:
        # As `add`, under the lock that all these counters share.
        latencies.counts[bisect_left(latencies.bounds, took_s)] += 1
        latencies.total += took_s
        times = self._times[name]
        times[0] += 1
        times[1] += took_s
        if took_s > times[2]:
            times[2] = took_s

    def snapshot(self) -> TopicMetrics:
        """Returns the counts as they are now; while they stay, the same value."""
        times = self._times
        with self._lock:
            counts = (*self._values.values(), *times["publish"], *times["poll"])
            if counts != self._last_snapshot[0]:
                timed = {name: _timing(found) for name, found in times.items()}
                self._last_snapshot = counts, TopicMetrics(**{**self._values, **timed})
            return self._last_snapshot[1]


def _timing(times: list[float]) -> Timing:
    return Timing(int(times[0]), times[1], times[2])


@attrs.frozen
class WriteMetrics:
    """The batches that went to disk, each synced once for all threads that waited.

    `rows` and `transactions` count how many of them a batch had, and `sync_s` the time
    until it was on disk. The `failed` batches are not in these histograms.
    """

    rows: Annotated[
        Histogram,
        histogram(
            "batch_rows", "Rows that went to disk together; so many shared one sync."
        ),
    ]
    transactions: Annotated[
        Histogram,
        histogram(
            "batch_transactions",
            "Commits that shared one sync: the size of a group commit.",
        ),
    ]
    sync_s: Annotated[
        Histogram, histogram("sync_seconds", "How long a synced write took.")
    ]
    failed: Annotated[
        int, counter("failed_writes", "Batches that could not be written.")
    ]

    @classmethod
    def together(cls, found: Sequence[Self]) -> Self:
        """Returns the figures of several tables as those of one."""
        return cls(
            Histogram.together([one.rows for one in found]),
            Histogram.together([one.transactions for one in found]),
            Histogram.together([one.sync_s for one in found]),
            sum(one.failed for one in found),
        )


class WriteCounters:
    """Counters for the batches of one table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = HistogramCounter(SIZES, self._lock)
        self._transactions = HistogramCounter((0.0, *SIZES), self._lock)
        self._sync_s = HistogramCounter(lock=self._lock)
        self._failed = 0

    def written(self, rows: int, transactions: int, took_s: float) -> None:
        """Counts a batch that is on disk, and the commits in it."""
        with self._lock:
            for counter, value in (
                (self._rows, rows),
                (self._transactions, transactions),
                (self._sync_s, took_s),
            ):  # as `add`, under one lock: a third of the calls, once a commit
                counter.counts[bisect_left(counter.bounds, value)] += 1
                counter.total += value

    def failed(self) -> None:
        """Counts a batch that could not be written; one thread calls at a time."""
        self._failed += 1

    def snapshot(self) -> WriteMetrics:
        """Returns the counts as they are now."""
        return WriteMetrics(
            self._rows.snapshot(),
            self._transactions.snapshot(),
            self._sync_s.snapshot(),
            self._failed,
        )


@attrs.frozen
class RetentionMetrics:
    """Counts of rows that clean-ups removed, by reason, and the state of the last one.

    While a clean-up runs, `topics_done` of `topics` are done. `last_ended_ms` and
    `last_took_s` are those of the last one that ended. All clean-ups together made the
    coordinator forget `forgotten` invalid transactions. `held_back` says why it kept
    other old ones, or is None, and `held_back_count` how many these are.
    """

    removed: Annotated[
        Mapping[str, int],
        counter(
            "retention_rows",
            "Rows that clean-ups removed, or marked as never committed.",
            labels=("reason",),
        ),
    ] = attrs.field(factory=dict)
    runs: Annotated[int, counter("retention_runs", "Clean-ups that ended.")] = 0
    failed_topics: Annotated[
        int,
        counter(
            "retention_failed_topics", "Topics that a clean-up could not go through."
        ),
    ] = 0
    topics: int = 0
    topics_done: int = 0
    last_ended_ms: Annotated[
        int | None,
        gauge(
            "retention_last_end_seconds",
            "When the last clean-up ended, in seconds since 1970.",
        ),
    ] = None
    last_took_s: float = 0.0
    forgotten: Annotated[
        int,
        counter(
            "retention_forgotten",
            "Invalid transactions that the coordinator forgot, as nobody can need "
            "them.",
        ),
    ] = 0
    held_back: str | None = None
    held_back_count: Annotated[
        int,
        gauge(
            "invalid_transactions_held_back",
            "Invalid transactions of more than a day ago that cannot be forgotten; "
            "txaware transaction list says why.",
        ),
    ] = 0

    @property
    @gauge(
        "retention_topics",
        "Topics of the clean-up that runs, or ran last: done, and all.",
        labels=("which",),
    )
    def progress(self) -> Mapping[str, int]:
        """The topics done, and all, of the clean-up that runs or ran last."""
        return {"done": self.topics_done, "all": self.topics}

    @property
    @gauge("retention_last_duration_seconds", "How long it took.")
    def last_duration_s(self) -> float | None:
        """The time that the last clean-up took, once one has ended."""
        return None if self.last_ended_ms is None else self.last_took_s


class RetentionCounters(Counters[RetentionMetrics]):
    """Counters for clean-ups, of which only one runs at a time."""

    def __init__(self) -> None:
        super().__init__(RetentionMetrics)

    def ended(
        self, removed: Mapping[str, int], *, failed: int, ended_ms: int, took_s: float
    ) -> None:
        """Counts a clean-up that ended: what it removed, and how many topics failed."""
        before = self.snapshot()
        total = {**before.removed, **removed}
        self.set(
            removed={
                reason: before.removed.get(reason, 0) + removed.get(reason, 0)
                for reason in total
            },
            runs=before.runs + 1,
            failed_topics=before.failed_topics + failed,
            last_ended_ms=ended_ms,
            last_took_s=took_s,
        )

    def forgot(self, count: int, held_back: str | None, held_back_count: int) -> None:
        """Counts what the coordinator forgot, and why it kept other transactions."""
        self.add("forgotten", count)
        self.set(held_back=held_back, held_back_count=held_back_count)


@attrs.frozen
class ProducerMetrics:
    """Publishes of producers that stored nothing: repeats, and those refused.

    `live` is how many producers the store knows, and `transactional_ids` how many of
    their names.
    """

    repeated: Annotated[
        int,
        counter(
            "producer_repeats",
            "Publishes that were stored before, and stored nothing again.",
        ),
    ] = 0
    fenced: Annotated[
        int,
        counter(
            "fenced_publishes",
            "Publishes, begins and commits refused, as their producer is fenced or not "
            "known.",
        ),
    ] = 0
    out_of_order: Annotated[
        int,
        counter(
            "out_of_order_publishes",
            "Publishes refused, as their sequence is not the next one.",
        ),
    ] = 0
    live: Annotated[int, gauge("live_producers", "Producers that are known.")] = 0
    transactional_ids: Annotated[
        int,
        gauge(
            "active_transactional_ids",
            "Transactional ids that are known, each with its producer.",
        ),
    ] = 0


@attrs.frozen
class GroupLag:
    """The lag of a group: in time, and in rows (counted up to 10,000).

    `oldest_unread_ms` is the age of the oldest message that the group may read and has
    not read. It is 0 if there is none, and None from a server that does not tell.
    """

    group: str
    topic: str
    lag_ms: int
    rows: int
    oldest_unread_ms: int | None = None


@attrs.frozen(kw_only=True)
class Counts:
    """The counts of this process since its start.

    `expired_unseen` counts, by topic, how often a clean-up removed messages that a
    blocked reader had not seen yet. `writes` is None for data in memory.
    """

    topics: Mapping[str, TopicMetrics]
    expired_unseen: Annotated[
        Mapping[str, int],
        counter(
            "expired_unseen",
            "Clean-ups that removed what a blocked reader had yet to see.",
            labels=(TOPIC,),
            most=MOST_TOPICS,
        ),
    ]
    cache_bytes: Annotated[int, gauge("cache_bytes", "What the cache takes.")]
    cache_hits: Annotated[int, counter("cache_hits", "Reads from the cache.")]
    cache_misses: Annotated[int, counter("cache_misses", "Reads past it.")]
    publish_latency_s: Annotated[
        Histogram,
        histogram(
            "publish_seconds",
            "How long a publish took; one in a transaction may only wait for its "
            "commit.",
        ),
    ]
    poll_latency_s: Annotated[
        Histogram,
        histogram(
            "poll_seconds",
            "How long a look for messages took, without the time it waited for one.",
        ),
    ]
    writes: WriteMetrics | None
    retention: RetentionMetrics
    producers: ProducerMetrics = ProducerMetrics()


@attrs.frozen(kw_only=True)
class Metrics(Counts):
    """The answer of `messaging.metrics()`: counts, and the state at this moment.

    `oldest_open_ms` is the time at which the oldest open transaction began.
    `open_transactions` and `oldest_open_ms` are None if the coordinator is elsewhere,
    and the latter also if none is open. `invalid_transactions` is None while the
    coordinator cannot be asked. Groups that cannot be looked at are left out.
    `prepared_transactions` wait for somebody to end them, the oldest since
    `oldest_prepared_ms`; both are None where the coordinator prepares none.
    """

    groups: Sequence[GroupLag]
    open_transactions: int | None
    oldest_open_ms: int | None
    invalid_transactions: int | None
    prepared_transactions: int | None = None
    oldest_prepared_ms: int | None = None


@attrs.frozen
class GroupShare:
    """A group that shares a topic among its members."""

    members: Annotated[
        int,
        gauge(
            "group_members",
            "Members of a group that have joined a topic and are heard of.",
        ),
    ]
    standing_by: Annotated[
        int,
        gauge(
            "group_members_standing_by",
            "Members of a group that have joined a topic and have no partition of it.",
        ),
    ]
    unowned: Annotated[
        int,
        gauge(
            "group_partitions_unowned",
            "Partitions of a topic that no member of its group has, who is heard of.",
        ),
    ]
    generation: Annotated[
        int,
        gauge(
            "group_generation",
            "Generation of a group: it rises with each change of members, topics or "
            "owners.",
        ),
    ]
