"""The metrics of a store: their names, and their help."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.metrics_core import Metric

from txaware.http.metrics.metric_makers import age_s, counter, gauge, histogram
from txaware.http.metrics.moment import Moment
from txaware.http.metrics.topic_labels import (
    DATABASE,
    FIELDS,
    MOST_TOPICS,
    OTHER,
    QUEUE,
)
from txaware.http.metrics.transaction_counts import transactions
from txaware.model.metrics import WriteCounters
from txaware.service.monitor.queue_overview import MOST_QUEUES

MOST_BLOCKED, MOST_GROUPS = 100, 200

_OF_TOPICS = (
    f"The {MOST_TOPICS} topics that came first have a label of their own, all others "
    f"are summed as {OTHER}."
)
_COUNTERS = {
    "messages_in": ("messages_published", "Messages that were published."),
    "bytes_in": ("published_bytes", "Bytes of payload that were published."),
    "messages_stored": ("messages_stored", "Payloads stored ahead of their commit."),
    "messages_out": ("messages_polled", "Messages that were delivered."),
    "bytes_out": ("polled_bytes", "Bytes of payload that were delivered."),
    "rollbacks": ("rollbacks", "Publishes that were taken back."),
}


def topic_counts(moment: Moment) -> Iterator[Metric]:
    """Yields messages and bytes that went into topics and out of them."""
    counts = moment.by_label()
    for at, field in enumerate(FIELDS):
        name, text = _COUNTERS[field]
        yield counter(
            name,
            f"{text} {_OF_TOPICS}",
            {(topic,): values[at] for topic, values in counts.items()},
            "topic",
        )


def topic_ages(moment: Moment) -> Iterator[Metric]:
    """Yields the age of each topic's oldest message."""
    yield gauge(
        "topic_oldest_seconds",
        f"Age of the oldest message within the time to live; 0 for an empty topic. "
        f"The {MOST_TOPICS} topics that came first.",
        {
            (topic,): age_s(
                moment.now_ms, found.first.publish_time_ms if found.first else 0
            )
            for topic, found in moment.bounds().items()
        },
        "topic",
    )


def topic_rows(moment: Moment) -> Iterator[Metric]:
    """Yields how many rows each topic holds."""
    yield gauge(
        "topic_rows",
        f"Rows that a topic holds within its time to live, rolled back ones included; "
        f"stored payloads count as the one reference that published them. Counted some "
        f"tens of thousands at a scrape, so that it rises to the truth after a start. "
        f"The {MOST_TOPICS} topics that came first.",
        {(topic,): rows for topic, rows in moment.rows().items()},
        "topic",
    )


def topics(moment: Moment) -> Iterator[Metric]:
    """Yields how many topics there are."""
    report = moment.report()
    if "topics" not in report.left_out:
        yield gauge("topics", "Topics that exist.", {(): report.topic_count})


def expired_unseen(moment: Moment) -> Iterator[Metric]:
    """Yields the clean-ups that removed what blocked readers had yet to see."""
    counts = moment.counts()
    unseen = sorted(counts.expired_unseen.items(), key=lambda item: -item[1])
    yield counter(
        "expired_unseen",
        "Clean-ups that removed what a blocked reader had yet to see.",
        {(topic,): count for topic, count in unseen[:MOST_TOPICS]}
        | _rest(count for _, count in unseen[MOST_TOPICS:]),
        "topic",
    )


def blocked(moment: Moment) -> Iterator[Metric]:
    """Yields the topics whose readers wait, and the transactions that they wait for."""
    report = moment.report()
    found = [topic for topic in report.topics if topic.blocked_by is not None]
    found.sort(key=lambda topic: topic.blocked_by.since_ms if topic.blocked_by else 0)
    yield gauge(
        "blocked_topics",
        "Topics whose committed readers wait for the end of a transaction.",
        {(): report.blocked_count},
    )
    yield gauge(
        "blocked_topic_seconds",
        f"How long the first row that they wait for has been there; the {MOST_BLOCKED} "
        f"that wait longest, with the id of the transaction, for txaware transactions "
        f"abort.",
        {
            (topic.topic, str(topic.blocked_by.pointer)): age_s(
                moment.now_ms, topic.blocked_by.since_ms
            )
            for topic in found[:MOST_BLOCKED]
            if topic.blocked_by is not None
        },
        *("topic", "transaction"),
    )


def stable_positions(moment: Moment) -> Iterator[Metric]:
    """Yields how far committed readers may come; nothing for topics not looked at."""
    yield gauge(
        "topic_last_stable_seconds",
        f"The last stable position of a topic, as a time in seconds since 1970: where "
        f"committed readers stop, or where the next message goes if nothing stops "
        f"them. It stands still while a transaction keeps them waiting. "
        f"The {MOST_TOPICS} topics that came first.",
        {(topic,): ms / 1000 for topic, ms in moment.stable_ms().items()},
        "topic",
    )


def groups(moment: Moment) -> Iterator[Metric]:
    """Yields how far consumer groups are behind."""
    report = moment.report()
    shown = report.groups[:MOST_GROUPS]
    which = f"The {MOST_GROUPS} groups that are furthest behind."
    if "groups" not in report.left_out:
        yield gauge(
            "groups", "Groups with a position, by topic.", {(): report.group_count}
        )
    yield gauge(
        "group_lag_seconds",
        f"Time between a group's position and the last committed message. It stands "
        f"still where nothing is published. {which}",
        {(group.group, group.topic): group.lag_ms / 1000 for group in shown},
        *("group", "topic"),
    )
    yield gauge(
        "group_oldest_unread_seconds",
        f"Age of the oldest message that a group may read and has not read; 0 where it "
        f"has read all, or waits for a transaction. {which}",
        {
            (group.group, group.topic): age_s(moment.now_ms, group.unread_since_ms or 0)
            for group in shown
        },
        *("group", "topic"),
    )
    yield gauge(
        "group_lag_rows",
        f"Rows that a group has yet to read, counted up to 1,000, and no further than "
        f"to the first open transaction. {which}",
        {(group.group, group.topic): group.rows for group in shown},
        *("group", "topic"),
    )


def latencies(moment: Moment) -> Iterator[Metric]:
    """Yields how long the service takes, without the network."""
    counts = moment.counts()
    yield histogram(
        "publish_seconds",
        "How long a publish took; one in a transaction may only wait for its commit.",
        {(): counts.publish_latency_s},
    )
    yield histogram(
        "poll_seconds",
        "How long a look for messages took, without the time it waited for one.",
        {(): counts.poll_latency_s},
    )


def producers(moment: Moment) -> Iterator[Metric]:
    """Makes the metrics of producers, whose repeats store nothing."""
    found = moment.counts().producers
    yield gauge("live_producers", "Producers that are known.", {(): found.live})
    yield gauge(
        "active_transactional_ids",
        "Transactional ids that are known, each with its producer.",
        {(): found.transactional_ids},
    )
    yield counter(
        "producer_repeats",
        "Publishes that were stored before, and stored nothing again.",
        {(): found.repeated},
    )
    yield counter(
        "fenced_publishes",
        "Publishes, begins and commits refused, as their producer is fenced or not "
        "known.",
        {(): found.fenced},
    )
    yield counter(
        "out_of_order_publishes",
        "Publishes refused, as their sequence is not the next one.",
        {(): found.out_of_order},
    )


def queues(moment: Moment) -> Iterator[Metric]:
    """Yields how queues stand, and what they counted since each was created."""
    report = moment.report()
    shown = {(one.queue,): one.stats for one in report.queues}
    which = f"The {MOST_QUEUES} queues that are in use, or come first."

    def of(name: str) -> dict[tuple[str, ...], float]:
        return {labels: getattr(stats, name) for labels, stats in shown.items()}

    if "queues" not in report.left_out:
        yield gauge("queues", "Queues that exist.", {(): report.queue_count})
    for field, (name, text) in _QUEUE_GAUGES.items():
        yield gauge(f"queue_{name}", f"{text} {which}", of(field), QUEUE)
    for field, text in _QUEUE_COUNTERS.items():
        yield counter(f"queue_{field}", f"{text} {which}", of(field), QUEUE)


def outboxes(moment: Moment) -> Iterator[Metric]:
    """Yields what waits in outboxes of users' databases, as their relays said last."""
    found = moment.outboxes()

    def of(name: str) -> dict[tuple[str, ...], float]:
        return {(one.database, one.outbox): getattr(one, name) for one in found}

    labels = (DATABASE, "outbox")
    yield gauge(
        "outbox_waiting",
        "Messages and items that wait in the outbox of a database, as its relay saw it "
        "last.",
        of("waiting"),
        *labels,
    )
    yield gauge(
        "outbox_set_aside",
        "Messages and items that its relay could not carry over, and set aside there.",
        of("set_aside"),
        *labels,
    )
    yield gauge(
        "outbox_last_look_seconds",
        "When a relay looked there last, in seconds since 1970.",
        {key: looked_ms / 1000 for key, looked_ms in of("looked_ms").items()},
        *labels,
    )


_QUEUE_GAUGES = {
    "depth": ("depth", "Items that wait, delayed ones included."),
    "delayed": ("delayed", "Items that wait for their time."),
    "in_work": ("in_work", "Jobs that somebody has."),
    "oldest_age_s": ("oldest_seconds", "Age of the oldest item that waits and is due."),
    "average_wait_s": (
        "wait_seconds",
        "How long items waited for their first pop, on average of the last minute.",
    ),
    "average_work_s": (
        "work_seconds",
        "How long jobs took that were done in the last minute, on average.",
    ),
    "is_paused": ("paused", "Whether pops get nothing, 1 or 0."),
}
_QUEUE_COUNTERS = {
    "pushed": "Items whose push has committed.",
    "popped": "Jobs that were handed out.",
    "committed": "Jobs that ended for good.",
    "rolled_back": "Jobs that were given back.",
    "expired_leases": "Jobs that came again as their lease was over.",
    "expired": "Items that nobody popped in their time to live.",
    "dead_letters": "Items that were delivered too often.",
}


def writes(moment: Moment) -> Iterator[Metric]:
    """Yields what goes to disk, nothing of which is data in memory."""
    found = moment.counts().writes or WriteCounters().snapshot()
    yield histogram(
        "batch_rows",
        "Rows that went to disk together; so many shared one sync.",
        {(): found.rows},
    )
    yield histogram(
        "batch_transactions",
        "Commits that shared one sync: the size of a group commit.",
        {(): found.transactions},
    )
    yield histogram("sync_seconds", "How long a synced write took.", {(): found.sync_s})
    yield counter(
        "failed_writes", "Batches that could not be written.", {(): found.failed}
    )


def cache(moment: Moment) -> Iterator[Metric]:
    """Yields the hits, misses and bytes of the cache of rows that were read."""
    counts = moment.counts()
    yield counter("cache_hits", "Reads from the cache.", {(): counts.cache_hits})
    yield counter("cache_misses", "Reads past it.", {(): counts.cache_misses})
    yield gauge("cache_bytes", "What the cache takes.", {(): counts.cache_bytes})


def retention(moment: Moment) -> Iterator[Metric]:
    """Yields what clean-ups do."""
    found = moment.counts().retention
    yield counter(
        "retention_rows",
        "Rows that clean-ups removed, or marked as never committed.",
        {(reason,): count for reason, count in found.removed.items()},
        "reason",
    )
    yield counter("retention_runs", "Clean-ups that ended.", {(): found.runs})
    yield counter(
        "retention_failed_topics",
        "Topics that a clean-up could not go through.",
        {(): found.failed_topics},
    )
    yield gauge(
        "retention_topics",
        "Topics of the clean-up that runs, or ran last: done, and all.",
        {("done",): found.topics_done, ("all",): found.topics},
        "which",
    )
    yield counter(
        "retention_forgotten",
        "Invalid transactions that the coordinator forgot, as nobody can need them.",
        {(): found.forgotten},
    )
    yield gauge(
        "invalid_transactions_held_back",
        "Invalid transactions of more than a day ago that cannot be forgotten; txaware "
        "transactions list says why.",
        {(): found.held_back_count},
    )
    if found.last_ended_ms is not None:
        yield gauge(
            "retention_last_end_seconds",
            "When the last clean-up ended, in seconds since 1970.",
            {(): found.last_ended_ms / 1000},
        )
        yield gauge(
            "retention_last_duration_seconds",
            "How long it took.",
            {(): found.last_took_s},
        )


FAMILIES: tuple[Callable[[Moment], Iterable[Metric]], ...] = (
    *(topic_counts, topic_ages, topic_rows, topics, expired_unseen),
    *(
        blocked,
        stable_positions,
        groups,
        transactions,
        producers,
        queues,
        outboxes,
        latencies,
        writes,
        cache,
        retention,
    ),
)


def _rest(counts: Iterable[int]) -> dict[tuple[str, ...], float]:
    total = sum(counts)
    return {(OTHER,): total}
