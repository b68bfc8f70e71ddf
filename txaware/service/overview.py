"""How things stand, for a page that asks every second: bounded, whatever there is."""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping

import attrs

from coordinator.embedded import EmbeddedCoordinator
from coordinator.errors import Unavailable
from coordinator.interfaces import Coordinator
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import TopicNotFound
from txaware.messages import MessageId
from txaware.metrics import TopicMetrics
from txaware.service.blocked import Blocked
from txaware.service.lags import Lags
from txaware.service.local import LocalService
from txaware.service.overview_report import (
    OpenOverview,
    OverviewReport,
    TopicOverview,
)
from txaware.service.retention import Retention
from txaware.service.site import Site
from txaware.service.turns import Remembered
from txaware.tables.topic_table import TopicTable
from txaware.topics import Topic, TopicName

REMEMBERED_S = 1.0
MOST_LISTED, MOST_BLOCKED = 200, 1000

# Whether somebody may see a topic, by its name.
Sees = Callable[[str], bool]
_NOTHING = TopicMetrics()


@attrs.define
class _Moment:
    """What all who ask within a second are answered from."""

    now_ms: int
    coordinator: str
    topics: Mapping[str, Topic]
    metrics: Mapping[str, TopicMetrics]
    by_activity: list[str]
    transactions: list[OpenOverview]
    invalid: int | None
    behind: Mapping[str, int]
    details: dict[str, TopicOverview | None] = attrs.field(factory=dict)

    def owner(self, pointer: int) -> int:
        """The transaction that writes with that pointer."""
        return next(
            (one.id for one in self.transactions if pointer in one.pointers), pointer
        )


@attrs.frozen
class _Chosen:
    """What somebody asks to see, of what they may see."""

    seen: frozenset[str]
    search: str
    namespace: str | None

    def has(self, topic: str, *names: str) -> bool:
        """Whether that topic is one of them, or what is named in it."""
        if topic not in self.seen:
            return False
        if self.namespace is not None:
            namespace = TopicName.parse(topic).namespace
            if namespace != self.namespace:
                return False
        return not self.search or any(self.search in name.lower() for name in names)


class Overview:
    """Looks at most once a second, however many ask, and each time at a bounded part.

    With very many topics or groups a round does not come to all of them; the next one
    goes on from there. Any number of threads may ask.
    """

    def __init__(
        self,
        service: LocalService,
        retention: Retention,
        site: Site,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._retention = retention
        self._site = site
        self._clock_s = clock_s
        self._started_ms = site.clock_ms()
        self._topic_table = TopicTable(site.table)
        self._topics = Remembered(self._all_topics, clock_s=clock_s)
        self._blocked = Blocked(service, site)
        self._lags = Lags(service, site, clock_s=clock_s)
        self._lock = threading.Lock()
        self._until_s = float("-inf")
        self._moment: _Moment | None = None
        self._before: Mapping[str, TopicMetrics] = {}

    def snapshot(
        self,
        *,
        search: str = "",
        namespace: str | None = None,
        sees: Sees | None = None,
    ) -> OverviewReport:
        """Everything, or only topics that `sees` answers True for.

        `search` chooses among topics and groups, by a part of the name of either, in
        capitals or not, and `namespace` too; sums are of all that may be seen.
        """
        may_see = _everything if sees is None else sees
        with self._lock:
            moment = self._current()
            seen = [name for name in moment.by_activity if may_see(name)]
            chosen = _Chosen(frozenset(seen), search.lower(), namespace)
            return self._report(moment, seen, chosen)

    def _current(self) -> _Moment:
        moment = self._moment
        if moment is None or self._clock_s() >= self._until_s:
            moment = self._moment = self._look()
            self._until_s = self._clock_s() + REMEMBERED_S
        return moment

    def _look(self) -> _Moment:
        metrics = self._service.topic_metrics()
        topics = self._known_topics(metrics)
        status, snapshot = self._ask_coordinator()
        transactions: list[OpenOverview] = []
        if snapshot is not None:
            self._blocked.look(topics, metrics.keys(), snapshot)
            self._lags.look(snapshot, self._blocked.blockers)
            transactions = self._open(snapshot)
        before, self._before = self._before, metrics

        def activity(name: str) -> tuple[bool, int, int]:
            total, earlier = _total(metrics.get(name)), _total(before.get(name))
            return name in self._blocked.blockers, total - earlier, total

        return _Moment(
            self._site.clock_ms(),
            status,
            topics,
            metrics,
            sorted(topics, key=activity, reverse=True),
            transactions,
            None if snapshot is None else len(snapshot.invalids),
            self._lags.by_topic(),
        )

    def _all_topics(self) -> dict[str, Topic]:
        return {
            str(topic.topic): topic
            for topic in self._topic_table.all()
            if topic.generation > 0
        }

    def _known_topics(self, touched: Iterable[str]) -> dict[str, Topic]:
        """All there are; those used in this process as they stand at this moment."""
        topics = dict(self._topics())
        for name in touched:
            try:
                topics[name] = self._service.topic(name)
            except TopicNotFound:
                topics.pop(name, None)
        return topics

    def _ask_coordinator(self) -> tuple[str, Transaction | None]:
        coordinator = self._site.coordinator
        try:
            return coordinator.status(), coordinator.snapshot()
        except Unavailable as error:
            return str(error), None

    def _open(self, snapshot: Transaction) -> list[OpenOverview]:
        """All that are open, those that block a topic first, and then the oldest."""
        blocks: dict[int, list[tuple[str, int]]] = {}
        for name, blocker in self._blocked.blockers.items():
            blocks.setdefault(blocker.pointer, []).append((name, blocker.since_ms))
        found = []
        for one in _open_ones(self._site.coordinator, snapshot):
            waiting = sorted(w for p in one.pointers for w in blocks.get(p, ()))
            names = [name for name, _ in waiting]
            since_ms = min([since_ms for _, since_ms in waiting], default=None)
            found.append(attrs.evolve(one, blocks=names, blocks_since_ms=since_ms))
        return sorted(found, key=lambda one: (not one.blocks, one.id))

    def _report(
        self, moment: _Moment, seen: list[str], chosen: _Chosen
    ) -> OverviewReport:
        topics = [name for name in seen if chosen.has(name, name)]
        blocked = [name for name in topics if name in self._blocked.blockers]
        pairs = [pair for pair in self._lags.pairs if chosen.has(pair[1], *pair)]
        groups = [g for pair in pairs if (g := self._lags.groups.get(pair))]
        groups.sort(key=lambda group: (group.unread_since_ms or math.inf, group.topic))
        counts = [moment.metrics[name] for name in seen if name in moment.metrics]
        details = [
            self._detail(moment, name)
            for name in topics[: max(MOST_LISTED, min(len(blocked), MOST_BLOCKED))]
        ]
        cache = self._service.cache
        return OverviewReport(
            now_ms=moment.now_ms,
            started_ms=self._started_ms,
            coordinator=moment.coordinator,
            decided_by=self._site.decided_by,
            store=self._site.table.status(),
            namespaces=sorted({moment.topics[name].namespace for name in seen}),
            topics=[topic for topic in details if topic is not None],
            topic_count=len(topics),
            blocked_count=len(blocked),
            unjudged_topics=self._blocked.unjudged,
            groups=groups[:MOST_LISTED],
            group_count=len(pairs),
            transactions=[
                attrs.evolve(one, blocks=[t for t in one.blocks if t in chosen.seen])
                for one in moment.transactions[:MOST_LISTED]
            ],
            transaction_count=len(moment.transactions),
            invalid_transactions=moment.invalid,
            messages_in=sum([count.messages_in for count in counts]),
            messages_out=sum([count.messages_out for count in counts]),
            bytes_in=sum([count.bytes_in for count in counts]),
            bytes_out=sum([count.bytes_out for count in counts]),
            cache_bytes=cache.size_bytes,
            cache_hits=cache.hits,
            cache_misses=cache.misses,
        )

    def _detail(self, moment: _Moment, name: str) -> TopicOverview | None:
        """Found out once a moment; None where the topic was deleted just now."""
        if name not in moment.details:
            try:
                moment.details[name] = self._look_at(moment, name)
            except TopicNotFound:
                moment.details[name] = None
        return moment.details[name]

    def _look_at(self, moment: _Moment, name: str) -> TopicOverview:
        bounds, topic = self._service.bounds(name), moment.topics[name]
        blocker, blocked_by = self._blocked.blockers.get(name), None
        if blocker is not None:
            blocked_by = blocker.by(moment.owner(blocker.pointer))
        counts = moment.metrics.get(name, _NOTHING)
        return TopicOverview(
            topic=name,
            generation=topic.generation,
            ttl_s=topic.ttl_s,
            messages_in=counts.messages_in,
            bytes_in=counts.bytes_in,
            messages_out=counts.messages_out,
            bytes_out=counts.bytes_out,
            oldest_ms=_time_ms(bounds.first),
            newest_ms=_time_ms(bounds.last),
            rows_behind=moment.behind.get(name),
            blocked_by=blocked_by,
            expired_unseen=self._retention.expired_unseen.get(name, 0),
        )


def _time_ms(message_id: MessageId | None) -> int | None:
    return None if message_id is None else message_id.publish_time_ms


def _everything(_: str) -> bool:
    return True


def _total(counts: TopicMetrics | None) -> int:
    return counts.messages_in + counts.messages_out if counts is not None else 0


def _open_ones(coordinator: Coordinator, snapshot: Transaction) -> list[OpenOverview]:
    if not isinstance(coordinator, EmbeddedCoordinator):
        return [
            OpenOverview(pointer, pointer // POINTERS_PER_MS, pointers=(pointer,))
            for pointer in snapshot.in_progress
        ]
    return [
        OpenOverview(
            entry.transaction_id,
            entry.transaction_id // POINTERS_PER_MS,
            pointers=entry.pointers,
            type=entry.type.name.lower(),
            stage=entry.stage.value,
            expires_ms=entry.expires_ms,
        )
        for entry in coordinator.open_transactions()
    ]
