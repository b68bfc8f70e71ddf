"""The values that all metrics of one scrape are made from; each is found out once."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Protocol, TypeVar

import attrs

from txaware.errors import TopicNotFound
from txaware.http.metrics.request_counts import RequestCounts, RequestMetrics
from txaware.http.metrics.topic_labels import TopicLabels, Values
from txaware.model.messages import Bounds
from txaware.model.metrics import Counts
from txaware.model.reports import OutboxReport
from txaware.service.administration import Administration
from txaware.service.local import LocalService
from txaware.service.monitor.overview import Overview
from txaware.service.monitor.overview_report import OverviewReport
from txaware.service.monitor.row_counts import RowCounts
from txaware.service.monitor.turns import Failures

T = TypeVar("T")


class InFlight(Protocol):
    """The requests that are answered just now, and what their bodies take."""

    in_flight: int
    waiting: int
    body_bytes: int


@attrs.frozen
class Sources:
    """The sources of metrics, which last from one scrape to the next."""

    administration: Administration
    service: LocalService
    overview: Overview
    in_flight: InFlight
    requests: RequestCounts
    labels: TopicLabels
    depths: RowCounts
    clock_ms: Callable[[], int]
    started_ms: int
    refusals: Callable[[], Mapping[str, int]]


class Moment:
    """The values of one scrape, as functions: one that raises fails only its caller.

    A function that raised is not tried again, or every metric would wait for the same
    time-out.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._failures = Failures(reads_wait=sources.service.reads_wait)
        self.now_ms = sources.clock_ms()
        self.started_ms = sources.started_ms
        self.in_flight = sources.in_flight
        self.refusals = sources.refusals
        self.counts: Callable[[], Counts] = _once(sources.administration.counts)
        self.report: Callable[[], OverviewReport] = _once(sources.overview.snapshot)
        self.prepared = sources.administration.prepared
        self.outboxes: Callable[[], list[OutboxReport]] = _once(self._outboxes)
        self.requests: Callable[[], RequestMetrics] = _once(sources.requests.snapshot)
        self.statuses: Callable[[], Mapping[str, str]] = _once(self._statuses)
        self.by_label: Callable[[], Mapping[str, Values]] = _once(self._by_label)
        self.bounds: Callable[[], Mapping[str, Bounds]] = _once(self._bounds)
        self.rows: Callable[[], Mapping[str, int]] = _once(self._rows)
        self.stable_ms: Callable[[], Mapping[str, int]] = _once(self._stable_ms)

    @property
    def left_out(self) -> set[str]:
        """The parts of families that could not be looked at, so far."""
        parts = set(self._failures.parts)
        with suppress(Exception):  # whoever shows the report itself says so
            parts |= set(self.report().left_out)
        return parts

    def _statuses(self) -> Mapping[str, str]:
        """Returns the status of each part; one that cannot be asked is not well."""
        administration = self._sources.administration
        try:
            report = self.report()
            return {"coordinator": report.coordinator, "store": report.store}
        except Exception:  # whoever shows the report itself says so
            return {
                "coordinator": _status(administration.coordinator_status),
                "store": _status(administration.table_status),
            }

    def _by_label(self) -> Mapping[str, Values]:
        return self._sources.labels.divide(self.counts().topics, self._idle_topics())

    def _idle_topics(self) -> list[str]:
        """Returns topics that nobody used yet in this process, as far as known."""
        try:
            return [topic.topic for topic in self.report().topics]
        except Exception:  # whoever shows the report itself says so
            return []

    def _outboxes(self) -> list[OutboxReport]:
        look = self._sources.administration.outboxes
        return self._failures.attempt("outboxes", look, [])

    def _bounds(self) -> Mapping[str, Bounds]:
        self.by_label()
        found = {}
        for topic in self._sources.labels.topics:
            look = partial(self._sources.service.bounds, topic)
            try:
                bounds = self._failures.attempt("topic_ages", look, None)
            except TopicNotFound:  # deleted a moment ago
                continue
            if bounds is not None:
                found[topic] = bounds
        return found

    def _stable_ms(self) -> Mapping[str, int]:
        """Returns the time of each topic's last stable position.

        A topic that the overview did not list is not blocked: it lists those first.
        """
        report = self.report()
        if report.invalid_transactions is None or "blocked" in report.left_out:
            return {}  # nobody knows which transactions are open
        blocked = {
            topic.topic: topic.blocked_by.since_ms
            for topic in report.topics
            if topic.blocked_by is not None
        }
        return {
            topic: blocked.get(topic, found.next.publish_time_ms)
            for topic, found in self.bounds().items()
        }

    def _rows(self) -> Mapping[str, int]:
        depths, bounds = self._sources.depths, self.bounds()
        depths.look(bounds, self._failures)
        rows = {topic: depths.rows(topic) for topic in bounds}
        return {topic: count for topic, count in rows.items() if count is not None}


def _status(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:
        return str(error)


def _once(find: Callable[[], T]) -> Callable[[], T]:
    @cache
    def found() -> tuple[T | None, Exception | None]:
        try:
            return find(), None
        except Exception as error:
            return None, error

    def answer() -> T:
        value, error = found()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    return answer
