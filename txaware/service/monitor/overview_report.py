"""The values of an overview, which an operator sees at a glance."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import attrs

from txaware.model.messages import BlockedBy, MessageId
from txaware.model.metrics import Traffic
from txaware.model.numbers import age, gauge, in_order
from txaware.model.reports import OutboxReport
from txaware.service.monitor.producer_overview import ProducerOverview
from txaware.service.monitor.queue_overview import QueueOverview

# So many are told at most: those that wait longest, and those furthest behind.
MOST_BLOCKED, MOST_GROUPS = 100, 200


_FIRST = in_order("topic", "generation", "ttl_s", "is_compact")


@attrs.frozen(kw_only=True, field_transformer=_FIRST)
class TopicOverview(Traffic):
    """A topic: what went in and out since the start, how old it is, who blocks it.

    `rows_behind` is how far its slowest group is behind, None without a group.
    `blocked_by` has the id of the transaction, and when the first row it keeps from
    readers was published. `expired_unseen` counts as `Metrics` does.
    """

    topic: str
    generation: int
    ttl_s: int
    is_compact: bool
    oldest_ms: int | None
    newest_ms: int | None
    rows_behind: int | None
    blocked_by: BlockedBy | None
    expired_unseen: int

    @property
    @age(
        "blocked_topic_seconds",
        f"How long the first row that they wait for has been there; the "
        f"{MOST_BLOCKED} that wait longest, with the id of the transaction, for "
        f"txaware transaction abort.",
    )
    def blocked_since_ms(self) -> int:
        """When the first row that readers wait for was published, or 0."""
        return 0 if self.blocked_by is None else self.blocked_by.since_ms


@attrs.frozen
class GroupOverview:
    """A group in a topic: how far it has come, and what it has yet to read.

    `rows` are counted up to a bound, and `has_more` says that there are more.
    `unread_since_ms` is when the first message was published that it gets next, None
    where it gets none now. `waits_for` is the transaction whose row would be its next.
    `reader_seen_ms` is when somebody last read for it, or since when nobody did.
    """

    group: str
    topic: str
    position: MessageId | None
    lag_ms: Annotated[
        int,
        gauge(
            "group_lag_seconds",
            "Time between a group's position and the last committed message. It stands "
            "still where nothing is published.",
        ),
    ]
    rows: Annotated[
        int,
        gauge(
            "group_lag_rows",
            "Rows that a group has yet to read, counted up to 1,000, and no further "
            "than to the first open transaction.",
        ),
    ]
    has_more: bool
    unread_since_ms: Annotated[
        int | None,
        age(
            "group_oldest_unread_seconds",
            "Age of the oldest message that a group may read and has not read; 0 where "
            "it has read all, or waits for a transaction.",
        ),
    ]
    waits_for: int | None
    reader_seen_ms: int | None = None


@attrs.frozen
class OpenOverview:
    """An open transaction; `blocks` are the topics whose readers wait for its end.

    `blocks_since_ms` is when the first row that they wait for was published.
    Only the embedded coordinator tells its type, its stage and when it times out.
    `principal` and `address` are of whoever began it, where that is known. That it
    `is_held` means that they surely still have it; `heard_ms` is when they last used
    it, where that is known. `prepared` is the name that it is prepared under.
    """

    id: int
    began_ms: int
    pointers: Sequence[int]
    type: str | None = None
    stage: str | None = None
    expires_ms: int | None = None
    blocks: Sequence[str] = ()
    blocks_since_ms: int | None = None
    principal: str | None = None
    address: str | None = None
    is_held: bool = False
    heard_ms: int | None = None
    prepared: str | None = None


@attrs.frozen(kw_only=True)
class Sample:
    """The state at `ms`: counts since the start, in all and of the busy topics.

    `topics` has messages in and out, and `groups`, by group and topic with a space
    between, the rows behind and the age of the oldest unread one; only those are told
    that somebody searches for. What is None was not known, or is not for whoever may
    not see all topics.
    """

    ms: int
    messages_in: int | None
    messages_out: int | None
    unread_ms: int | None
    open: int | None
    topics: Mapping[str, Sequence[int]]
    groups: Mapping[str, Sequence[int]] = attrs.field(factory=dict)


@attrs.frozen
class Alarm:
    """Something that needs somebody: `what` is wrong, and what `to_do`.

    `metric` says the same to Prometheus. `kind` and `name` are of what it is about:
    `topic`, `group` (in a `topic`), `queue` (its items in a `state`), `outbox`,
    `transaction`, `producers`, or "" for the server as a whole.
    """

    what: str
    to_do: str
    is_grave: bool = attrs.field(default=False, kw_only=True)
    kind: str = attrs.field(default="", kw_only=True)
    name: str = attrs.field(default="", kw_only=True)
    topic: str = attrs.field(default="", kw_only=True)
    state: str = attrs.field(default="", kw_only=True)
    metric: str = attrs.field(default="", kw_only=True)


@attrs.frozen(kw_only=True)
class OverviewReport:
    """The state at `now_ms`: the items most worth a look, and counts of all.

    Of topics the blocked and the most active ones, of groups those furthest behind, of
    transactions the oldest, of producers those with a transactional id and then those
    used last: where a list is shorter than its count, it is cut.
    `messages_in` and `messages_out` are those of all topics. `unjudged_topics` may be
    blocked or not: there was no time yet to look. `coordinator` and `store` are `"OK"`
    or a sentence about what is wrong. `decided_by` is `embedded`, the address of
    another coordinator, or None where that is unknown. `left_out` names what could not
    be looked at this time: `topics`, `blocked`, `groups`, `group_lags`, `topic_ages`,
    `producers`, `queues`, `tables` or `outboxes`. `tables` are the first names of those
    that have rows, and `outboxes` what relays said last of those they carry over.
    `alarms` are what else needs somebody, the gravest first.
    `history` is how things stood in the last two minutes, for who asks for it.
    """

    now_ms: int
    started_ms: int
    coordinator: str
    decided_by: str | None
    store: str
    namespaces: Sequence[str]
    topics: Sequence[TopicOverview]
    topic_count: Annotated[int, gauge("topics", "Topics that exist.")]
    blocked_count: Annotated[
        int,
        gauge(
            "blocked_topics",
            "Topics whose committed readers wait for the end of a transaction.",
        ),
    ]
    unjudged_topics: int
    groups: Sequence[GroupOverview]
    group_count: Annotated[int, gauge("groups", "Groups with a position, by topic.")]
    transactions: Sequence[OpenOverview]
    transaction_count: Annotated[
        int, gauge("open_transactions", "Transactions in progress.")
    ]
    invalid_transactions: Annotated[
        int | None,
        gauge(
            "invalid_transactions",
            "Pointers of transactions that timed out, died or were aborted by an "
            "operator, and are not yet forgotten.",
        ),
    ]
    producers: Sequence[ProducerOverview]
    producer_count: int
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    queues: Sequence[QueueOverview] = ()
    queue_count: Annotated[int, gauge("queues", "Queues that exist.")] = 0
    tables: Sequence[str] = ()
    table_count: int = 0
    outboxes: Sequence[OutboxReport] = ()
    left_out: Sequence[str] = ()
    alarms: Sequence[Alarm] = ()
    history: Sequence[Sample] = ()

    @property
    @age(
        "oldest_transaction_seconds",
        "Age of the oldest transaction in progress; 0 where there is none.",
    )
    def oldest_open_ms(self) -> int:
        """When the oldest open transaction began, or 0."""
        return min([one.began_ms for one in self.transactions], default=0)
