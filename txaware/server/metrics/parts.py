"""The parts of what `/metrics` tells: whose numbers, and where they come from.

Names, kinds, helps and units are declared at the fields (`txaware/model/numbers.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

import attrs
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from txaware.model.metrics import (
    Counts,
    GroupShare,
    Histogram,
    ProducerMetrics,
    RetentionMetrics,
    TopicMetrics,
    WriteCounters,
    WriteMetrics,
)
from txaware.model.numbers import (
    COUNTER,
    DATABASE,
    GAUGE,
    HISTOGRAM,
    INFO,
    MOST_TOPICS,
    OTHER,
    QUEUE,
    TOPIC,
    Number,
    numbers_of,
)
from txaware.model.queues import QueueStats
from txaware.model.reports import OutboxReport
from txaware.server.metrics.moment import Moment
from txaware.server.metrics.request_counts import RequestMetrics
from txaware.service.monitor import overview_report
from txaware.service.monitor.overview_report import (
    MOST_GROUPS,
    GroupOverview,
    OverviewReport,
    TopicOverview,
)
from txaware.service.monitor.queue_overview import MOST_QUEUES

# Values by the values of labels; None where they are not known, and not told.
Rows = Mapping[tuple[str, ...], Any] | None
_FAMILIES: Mapping[str, Any] = {
    COUNTER: CounterMetricFamily,
    GAUGE: GaugeMetricFamily,
    HISTOGRAM: HistogramMetricFamily,
    INFO: InfoMetricFamily,
}


@attrs.frozen
class MetricTable:
    """Values of one kind, each with the numbers that its class declares.

    `which` says in each help which values are told where not all are. Of its numbers
    the `first` come first, or the table has `only` some.
    """

    kind: type
    rows: Callable[[Moment], Rows]
    labels: tuple[str, ...] = ()
    which: str = ""
    first: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    @property
    def numbers(self) -> Mapping[str, Number]:
        """Its numbers by field, each with all labels and the whole help."""
        found = numbers_of(self.kind)
        names = dict.fromkeys((*self.first, *found)) if self.only is None else self.only
        return {
            name: attrs.evolve(
                found[name],
                labels=(*self.labels, *found[name].labels),
                help=f"{found[name].help} {self.which}".strip(),
            )
            for name in names
        }

    def families(self, moment: Moment) -> Iterator[Metric]:
        """Yields its metrics, as Prometheus reads them."""
        numbers = self.numbers
        rows = self.rows(moment) if numbers else None
        if rows is None:
            return
        for field, number in numbers.items():
            declared = numbers_of(self.kind)[field]
            samples = [
                ((*key, *more), value)
                for key, row in rows.items()
                for more, value in declared.samples(
                    getattr(row, field), field, moment.now_ms
                )
            ]
            if samples or number.labels:
                yield _family(number, samples)


def _family(number: Number, samples: Iterable[tuple[tuple[str, ...], Any]]) -> Metric:
    family = _FAMILIES[number.kind](
        f"txaware_{number.name}", number.help, labels=number.labels
    )
    for labels, value in samples:
        if isinstance(value, Histogram):
            bounds = [*map(str, value.bounds), "+Inf"]
            buckets = list(zip(bounds, accumulate(value.counts), strict=True))
            family.add_metric(labels, buckets, value.total)
        else:
            family.add_metric(labels, value)
    found: Metric = family
    return found


def _now(*only: str, when: Callable[[Moment], bool] = lambda _: True) -> MetricTable:
    return MetricTable(
        Moment, lambda moment: {(): moment} if when(moment) else None, only=only
    )


def _counts(*only: str) -> MetricTable:
    return MetricTable(Counts, lambda moment: {(): moment.counts()}, only=only)


def _report(
    *only: str, when: Callable[[OverviewReport], bool] = lambda _: True
) -> MetricTable:
    def rows(moment: Moment) -> Rows:
        report = moment.report()
        return {(): report} if when(report) else None

    return MetricTable(OverviewReport, rows, only=only)


def _lists(part: str) -> Callable[[OverviewReport], bool]:
    return lambda report: part not in report.left_out


def _knows_open(report: OverviewReport) -> bool:
    """Tells whether the coordinator said which transactions are open."""
    return report.invalid_transactions is not None


def _knows_prepared(moment: Moment) -> bool:
    return _knows_open(moment.report()) and moment.prepared() is not None


def _blocked(moment: Moment) -> Rows:
    found = [topic for topic in moment.report().topics if topic.blocked_by is not None]
    found.sort(key=lambda topic: topic.blocked_since_ms)
    return {
        (topic.topic, str(topic.blocked_by.pointer)): topic
        for topic in found[: overview_report.MOST_BLOCKED]
        if topic.blocked_by is not None
    }


def _groups(moment: Moment) -> Rows:
    groups = moment.report().groups[:MOST_GROUPS]
    return {(group.group, group.topic): group for group in groups}


def _shares(moment: Moment) -> Rows:
    found = moment.shares()
    by_members = sorted(found, key=lambda pair: (-found[pair].members, pair))
    return {pair: found[pair] for pair in by_members[:MOST_GROUPS]}


def _queues(moment: Moment) -> Rows:
    return {(one.queue,): one.stats for one in moment.report().queues}


def _outboxes(moment: Moment) -> Rows:
    return {(one.database, one.outbox): one for one in moment.outboxes}


def _writes(moment: Moment) -> Rows:
    """Returns what goes to disk, nothing of which is data in memory."""
    return {(): moment.counts().writes or WriteCounters().snapshot()}


# By the name that `txaware_metric_failures` has for what could not be told.
PARTS: dict[str, tuple[MetricTable, ...]] = {
    "topic_counts": (
        MetricTable(
            TopicMetrics,
            lambda moment: moment.by_label(),
            (TOPIC,),
            f"The {MOST_TOPICS} topics that came first have a label of their own, all "
            f"others are summed as {OTHER}.",
        ),
    ),
    "topic_ages": (_now("topic_oldest_ms"),),
    "topic_rows": (_now("topic_rows"),),
    "topics": (_report("topic_count", when=_lists("topics")),),
    "expired_unseen": (_counts("expired_unseen"),),
    "blocked": (
        _report("blocked_count"),
        MetricTable(
            TopicOverview, _blocked, (TOPIC, "transaction"), only=("blocked_since_ms",)
        ),
    ),
    "stable_positions": (_now("topic_stable_ms"),),
    "groups": (
        _report("group_count", when=_lists("groups")),
        MetricTable(
            GroupOverview,
            _groups,
            ("group", TOPIC),
            f"The {MOST_GROUPS} groups that are furthest behind.",
            first=("lag_ms", "unread_since_ms"),
        ),
    ),
    "group_members": (
        MetricTable(
            GroupShare,
            _shares,
            ("group", TOPIC),
            f"The {MOST_GROUPS} groups with the most members.",
        ),
    ),
    "transactions": (
        _report("transaction_count", "oldest_open_ms", when=_knows_open),
        _now("prepared_count", "oldest_prepared_ms", when=_knows_prepared),
        _report("invalid_transactions", when=_knows_open),
    ),
    "producers": (
        MetricTable(
            ProducerMetrics,
            lambda moment: {(): moment.counts().producers},
            first=("live", "transactional_ids"),
        ),
    ),
    "queues": (
        _report("queue_count", when=_lists("queues")),
        MetricTable(
            QueueStats,
            _queues,
            (QUEUE,),
            f"The {MOST_QUEUES} queues that are in use, or come first.",
            first=(
                *("depth", "delayed", "in_work", "oldest_age_s"),
                *("average_wait_s", "average_work_s", "is_paused"),
            ),
        ),
    ),
    "outboxes": (MetricTable(OutboxReport, _outboxes, (DATABASE, "outbox")),),
    "latencies": (_counts("publish_latency_s", "poll_latency_s"),),
    "writes": (MetricTable(WriteMetrics, _writes),),
    "cache": (_counts("cache_hits", "cache_misses", "cache_bytes"),),
    "retention": (
        MetricTable(
            RetentionMetrics,
            lambda moment: {(): moment.counts().retention},
            first=(
                *("removed", "runs", "failed_topics", "progress"),
                *("forgotten", "held_back_count"),
            ),
        ),
    ),
    "parts": (_now("up"),),
    "requests": (MetricTable(RequestMetrics, lambda moment: {(): moment.requests()}),),
    "network_transactions": (_now("refusals"),),
    "in_flight": (_now("in_flight", "body_bytes"),),
    "process": (_now("started_ms", "build"),),
}
FAILURES = _now("failures")


def _rest(kind: type) -> tuple[str, ...]:
    """Returns the numbers of a class that no part above names."""
    tables = [FAILURES, *(table for tables in PARTS.values() for table in tables)]
    named = {name for one in tables if one.kind is kind for name in one.only or ()}
    return tuple(name for name in numbers_of(kind) if name not in named)


PARTS["others"] = (
    _counts(*_rest(Counts)),
    _report(*_rest(OverviewReport)),
    _now(*_rest(Moment)),
)
