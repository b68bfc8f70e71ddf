"""Counts of what happens in this process, cheap enough to be always on."""

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import attrs

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


@attrs.frozen
class TopicMetrics:
    """Counts of what went into a topic and out of it since the process started."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_stored: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    rollbacks: int = 0
    publish: Timing = Timing()
    poll: Timing = Timing()


class TopicCounters:
    """Counters for one topic, under the lock of all latencies."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._lock = latencies.lock
        self._values = dict.fromkeys(
            ("in", "bytes_in", "stored", "out", "bytes_out", "rollbacks"), 0
        )
        self._times = {"publish": [0, 0.0, 0.0], "poll": [0, 0.0, 0.0]}

    def published(self, messages: int, size_bytes: int, took_s: float) -> None:
        """Counts a publish that is done."""
        with self._lock:
            self._values["in"] += messages
            self._values["bytes_in"] += size_bytes
            self._time("publish", took_s, self._latencies.publish)

    def flushed(
        self, pointer: int, messages: int, size_bytes: int, took_s: float
    ) -> None:
        """Counts a publish that is done, and whose transaction is not decided."""
        self.published(messages, size_bytes, took_s)

    def referred(self, pointer: int, messages: int) -> None:
        """Does nothing: stored messages were counted before their reference."""

    def stored(self, messages: int) -> None:
        """Counts payloads that are stored ahead of their commit."""
        with self._lock:
            self._values["stored"] += messages

    def polled(self, messages: int, size_bytes: int, took_s: float) -> None:
        """Counts a poll that is done."""
        with self._lock:
            self._values["out"] += messages
            self._values["bytes_out"] += size_bytes
            self._time("poll", took_s, self._latencies.poll)

    def rolled_back(self, pointer: int) -> None:
        """Counts a publish of a transaction that was rolled back."""
        with self._lock:
            self._values["rollbacks"] += 1

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
        """Returns the counts as they are now."""
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
class WriteMetrics:
    """The batches that went to disk, each synced once for all threads that waited.

    `rows` and `transactions` count how many of them a batch had, and `sync_s` the time
    until it was on disk. The `failed` batches are not in these histograms.
    """

    rows: Histogram
    transactions: Histogram
    sync_s: Histogram
    failed: int


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

    removed: Mapping[str, int] = attrs.field(factory=dict)
    runs: int = 0
    failed_topics: int = 0
    topics: int = 0
    topics_done: int = 0
    last_ended_ms: int | None = None
    last_took_s: float = 0.0
    forgotten: int = 0
    held_back: str | None = None
    held_back_count: int = 0


class RetentionCounters:
    """Counters for clean-ups, of which only one runs at a time."""

    def __init__(self) -> None:
        self._removed: dict[str, int] = {}
        self._now = RetentionMetrics()

    def begun(self, topics: int) -> None:
        """Notes that a clean-up begins, and how many topics it will go through."""
        self._now = attrs.evolve(self._now, topics=topics, topics_done=0)

    def done(self, topics: int) -> None:
        """Notes how many topics the clean-up has gone through."""
        self._now = attrs.evolve(self._now, topics_done=topics)

    def ended(
        self, removed: Mapping[str, int], *, failed: int, ended_ms: int, took_s: float
    ) -> None:
        """Counts a clean-up that ended: what it removed, and how many topics failed."""
        self._removed = {
            reason: self._removed.get(reason, 0) + removed.get(reason, 0)
            for reason in self._removed.keys() | removed.keys()
        }
        self._now = attrs.evolve(
            self._now,
            removed=self._removed,
            runs=self._now.runs + 1,
            failed_topics=self._now.failed_topics + failed,
            last_ended_ms=ended_ms,
            last_took_s=took_s,
        )

    def forgot(self, count: int, held_back: str | None, held_back_count: int) -> None:
        """Counts what the coordinator forgot, and why it kept other transactions."""
        self._now = attrs.evolve(
            self._now,
            forgotten=self._now.forgotten + count,
            held_back=held_back,
            held_back_count=held_back_count,
        )

    def snapshot(self) -> RetentionMetrics:
        """Returns the counts as they are now."""
        return self._now


@attrs.frozen
class ProducerMetrics:
    """Publishes of producers that stored nothing: repeats, and those refused.

    `live` is how many producers the store knows, and `transactional_ids` how many of
    their names.
    """

    repeated: int = 0
    fenced: int = 0
    out_of_order: int = 0
    live: int = 0
    transactional_ids: int = 0


class ProducerCounters:
    """Counters for the publishes of all producers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = ProducerMetrics()

    def repeated(self) -> None:
        """Counts a publish that was stored before."""
        with self._lock:
            self._now = attrs.evolve(self._now, repeated=self._now.repeated + 1)

    def fenced(self) -> None:
        """Counts a publish of a fenced or unknown producer."""
        with self._lock:
            self._now = attrs.evolve(self._now, fenced=self._now.fenced + 1)

    def out_of_order(self) -> None:
        """Counts a publish at a wrong sequence."""
        with self._lock:
            now = self._now
            self._now = attrs.evolve(now, out_of_order=now.out_of_order + 1)

    def snapshot(self) -> ProducerMetrics:
        """Returns the counts as they are now."""
        return self._now


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
    expired_unseen: Mapping[str, int]
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    publish_latency_s: Histogram
    poll_latency_s: Histogram
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
