"""The values that all metrics of one scrape are made from; each is found out once."""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, TypeVar

import attrs

from coordinator.prepared_transactions import PreparedTransaction
from txaware.errors import TopicNotFound
from txaware.model.messages import Bounds
from txaware.model.metrics import Counts, GroupShare, TopicMetrics
from txaware.model.numbers import (
    INFO,
    MOST_TOPICS,
    TOPIC,
    Number,
    age,
    counter,
    gauge,
)
from txaware.model.reports import OutboxReport
from txaware.server.metrics.request_counts import RequestCounts, RequestMetrics
from txaware.server.metrics.topic_labels import FIELDS, TopicLabels, Values
from txaware.service.administration import Administration
from txaware.service.local import LocalService
from txaware.service.monitor.overview import Overview
from txaware.service.monitor.overview_report import OverviewReport
from txaware.service.monitor.row_counts import RowCounts
from txaware.service.monitor.turns import Failures

T = TypeVar("T")

_FIRST = f"The {MOST_TOPICS} topics that came first."


class InFlight(Protocol):
    """The requests that are answered just now, and what their bodies take."""

    in_flight: int
    waiting: int
    body_bytes: int


@attrs.frozen(kw_only=True)
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
    failures: Mapping[str, int]
    shares: Callable[[], Mapping[tuple[str, str], GroupShare]] = dict


class Moment:
    """The values of one scrape, as functions: one that raises fails only its caller.

    A function that raised is not tried again, or every metric would wait for the same
    time-out.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._failures = Failures(reads_wait=sources.service.reads_wait)
        self.now_ms = sources.clock_ms()
        self.counts: Callable[[], Counts] = _once(sources.administration.counts)
        self.shares: Callable[[], Mapping[tuple[str, str], GroupShare]] = _once(
            sources.shares
        )
        self.report: Callable[[], OverviewReport] = _once(sources.overview.snapshot)
        self.prepared: Callable[[], list[PreparedTransaction] | None] = _once(
            sources.administration.prepared
        )
        self.requests: Callable[[], RequestMetrics] = _once(sources.requests.snapshot)
        self.by_label: Callable[[], Mapping[tuple[str, ...], TopicMetrics]] = _once(
            self._by_label
        )
        self.bounds: Callable[[], Mapping[str, Bounds]] = _once(self._bounds)

    @property
    @age(
        "topic_oldest_seconds",
        f"Age of the oldest message within the time to live; 0 for an empty topic. "
        f"{_FIRST}",
        labels=(TOPIC,),
    )
    def topic_oldest_ms(self) -> Mapping[str, int]:
        """When the oldest message of each topic was published; 0 where it has none."""
        return {
            topic: found.first.publish_time_ms if found.first else 0
            for topic, found in self.bounds().items()
        }

    @property
    @gauge(
        "topic_rows",
        f"Rows that a topic holds within its time to live, rolled back ones "
        f"included; stored payloads count as the one reference that published "
        f"them. Counted some tens of thousands at a scrape, so that it rises to "
        f"the truth after a start. {_FIRST}",
        labels=(TOPIC,),
    )
    def topic_rows(self) -> Mapping[str, int | None]:
        """The rows of each topic; None where the count has not begun."""
        depths, bounds = self._sources.depths, self.bounds()
        depths.look(bounds, self._failures)
        return {topic: depths.rows(topic) for topic in bounds}

    @property
    @gauge(
        "topic_last_stable_seconds",
        f"The last stable position of a topic, as a time in seconds since 1970: "
        f"where committed readers stop, or where the next message goes if nothing "
        f"stops them. It stands still while a transaction keeps them waiting. "
        f"{_FIRST}",
        labels=(TOPIC,),
    )
    def topic_stable_ms(self) -> Mapping[str, int]:
        """The time of each topic's last stable position, as far as that is known.

        A topic that the overview did not list is not blocked: it lists those first.
        """
        report = self.report()
        if report.invalid_transactions is None or "blocked" in report.left_out:
            return {}  # nobody knows which transactions are open
        blocked = {
            topic.topic: topic.blocked_since_ms
            for topic in report.topics
            if topic.blocked_by is not None
        }
        return {
            topic: blocked.get(topic, found.next.publish_time_ms)
            for topic, found in self.bounds().items()
        }

    @property
    @gauge(
        "prepared_transactions",
        "Transactions that are prepared, and wait for somebody to end them.",
    )
    def prepared_count(self) -> int:
        """The number of prepared transactions."""
        return len(self.prepared() or ())

    @property
    @age(
        "oldest_prepared_seconds",
        "For how long the oldest one has been prepared; 0 where there is none.",
    )
    def oldest_prepared_ms(self) -> int:
        """Since when the oldest one is prepared, or 0."""
        return min([one.since_ms for one in self.prepared() or ()], default=0)

    @property
    @gauge(
        "up",
        "Whether this part works, 1 or 0; /health says why not.",
        labels=("part",),
    )
    def up(self) -> Mapping[str, bool]:
        """Tells of each part whether it works; one that cannot be asked does not."""
        administration = self._sources.administration
        try:
            report = self.report()
            statuses = {"coordinator": report.coordinator, "store": report.store}
        except Exception:  # whoever shows the report itself says so
            statuses = {
                "coordinator": _status(administration.coordinator_status),
                "store": _status(administration.table_status),
            }
        return {part: status == "OK" for part, status in statuses.items()}

    @property
    @counter(
        "refused_transactions",
        "Transactions that were not begun: their time-out was too long, they were "
        "long ones without that permission, or too many of a principal were open or "
        "invalid.",
        labels=("reason",),
    )
    def refusals(self) -> Mapping[str, int]:
        """The transactions that were not begun, by the reason."""
        return self._sources.refusals()

    @property
    @gauge(
        "http_requests_in_flight",
        "Requests that are being answered, and those that wait for a message.",
        labels=("kind",),
    )
    def in_flight(self) -> Mapping[str, int]:
        """The requests that are being answered, by their kind."""
        now = self._sources.in_flight
        return {"working": now.in_flight, "waiting": now.waiting}

    @property
    @gauge("http_body_bytes", "What request bodies take.")
    def body_bytes(self) -> int:
        """The bytes of request bodies."""
        return self._sources.in_flight.body_bytes

    @property
    @age("uptime_seconds", "How long this server has been running.")
    def started_ms(self) -> int:
        """When this server was started."""
        return self._sources.started_ms

    @property
    @Number(INFO, "build", "The version of this server.")
    def build(self) -> Mapping[str, str]:
        """The versions of this server and of Python."""
        return {"version": _version(), "python": platform.python_version()}

    @property
    @counter(
        "metric_failures",
        "How often metrics were left out because they could not be made.",
        labels=("family",),
    )
    def failures(self) -> Mapping[str, int]:
        """The number of times that each part was left out."""
        return self._sources.failures

    @property
    def left_out(self) -> set[str]:
        """The parts of families that could not be looked at, so far."""
        parts = set(self._failures.parts)
        with suppress(Exception):  # whoever shows the report itself says so
            parts |= set(self.report().left_out)
        return parts

    def _by_label(self) -> Mapping[tuple[str, ...], TopicMetrics]:
        topics, idle = self.counts().topics, self._idle_topics()
        counts = self._sources.labels.divide(topics, idle)
        return {(label,): _counted(values) for label, values in counts.items()}

    def _idle_topics(self) -> list[str]:
        """Returns topics that nobody used yet in this process, as far as known."""
        try:
            return [topic.topic for topic in self.report().topics]
        except Exception:  # whoever shows the report itself says so
            return []

    @property
    def outboxes(self) -> Sequence[OutboxReport]:
        """The last reports of relays on their outboxes, as far as known."""
        try:
            return self.report().outboxes
        except Exception:  # whoever shows the report itself says so
            return ()

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


def _counted(values: Values) -> TopicMetrics:
    fields: dict[str, Any] = dict(zip(FIELDS, values, strict=True))
    return TopicMetrics(**fields)


def _status(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:
        return str(error)


def _version() -> str:
    try:
        return version("txaware")
    except PackageNotFoundError:
        return "unknown"


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
