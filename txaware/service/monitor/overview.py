"""The state of a store for a page that asks every second, at a bounded cost."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

import attrs

from coordinator.errors import Unavailable
from coordinator.transaction import Transaction
from txaware.auth import Principal
from txaware.errors import PartitionNeeded, TopicNotFound
from txaware.model.messages import Bounds, MessageId
from txaware.model.metrics import TopicMetrics, Traffic, WriteMetrics
from txaware.model.partitions import (
    named_partition,
    parsed_topic,
    shown_partitions,
)
from txaware.model.queues import is_queue
from txaware.model.reports import OutboxReport
from txaware.model.topics import QueueName, TableName, Topic
from txaware.service.local import LocalService
from txaware.service.monitor.attention import AlarmState, Attention
from txaware.service.monitor.blocked_topics import Blocked
from txaware.service.monitor.group_lag import (
    GroupRounds,
    GroupStates,
    Pair,
    group_places,
)
from txaware.service.monitor.open_overview import open_overviews
from txaware.service.monitor.overview_report import (
    Alarm,
    GroupOverview,
    OpenOverview,
    OverviewReport,
    Sample,
    TopicOverview,
)
from txaware.service.monitor.producer_overview import (
    ProducerOverview,
    producer_overviews,
    with_transaction,
)
from txaware.service.monitor.queue_overview import (
    QueueList,
    Queues,
    queue_overviews,
)
from txaware.service.monitor.topic_bounds import TopicBounds
from txaware.service.monitor.turns import Failures, Remembered
from txaware.service.retention.clean_up import Retention
from txaware.service.store_context import StoreContext
from txaware.service.table_store import TableStore
from txaware.store.interfaces import journaled

log = logging.getLogger(__name__)

REMEMBERED_S = 1.0
MOST_LISTED, MOST_BLOCKED = 200, 1000
# What a page draws: so long, with a sample each two seconds at most.
KEPT_MS, EVERY_MS = 120_000, 1900

_NOTHING = TopicMetrics()
_TRAFFIC = [field.name for field in attrs.fields(Traffic)]
_UNKNOWN = Bounds(None, None, MessageId(bytes(20)))
_NONE = QueueList()


@attrs.frozen
class Sight:
    """Tells what somebody may see, by the names of topics, queues and tables."""

    topics: Callable[[str], bool]
    queues: Callable[[str], bool]
    tables: Callable[[str], bool] = lambda _: False


@attrs.define(kw_only=True)
class _Moment:
    """The state that answers all who ask within a second."""

    now_ms: int
    coordinator: str
    store: str
    topics: Mapping[str, Topic]
    metrics: Mapping[str, TopicMetrics]
    by_activity: list[str]
    transactions: list[OpenOverview]
    invalid: int | None
    producers: list[ProducerOverview]
    queues: QueueList
    tables: list[str]
    outboxes: list[OutboxReport]
    behind: Mapping[str, int]
    pairs: Collection[Pair]
    failures: Failures
    alarms: list[Alarm]
    details: dict[str, TopicOverview | None] = attrs.field(factory=dict)

    def owner(self, pointer: int) -> int:
        """Returns the transaction that writes with a pointer."""
        return next(
            (one.id for one in self.transactions if pointer in one.pointers), pointer
        )


@attrs.frozen
class _Chosen:
    """The topics that somebody asks to see, among those that they may see."""

    seen: frozenset[str]
    search: str
    namespace: str | None

    def has(self, topic: str, *names: str) -> bool:
        """Tells whether a topic, or something with these names in it, is chosen."""
        if topic not in self.seen:
            return False
        if self.namespace is not None:
            namespace = named_partition(topic)[0].namespace
            if namespace != self.namespace:
                return False
        return self._fits(names)

    def has_other(self, name: str) -> bool:
        """Tells whether a queue or a table is chosen that may be seen."""
        namespace = QueueName.parse(name).namespace
        return self.namespace in (None, namespace) and self._fits([name])

    def _fits(self, names: Iterable[str]) -> bool:
        return not self.search or any(self.search in name.lower() for name in names)


class Overview:
    """Looks at most once a second, however many ask, and each time at a bounded part.

    With very many topics or groups a round does not come to all of them; the next one
    goes on from there. What cannot be read is left out by itself, and is named in
    `left_out`. Any number of threads may ask.
    """

    def __init__(
        self,
        service: LocalService,
        retention: Retention,
        store_context: StoreContext,
        queues: Queues | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._retention = retention
        self._store_context = store_context
        self._clock_s = clock_s
        self._started_ms = store_context.clock_ms()
        self._topics = Remembered(self._all_topics, clock_s=clock_s)
        self._producers = Remembered(
            partial(producer_overviews, store_context.table), clock_s=clock_s
        )
        tables = TableStore(store_context)
        self._tables = Remembered(tables.all_tables, clock_s=clock_s)
        self._outboxes = Remembered(tables.outboxes, clock_s=clock_s)
        self._queues = Remembered(
            QueueList if queues is None else partial(queue_overviews, queues),
            clock_s=clock_s,
        )
        self._blocked = Blocked(service, store_context)
        clock_ms = store_context.clock_ms
        committed = TopicBounds(service, service.bounds_seen, clock_ms)
        self._lags = GroupRounds(
            GroupStates(service, store_context, committed.of),
            self._all_pairs,
            clock_s=clock_s,
        )
        self._bounds = TopicBounds(service, lambda n, _: service.bounds(n), clock_ms)
        self._attention = Attention(self._started_ms)
        self._lock = threading.Lock()
        self._until_s = float("-inf")
        self._moment: _Moment | None = None
        self._before: Mapping[str, TopicMetrics] = {}
        self._samples: deque[Sample] = deque()

    def snapshot(
        self,
        *,
        search: str = "",
        namespace: str | None = None,
        sees: Sight | None = None,
        history: bool = False,
    ) -> OverviewReport:
        """Returns the overview of all topics and queues, or of those in sight.

        `search` chooses among topics, groups and queues, by a part of the name, in
        capitals or not, and `namespace` too; sums are of all that may be seen. With
        `history` it has how things stood lately, too.
        """
        sight = _ALL if sees is None else sees
        with self._lock:
            moment = self._current()
            seen = [name for name in moment.by_activity if sight.topics(name)]
            chosen = _Chosen(frozenset(seen), search.lower(), namespace)
            queues = [one for one in moment.queues.queues if sight.queues(one.queue)]
            tables = [
                name
                for name in moment.tables
                if sight.tables(name) and chosen.has_other(name)
            ]
            report = attrs.evolve(
                self._report(moment, seen, chosen),
                queues=[one for one in queues if chosen.has_other(one.queue)],
                queue_count=moment.queues.count if sees is None else len(queues),
                alarms=_in_sight(moment.alarms, sight, chosen.seen),
                tables=tables[:MOST_LISTED],
                table_count=len(tables),
            )
            if not history:
                return report
            samples = [_chosen_groups(sample, chosen) for sample in self._samples]
            return attrs.evolve(report, history=_seen(samples, sees))

    def _current(self) -> _Moment:
        moment = self._moment
        if moment is None or self._clock_s() >= self._until_s:
            moment = self._moment = self._look()
            self._sample(moment)
            self._until_s = self._clock_s() + REMEMBERED_S
        return moment

    def _look(self) -> _Moment:
        metrics = self._service.topic_metrics()
        before = () if self._moment is None else self._moment.failures.parts
        failures = Failures(reads_wait=self._service.reads_wait, before=before)
        topics = self._known_topics(metrics, failures)
        known: Collection[Pair] = self._lags.groups.keys()
        pairs = failures.attempt("groups", lambda: self._lags.pairs, known)
        status, snapshot = self._ask_coordinator()
        transactions: list[OpenOverview] = []
        if snapshot is not None:
            self._blocked.look(topics, metrics.keys(), snapshot, failures)
            self._lags.look(pairs, snapshot, self._blocked.blockers, failures)
            blockers = self._blocked.blockers
            transactions = open_overviews(
                self._store_context.coordinator, snapshot, blockers
            )
        producers = failures.attempt(
            "producers", self._producers, self._producers.last or []
        )
        queues = failures.attempt("queues", self._queues, self._queues.last or _NONE)
        tables = failures.attempt("tables", self._tables, self._tables.last or [])
        outboxes = failures.attempt(
            "outboxes", self._outboxes, self._outboxes.last or []
        )
        alarm_state = AlarmState(
            now_ms=self._store_context.clock_ms(),
            transactions=transactions,
            groups=[*self._lags.groups.values()],
            queues=queues.queues,
            outboxes=outboxes,
            expired_unseen=dict(self._retention.expired_unseen),
            retention=self._retention.counters.snapshot(),
            producers=self._service.producing.metrics(),
            writes=self._writes(),
            left_out=sorted(failures.parts),
        )
        return _Moment(
            now_ms=self._store_context.clock_ms(),
            coordinator=status,
            store=self._store_status(failures),
            topics=topics,
            metrics=metrics,
            by_activity=self._by_activity(topics, metrics),
            transactions=transactions,
            invalid=None if snapshot is None else len(snapshot.invalids),
            producers=producers,
            queues=queues,
            tables=tables,
            outboxes=outboxes,
            behind=self._lags.by_topic(),
            pairs=pairs,
            failures=failures,
            alarms=self._attention.look(alarm_state),
        )

    def _by_activity(
        self, topics: Iterable[str], metrics: Mapping[str, TopicMetrics]
    ) -> list[str]:
        """Returns blocked topics first, and then those busiest since the last look."""
        before, self._before = self._before, metrics

        def activity(name: str) -> tuple[bool, int, int]:
            total, earlier = _total(metrics.get(name)), _total(before.get(name))
            return name in self._blocked.blockers, total - earlier, total

        return sorted(topics, key=activity, reverse=True)

    def _writes(self) -> WriteMetrics | None:
        kept = journaled(self._store_context.table)
        return None if kept is None else kept.write_metrics()

    def _sample(self, moment: _Moment) -> None:
        """Keeps how things stand, when somebody looks: nothing wakes up for it."""
        samples, now_ms = self._samples, moment.now_ms
        if samples and now_ms < samples[-1].ms:  # the clock was set back
            samples.clear()
        if samples and now_ms < samples[-1].ms + EVERY_MS:
            return
        while samples and samples[0].ms < now_ms - KEPT_MS:
            samples.popleft()
        counts = [found for n in moment.by_activity if (found := moment.metrics.get(n))]
        groups = self._lags.groups.values()
        unread_ms = [g.unread_since_ms for g in groups if g.unread_since_ms is not None]
        busy = [name for name in moment.by_activity if name in moment.metrics]
        sample = Sample(
            ms=now_ms,
            messages_in=sum([count.messages_in for count in counts]),
            messages_out=sum([count.messages_out for count in counts]),
            unread_ms=max(0, now_ms - min(unread_ms)) if unread_ms else 0,
            open=None if moment.invalid is None else len(moment.transactions),
            topics={name: _in_and_out(moment, name) for name in busy[:MOST_LISTED]},
            groups={_pair_key(one): _behind(one, now_ms) for one in groups},
        )
        samples.append(sample)

    def _store_status(self, failures: Failures) -> str:
        """Returns the status of the last writes, or why rows cannot be listed."""
        status = self._store_context.table.status()
        why = failures.parts.get("topics") or failures.parts.get("groups")
        return f"rows cannot be read: {why}" if status == "OK" and why else status

    def _all_topics(self) -> dict[str, Topic]:
        return {
            name: each
            for topic in self._service.handles.topics.listed()
            if topic.generation > 0 and not is_queue(topic.topic)
            for name, each in shown_partitions(topic)
        }

    def _all_pairs(self) -> set[Pair]:
        return {
            (group, self._service.shown_name(topic))
            for group, topic in group_places(self._store_context.table)
        }

    def _known_topics(
        self, touched: Iterable[str], failures: Failures
    ) -> dict[str, Topic]:
        """Returns all topics; those used in this process as they stand now.

        While topics cannot be read, it returns those that were known before.
        """
        topics = dict(failures.attempt("topics", self._topics, self._topics.last or {}))
        for name in touched:
            ask = partial(self._service.place, name)
            try:
                place = failures.attempt("topics", ask, None)
                topic = topics.get(name) if place is None else place.topic
            except (TopicNotFound, PartitionNeeded):
                topic = None
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = topic
        return topics

    def _ask_coordinator(self) -> tuple[str, Transaction | None]:
        coordinator = self._store_context.coordinator
        try:
            return coordinator.status(), coordinator.snapshot()
        except Unavailable as error:
            return str(error), None
        except Exception as error:
            log.exception("the coordinator cannot be asked")
            return f"the coordinator cannot be asked: {error}", None

    def _report(
        self, moment: _Moment, seen: list[str], chosen: _Chosen
    ) -> OverviewReport:
        topics = [name for name in seen if chosen.has(name, name)]
        blocked = [name for name in topics if name in self._blocked.blockers]
        pairs = [pair for pair in moment.pairs if chosen.has(pair[1], *pair)]
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
            decided_by=self._store_context.decided_by,
            store=moment.store,
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
            producers=self._listed_producers(moment),
            producer_count=len(moment.producers),
            messages_in=sum([count.messages_in for count in counts]),
            messages_out=sum([count.messages_out for count in counts]),
            bytes_in=sum([count.bytes_in for count in counts]),
            bytes_out=sum([count.bytes_out for count in counts]),
            cache_bytes=cache.size_bytes,
            cache_hits=cache.hits,
            cache_misses=cache.misses,
            outboxes=moment.outboxes,
            left_out=sorted(moment.failures.parts),
        )

    def _listed_producers(self, moment: _Moment) -> list[ProducerOverview]:
        begun = self._store_context.producer_ids.transactions
        is_open = {one.id for one in moment.transactions}
        listed = moment.producers[:MOST_LISTED]
        return [with_transaction(one, begun, is_open) for one in listed]

    def _detail(self, moment: _Moment, name: str) -> TopicOverview | None:
        """Returns the details of a topic, looked up once; None if just deleted."""
        if name not in moment.details:
            try:
                moment.details[name] = self._look_at(moment, name)
            except TopicNotFound:
                moment.details[name] = None
        return moment.details[name]

    def _look_at(self, moment: _Moment, name: str) -> TopicOverview:
        topic = moment.topics[name]
        bounds = moment.failures.attempt(
            "topic_ages", partial(self._bounds.of, name), _UNKNOWN
        )
        blocker, blocked_by = self._blocked.blockers.get(name), None
        if blocker is not None:
            blocked_by = blocker.by(moment.owner(blocker.pointer))
        counts = moment.metrics.get(name, _NOTHING)
        return TopicOverview(
            topic=name,
            generation=topic.generation,
            ttl_s=topic.ttl_s,
            is_compact=topic.is_compact,
            **{name: getattr(counts, name) for name in _TRAFFIC},
            oldest_ms=_time_ms(bounds.first),
            newest_ms=_time_ms(bounds.last),
            rows_behind=moment.behind.get(name),
            blocked_by=blocked_by,
            expired_unseen=self._retention.expired_unseen.get(name, 0),
        )


def _in_and_out(moment: _Moment, name: str) -> tuple[int, int]:
    counts = moment.metrics[name]
    return counts.messages_in, counts.messages_out


def _seen(samples: Iterable[Sample], sees: Sight | None) -> list[Sample]:
    """Returns the history that somebody may see, without sums of all topics."""
    if sees is None:
        return list(samples)
    return [
        attrs.evolve(
            sample,
            messages_in=None,
            messages_out=None,
            unread_ms=None,
            topics={n: one for n, one in sample.topics.items() if sees.topics(n)},
        )
        for sample in samples
    ]


def _in_sight(
    alarms: Iterable[Alarm], sight: Sight, topics: Collection[str]
) -> list[Alarm]:
    """Leaves out what is about a topic or a queue that is out of sight."""
    hidden = {"topic": lambda one: one.name not in topics}
    hidden["group"] = lambda one: one.topic not in topics
    hidden["queue"] = lambda one: not sight.queues(one.name)
    return [one for one in alarms if not hidden.get(one.kind, _nothing)(one)]


def _nothing(_: Alarm) -> bool:
    return False


def _chosen_groups(sample: Sample, chosen: _Chosen) -> Sample:
    """Leaves out the groups that nobody searches for: they would be most of it."""
    groups = {
        key: behind
        for key, behind in sample.groups.items()
        if chosen.search and chosen.has(key.partition(" ")[2], *key.split(" "))
    }
    return attrs.evolve(sample, groups=groups)


def _pair_key(group: GroupOverview) -> str:
    return f"{group.group} {group.topic}"


def _behind(group: GroupOverview, now_ms: int) -> tuple[int, int]:
    since_ms = group.unread_since_ms
    return group.rows, 0 if since_ms is None else max(0, now_ms - since_ms)


def _time_ms(message_id: MessageId | None) -> int | None:
    return None if message_id is None else message_id.publish_time_ms


def _everything(_: str) -> bool:
    return True


_ALL = Sight(_everything, _everything, _everything)


def _total(counts: TopicMetrics | None) -> int:
    return counts.messages_in + counts.messages_out if counts is not None else 0


def sight(principal: Principal) -> Sight | None:
    """Returns what somebody may see; None if that is all."""
    if principal.is_operator:
        return None
    return Sight(
        lambda topic: principal.may_see(parsed_topic(topic)),
        lambda queue: principal.may_see_queue(QueueName.parse(queue)),
        lambda table: _may_see_table(principal, TableName.parse(table)),
    )


def _may_see_table(principal: Principal, table: TableName) -> bool:
    return principal.may_see_table(table.namespace, table.name)
