"""Tells what needs somebody, and what to do: all that operations.md alarms on.

What keeps readers waiting, a group without a reader, a queue without a worker and a
part that is not well are in the report itself, where the page finds them.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from txaware.model.metrics import (
    Histogram,
    ProducerMetrics,
    RetentionMetrics,
    WriteMetrics,
)
from txaware.model.reports import OutboxReport
from txaware.service.monitor import alarm_rules
from txaware.service.monitor.overview_report import (
    Alarm,
    GroupOverview,
    OpenOverview,
)
from txaware.service.monitor.queue_overview import QueueOverview

MINUTE_MS = 60_000
# What rose in this time is told; of a count that nobody looked at, since that look.
LATELY_MS = 10 * MINUTE_MS
# No transaction of a client lasts longer, so by then its end is overdue.
OVERDUE_MS = 15 * MINUTE_MS
# By then nobody reads for a group; the page says so.
ALONE_MS = 15 * MINUTE_MS
BEHIND_MS = 60 * MINUTE_MS
BACKLOG_MS = alarm_rules.OUTBOX_WAITS.limit_ms
NO_RELAY_MS = alarm_rules.OUTBOX_ALONE.limit_ms
NO_CLEAN_UP_MS = alarm_rules.NOT_CLEANED_UP.limit_ms
SLOW_SYNC_S = alarm_rules.SLOW_SYNCS.limit_s
MANY_PRODUCERS = 10_000


@attrs.frozen(kw_only=True)
class AlarmState:
    """The state that alarms are raised from, all of it as of one look."""

    now_ms: int
    transactions: Sequence[OpenOverview] = ()
    groups: Sequence[GroupOverview] = ()
    queues: Sequence[QueueOverview] = ()
    outboxes: Sequence[OutboxReport] = ()
    expired_unseen: Mapping[str, int] = attrs.field(factory=dict)
    retention: RetentionMetrics = attrs.field(factory=RetentionMetrics)
    producers: ProducerMetrics = attrs.field(factory=ProducerMetrics)
    writes: WriteMetrics | None = None
    left_out: Sequence[str] = ()


class Attention:
    """Raises alarms, and remembers counts, as some are about what rises."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._counts = RecentCounts(started_ms)
        self._backlog_since_ms: dict[str, int] = {}

    def look(self, seen: AlarmState) -> list[Alarm]:
        """Returns what needs somebody now, the gravest first."""
        found = [
            attrs.evolve(alarm, metric=metric)
            for metric, rule in RULES.items()
            for alarm in rule(self, seen)
        ]
        self._counts.forget_before(seen.now_ms - LATELY_MS)
        found.sort(key=lambda alarm: not alarm.is_grave)
        return found

    # ---- what stands

    def _overdue(self, seen: AlarmState) -> Iterator[Alarm]:
        for one in seen.transactions:
            age_ms = seen.now_ms - one.began_ms
            ends_later = one.expires_ms is not None and one.expires_ms >= seen.now_ms
            if age_ms < OVERDUE_MS or one.prepared or one.type == "long" or ends_later:
                continue
            yield Alarm(
                f"Transaction {one.id} has been open for {_time(age_ms)}",
                f"txaware transaction describe {one.id} says whose it is, and "
                f"txaware transaction abort {one.id} ends it",
                kind="transaction",
                name=str(one.id),
            )

    def _prepared(self, seen: AlarmState) -> Iterator[Alarm]:
        for one in seen.transactions:
            age_ms = seen.now_ms - one.began_ms
            if one.prepared and age_ms >= OVERDUE_MS:
                yield Alarm(
                    f"{one.prepared} is prepared, and was begun {_time(age_ms)} ago",
                    alarm_rules.PREPARED.to_do(),
                    kind="transaction",
                    name=str(one.id),
                )

    def _late_groups(self, seen: AlarmState) -> Iterator[Alarm]:
        for group in seen.groups:
            if group.unread_since_ms is None or group.reader_seen_ms is None:
                continue
            unread_ms = seen.now_ms - group.unread_since_ms
            if unread_ms < BEHIND_MS or seen.now_ms - group.reader_seen_ms >= ALONE_MS:
                continue
            yield Alarm(
                f"Group {group.group} is {_time(unread_ms)} behind in {group.topic}, "
                f"and is read for",
                "its readers are slower than what is published: start more of them",
                kind="group",
                name=group.group,
                topic=group.topic,
            )

    def _late_queues(self, seen: AlarmState) -> Iterator[Alarm]:
        for queue in seen.queues:
            age_ms = int(queue.stats.oldest_age_s * 1000)
            if age_ms >= BEHIND_MS and queue.stats.in_work:
                yield _of_queue(
                    queue,
                    f"The oldest item of queue {queue.queue} has waited for "
                    f"{_time(age_ms)}",
                    "its workers are slower than what is pushed: start more of them",
                )

    def _dead_letters(self, seen: AlarmState) -> Iterator[Alarm]:
        for queue in seen.queues:
            if queue.dead_letters:
                yield _of_queue(
                    queue,
                    f"{_count(queue.dead_letters, 'dead letter')} of queue "
                    f"{queue.queue} {'wait' if queue.dead_letters > 1 else 'waits'}",
                    alarm_rules.DEAD_LETTERS.to_do(
                        letters=f"{queue.queue} --state dead", queue=queue.queue
                    ),
                    state="dead",
                )

    def _set_aside(self, seen: AlarmState) -> Iterator[Alarm]:
        for outbox in seen.outboxes:
            if outbox.set_aside:
                yield _of_outbox(
                    outbox,
                    f"{_count(outbox.set_aside, 'message')} of the outbox in "
                    f"{outbox.database} cannot be carried over",
                    alarm_rules.OUTBOX_SET_ASIDE.to_do(database=outbox.database),
                    is_grave=True,
                )

    def _backlog(self, seen: AlarmState) -> Iterator[Alarm]:
        since_ms = {
            outbox.outbox: self._backlog_since_ms.get(outbox.outbox, seen.now_ms)
            for outbox in seen.outboxes
            if outbox.waiting
        }
        self._backlog_since_ms = since_ms
        for outbox in seen.outboxes:
            waits_ms = seen.now_ms - since_ms.get(outbox.outbox, seen.now_ms)
            if waits_ms >= BACKLOG_MS:
                yield _of_outbox(
                    outbox,
                    f"{_count(outbox.waiting, 'message')} wait in the outbox in "
                    f"{outbox.database}, for {_time(waits_ms)} never none",
                    alarm_rules.OUTBOX_WAITS.to_do(),
                )

    def _no_relay(self, seen: AlarmState) -> Iterator[Alarm]:
        for outbox in seen.outboxes:
            ago_ms = seen.now_ms - outbox.looked_ms
            if ago_ms >= NO_RELAY_MS:
                yield _of_outbox(
                    outbox,
                    f"No relay has looked at the outbox in {outbox.database} for "
                    f"{_time(ago_ms)}",
                    alarm_rules.OUTBOX_ALONE.to_do(database=outbox.database),
                )

    def _held_back(self, seen: AlarmState) -> Iterator[Alarm]:
        if count := seen.retention.held_back_count:
            yield Alarm(
                f"{_count(count, 'invalid transaction')} of more than a day ago cannot "
                f"be forgotten, which makes all others slower",
                f"{seen.retention.held_back}; {alarm_rules.HELD_BACK.to_do()}",
            )

    def _no_clean_up(self, seen: AlarmState) -> Iterator[Alarm]:
        ended_ms = seen.retention.last_ended_ms
        ago_ms = seen.now_ms - (self._started_ms if ended_ms is None else ended_ms)
        if ago_ms >= NO_CLEAN_UP_MS:
            since = "" if ended_ms is not None else "since the start, "
            yield Alarm(
                f"Nothing has been cleaned up {since}for {_time(ago_ms)}",
                alarm_rules.NOT_CLEANED_UP.to_do(),
            )

    def _left_out(self, seen: AlarmState) -> Iterator[Alarm]:
        if seen.left_out:
            parts = ", ".join(seen.left_out).replace("_", " ")
            to_do = alarm_rules.METRICS_MISSING.to_do()
            yield Alarm(f"Cannot be looked at: {parts}", to_do)

    # ---- what rises

    def _expired(self, seen: AlarmState) -> Iterator[Alarm]:
        for topic, count in seen.expired_unseen.items():
            if rise := self._rise(seen, f"expired {topic}", count, from_start=True):
                yield Alarm(
                    f"{_count(rise.by, 'message')} of {topic} expired unseen "
                    f"{rise.lately}",
                    alarm_rules.EXPIRED_UNSEEN.to_do(topic=topic),
                    is_grave=True,
                    kind="topic",
                    name=topic,
                )

    def _expired_leases(self, seen: AlarmState) -> Iterator[Alarm]:
        for queue in seen.queues:
            count = queue.stats.expired_leases
            if rise := self._rise(seen, f"leases {queue.queue}", count):
                yield _of_queue(
                    queue,
                    f"{_count(rise.by, 'lease')} of queue {queue.queue} ran out "
                    f"{rise.lately}",
                    alarm_rules.LEASES_EXPIRE.to_do(queue=queue.queue),
                    state="in_work",
                )

    def _failed_writes(self, seen: AlarmState) -> Iterator[Alarm]:
        failed = 0 if seen.writes is None else seen.writes.failed
        if rise := self._rise(seen, "writes", failed, from_start=True):
            yield Alarm(
                f"{_count(rise.by, 'write')} failed {rise.lately}",
                alarm_rules.FAILED_WRITES.to_do(),
                is_grave=True,
            )

    def _slow_syncs(self, seen: AlarmState) -> Iterator[Alarm]:
        if seen.writes is None:
            return
        slow = _above(seen.writes.sync_s, SLOW_SYNC_S)
        every = self._counts.rise("syncs", seen.writes.sync_s.count, seen.now_ms)
        late = self._counts.rise("slow syncs", slow, seen.now_ms)
        if late and every and late.by * 100 >= every.by:
            yield Alarm(
                f"{_count(late.by, 'sync')} of {every.by:,} took longer than "
                f"{SLOW_SYNC_S:g} s {late.lately}",
                alarm_rules.SLOW_SYNCS.to_do(),
            )

    def _fenced(self, seen: AlarmState) -> Iterator[Alarm]:
        counts = seen.producers
        if rise := self._rise(seen, "fenced", counts.fenced, from_start=True):
            yield Alarm(
                f"{_count(rise.by, 'call')} of fenced producers "
                f"{'was' if rise.by == 1 else 'were'} refused {rise.lately}",
                "two programs use one transactional id: txaware producer list shows "
                "which",
                kind="producers",
            )

    def _out_of_order(self, seen: AlarmState) -> Iterator[Alarm]:
        counts = seen.producers
        if rise := self._rise(seen, "order", counts.out_of_order, from_start=True):
            yield Alarm(
                f"{_count(rise.by, 'publish', 'publishes')} out of order {rise.lately}",
                "a producer has lost messages and ended: txaware producer list shows "
                "which",
                kind="producers",
            )

    def _many_producers(self, seen: AlarmState) -> Iterator[Alarm]:
        yield from self._many(seen, "producers", seen.producers.live)

    def _many_ids(self, seen: AlarmState) -> Iterator[Alarm]:
        names = seen.producers.transactional_ids
        yield from self._many(seen, "transactional ids", names)

    def _many(self, seen: AlarmState, what: str, count: int) -> Iterator[Alarm]:
        rise = self._counts.rise(what, count, seen.now_ms)
        if rise and count >= MANY_PRODUCERS:
            yield Alarm(
                f"There are {count:,} {what}, {rise.by:,} more {rise.lately}",
                "programs draw ids anew each time: give each a transactional id that "
                "stays",
                kind="producers",
            )

    def _rise(
        self, seen: AlarmState, name: str, count: int, *, from_start: bool = False
    ) -> "Rise | None":
        return self._counts.rise(name, count, seen.now_ms, from_start=from_start)


# By the metric that says the same.
RULES: Mapping[str, Callable[[Attention, AlarmState], Iterator[Alarm]]] = {
    "txaware_oldest_transaction_seconds": Attention._overdue,
    "txaware_oldest_prepared_seconds": Attention._prepared,
    "txaware_group_oldest_unread_seconds": Attention._late_groups,
    "txaware_expired_unseen_total": Attention._expired,
    "txaware_queue_oldest_seconds": Attention._late_queues,
    "txaware_queue_expired_leases_total": Attention._expired_leases,
    "txaware_queue_dead_letters_total": Attention._dead_letters,
    "txaware_outbox_set_aside": Attention._set_aside,
    "txaware_outbox_waiting": Attention._backlog,
    "txaware_outbox_last_look_seconds": Attention._no_relay,
    "txaware_invalid_transactions_held_back": Attention._held_back,
    "txaware_failed_writes_total": Attention._failed_writes,
    "txaware_sync_seconds": Attention._slow_syncs,
    "txaware_retention_last_end_seconds": Attention._no_clean_up,
    "txaware_fenced_publishes_total": Attention._fenced,
    "txaware_out_of_order_publishes_total": Attention._out_of_order,
    "txaware_live_producers": Attention._many_producers,
    "txaware_active_transactional_ids": Attention._many_ids,
    "txaware_metric_failures_total": Attention._left_out,
}


@attrs.frozen
class Rise:
    """By how much a count rose, and in how long at most."""

    by: int
    in_ms: int

    @property
    def lately(self) -> str:
        """The time in words."""
        return f"in the last {_time(self.in_ms)}"


@attrs.define
class Stood:
    """A count as it stood from one look to another."""

    first_ms: int
    last_ms: int
    count: int


class RecentCounts:
    """Remembers counts that rise, as far back as alarms look."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._kept: dict[str, deque[Stood]] = defaultdict(deque)

    def rise(
        self, name: str, count: int, now_ms: int, *, from_start: bool = False
    ) -> Rise | None:
        """Notes a count; returns by how much it rose lately, None where it did not.

        One `from_start` began at zero when this process did; of others the first look
        says where they stood. One that went down began anew.
        """
        kept = self._kept[name]
        if not kept and from_start:
            kept.append(Stood(self._started_ms, self._started_ms, 0))
        if kept and (count < kept[-1].count or now_ms < kept[-1].last_ms):
            kept.clear()
        if kept and kept[-1].count == count:
            kept[-1].last_ms = now_ms
        else:
            kept.append(Stood(now_ms, now_ms, count))
        while len(kept) > 1 and kept[1].first_ms <= now_ms - LATELY_MS:
            kept.popleft()
        before = kept[0]
        if count == before.count:
            return None
        return Rise(count - before.count, max(1000, now_ms - before.last_ms))

    def forget_before(self, time_ms: int) -> None:
        """Forgets counts that nobody told since: what they were of is gone."""
        gone = [name for name, kept in self._kept.items() if kept[-1].last_ms < time_ms]
        for name in gone:
            del self._kept[name]


def _of_queue(queue: QueueOverview, what: str, to_do: str, *, state: str = "") -> Alarm:
    return Alarm(what, to_do, kind="queue", name=queue.queue, state=state)


def _of_outbox(
    outbox: OutboxReport, what: str, to_do: str, *, is_grave: bool = False
) -> Alarm:
    return Alarm(what, to_do, is_grave=is_grave, kind="outbox", name=outbox.database)


def _above(values: Histogram, bound: float) -> int:
    pairs = zip((*values.bounds, float("inf")), values.counts, strict=False)
    return sum([count for upper, count in pairs if upper > bound])


def _count(count: int, noun: str, nouns: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def _time(ms: int) -> str:
    """Formats `40 s`, `12 min`, `3 h`, `2 d`."""
    for unit, size_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", MINUTE_MS)):
        if ms >= size_ms:
            return f"{ms // size_ms} {unit}"
    return f"{ms // 1000} s"
