"""Work queues as values: their settings, their pipes' names, items and counts."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, TypedDict, cast, get_args

import attrs

from txaware.errors import BadRequest, QueueExists
from txaware.model.clock import ClockMs
from txaware.model.numbers import counter, gauge
from txaware.model.topics import (
    MAX_TTL_S,
    QueueName,
    Topic,
    TopicName,
    checked_ttl_s,
    data_prefix,
    differences,
)

Order = Literal["mostly", "strict", "key"]
ORDERS: tuple[Order, ...] = ("mostly", "strict", "key")
# How an item of a queue may stand. The dead ones wait in its dead-letter queue.
ItemState = Literal["waiting", "in_work", "delayed", "dead"]
ITEM_STATES: tuple[ItemState, ...] = get_args(ItemState)
# The name of a queue's own row among topics begins so; no topic's name can.
MARK = "."
PIPE_BYTES = 8
GENERATION_BYTES = 4
MAX_LEASE_S = 7 * 86_400
MAX_DELAY_S = 10 * 365 * 86_400
MAX_PRIORITY = 9
MOST_POPPED = 10_000
# One call lends pipes for so many items.
MOST_LENT = 10_000
MOST_TEXT = 1_000
LEASE_S, MAX_PUSHES, MAX_PUSH_TIME_S, MAX_POP_WIDTH = 30.0, 100, 600.0, 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_PIPE = re.compile(
    r"([A-Za-z0-9_]+):(\.[A-Za-z0-9_-]+)\.([0-9]{1,10})\.([0-9]{1,18})", re.ASCII
)


def time_of(time_ms: int) -> datetime:
    """Returns a time in ms since the epoch as an aware datetime."""
    return _EPOCH + timedelta(milliseconds=time_ms)


def row_name(queue: object) -> TopicName:
    """Returns the name under which a queue's own row and its items are kept."""
    name = QueueName.parse(queue)
    return TopicName(MARK + name.name, name.namespace)


def queue_of(name: TopicName) -> str:
    """Returns the name of the queue that `row_name` made this name of."""
    return str(TopicName(name.name.removeprefix(MARK), name.namespace))


def stored_name(namespace: str, name: str) -> TopicName:
    """Returns the name of a row among topics, which may be that of a queue."""
    parsed = TopicName.parse(f"{namespace}:{name.removeprefix(MARK)}")
    return TopicName(name, parsed.namespace)


def is_queue(name: TopicName) -> bool:
    """Tells whether a row among topics is that of a queue."""
    return name.name.startswith(MARK)


@attrs.frozen
class QueueDescriptor:
    """The settings of a queue, as it was created, or last updated.

    An item that is neither committed nor rolled back within `lease_s` comes again.
    After `max_deliveries` it goes to `dead_letter_queue`. `order` is `mostly` (items of
    one pusher come in order), `strict` (all of them) or `key` (those of one key, one
    after the other). `ttl_s` never removes what waits.
    """

    name: str
    generation: int
    lease_s: float = LEASE_S
    max_deliveries: int | None = None
    dead_letter_queue: str | None = None
    order: Order = "mostly"
    max_pushes_per_pipe: int = MAX_PUSHES
    max_push_time_of_pipe_s: float = MAX_PUSH_TIME_S
    max_pop_width: int = MAX_POP_WIDTH
    ttl_s: int | None = None
    is_paused: bool = False

    @property
    def is_ordered(self) -> bool:
        """True when all items go through one pipe, to keep an order between pushers."""
        return self.order != "mostly"

    @property
    def dead_letters(self) -> str:
        """The queue that takes what was delivered too often."""
        return self.dead_letter_queue or f"{self.name}-dead"

    def agreeing(self, named: Mapping[str, Any]) -> Self:
        """Returns the queue if it is as was named; else `QueueExists` says how it is.

        `named` are settings that are checked; those that it lacks may be any.
        """
        triples = ((key, getattr(self, key), value) for key, value in named.items())
        if differs := differences(triples):
            raise QueueExists(
                f"queue {self.name} exists already, and its {differs}; update_queue "
                f"changes it"
            )
        return self

    def changed(self, options: Mapping[str, Any]) -> Self:
        """Returns the queue with the settings that are named; else a `BadRequest`.

        Its order stays: items that wait lie in pipes that were filled for it.
        """
        wanted = described(self.name, options, verb="update_queue")
        named = {key: getattr(wanted, key) for key in options}
        if named.get("order", self.order) != self.order:
            raise BadRequest(
                f"queue {self.name} keeps its order {self.order}: create another queue "
                f"with order {wanted.order}, or delete this one first"
            )
        return attrs.evolve(self, **named)

    @classmethod
    def of(cls, topic: Topic) -> Self:
        """Reads the settings from the row of a queue."""
        kept: Mapping[str, str] = topic.properties
        most, dead = kept.get("max_deliveries"), kept.get("dead_letter_queue")
        return cls(
            queue_of(topic.topic),
            topic.generation,
            float(kept["lease_s"]),
            None if most is None else int(most),
            dead,
            cast(Order, kept["order"]),
            int(kept["max_pushes_per_pipe"]),
            float(kept["max_push_time_of_pipe_s"]),
            int(kept["max_pop_width"]),
            None if "ttl_s" not in kept else int(kept["ttl_s"]),
            "paused" in kept,
        )

    def topic(self) -> Topic:
        """Returns the row of the queue, as the table of topics keeps it."""
        kept = {
            "lease_s": repr(self.lease_s),
            "order": self.order,
            "max_pushes_per_pipe": str(self.max_pushes_per_pipe),
            "max_push_time_of_pipe_s": repr(self.max_push_time_of_pipe_s),
            "max_pop_width": str(self.max_pop_width),
        }
        optional = {
            "max_deliveries": self.max_deliveries,
            "dead_letter_queue": self.dead_letter_queue,
            "ttl_s": self.ttl_s,
            "paused": 1 if self.is_paused else None,
        }
        kept |= {name: str(value) for name, value in optional.items() if value}
        return Topic(row_name(self.name), self.generation, MAX_TTL_S, kept)


# What a queue is created with; it is paused once it is there.
SETTINGS = tuple(
    field.name
    for field in attrs.fields(QueueDescriptor)
    if field.name not in ("name", "generation", "is_paused")
)


class _Kept:
    """The value of a setting that an update does not name."""

    def __repr__(self) -> str:
        return "KEPT"


KEPT: Any = _Kept()


def described(
    name: str, options: Mapping[str, Any], *, verb: str = "create_queue"
) -> QueueDescriptor:
    """Returns a queue as the caller describes it; else a `BadRequest`."""
    if unknown := options.keys() - {*SETTINGS}:
        raise TypeError(
            f"{verb}() has no option {', '.join(sorted(unknown))}, but "
            f"{', '.join(SETTINGS)}"
        )
    made = QueueDescriptor(str(QueueName.parse(name)), 1, **options)
    for option, most in (
        ("lease_s", MAX_LEASE_S),
        ("max_push_time_of_pipe_s", MAX_DELAY_S),
    ):
        checked_seconds(option, getattr(made, option), most=most)
    for option in ("max_pushes_per_pipe", "max_pop_width"):
        checked_count(option, getattr(made, option))
    if made.max_deliveries is not None:
        checked_count("max_deliveries", made.max_deliveries)
    if made.order not in ORDERS:
        raise BadRequest(f"order is one of {', '.join(ORDERS)}, not {made.order!r}")
    if made.ttl_s is not None:
        made = attrs.evolve(made, ttl_s=checked_ttl_s(made.ttl_s))
    if made.dead_letter_queue is not None:
        dead = str(QueueName.parse(made.dead_letter_queue))
        if dead == made.name:
            raise BadRequest(f"queue {dead} cannot be its own dead-letter queue")
        made = attrs.evolve(made, dead_letter_queue=dead)
    return attrs.evolve(
        made,
        lease_s=float(made.lease_s),
        max_push_time_of_pipe_s=float(made.max_push_time_of_pipe_s),
    )


def checked_seconds(
    name: str, seconds: object, *, most: float, least: float | None = None
) -> float:
    """Returns a time in seconds, above 0 or at least `least`; else a `BadRequest`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadRequest(f"{name} is a number of seconds, not {seconds!r}")
    is_enough = seconds > 0 if least is None else seconds >= least
    if not (is_enough and seconds <= most):
        bound = "above 0" if least is None else f"at least {least:g}"
        raise BadRequest(f"{name} is {bound} and at most {most:.15g}, not {seconds!r}")
    return float(seconds)


def checked_delay_s(delay_s: object) -> float:
    """Returns a delay; raises `BadRequest` for a negative one, and for no number."""
    return checked_seconds("delay_s", delay_s, most=MAX_DELAY_S, least=0)


def delay_until_s(at: datetime | None, delay_s: float, clock_ms: ClockMs) -> float:
    """Returns the delay of what is due `at` a time, or the one that was named.

    What was due in the past has no delay. A time without a zone, or beside a delay, is
    a `BadRequest`.
    """
    if at is None:
        return delay_s
    if delay_s:
        raise BadRequest("a push has a delay or a time at which it is due, not both")
    return max(0, due_ms_of(at) - clock_ms()) / 1000


def due_ms_of(at: object) -> int:
    """Returns a time as ms since 1970, rounded up; else a `BadRequest`."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise BadRequest(
            f"at is a datetime with a time zone, as datetime.now(UTC), not {at!r:.100}"
        )
    return -((_EPOCH - at) // _MS)


def checked_count(name: str, count: object, *, most: int = 2**31 - 1) -> int:
    """Returns a whole number above 0; raises `BadRequest` for anything else."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= most:
        raise BadRequest(f"{name} is a whole number from 1 to {most}, not {count!r}")
    return count


def checked_priority(priority: object) -> int:
    """Returns a priority from 0, the usual one, to 9, the first to be popped."""
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise BadRequest(f"a priority is a whole number, not {priority!r}")
    if not 0 <= priority <= MAX_PRIORITY:
        raise BadRequest(f"a priority is from 0 to {MAX_PRIORITY}, not {priority}")
    return priority


def checked_item_state(state: object) -> ItemState:
    """Returns how items stand that are to be shown; else a `BadRequest`."""
    if state not in ITEM_STATES:
        raise BadRequest(f"state is one of {', '.join(ITEM_STATES)}, not {state!r:.50}")
    return state


def checked_items(items: object) -> list[str]:
    """Returns ids of items, at most as many as a pop; else a `BadRequest`."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise BadRequest(f"items are the ids of jobs, not {items!r:.100}")
    found = list(items)
    if len(found) > MOST_POPPED:
        raise BadRequest(f"{len(found)} items are more than {MOST_POPPED}")
    return [checked_item(item) for item in found]


def checked_item(item: object) -> str:
    """Returns the id of a job as far as it is a text; else a `BadRequest`."""
    if not isinstance(item, str):
        raise BadRequest(f"{item!r:.100} is no job's id")
    return item


def checked_lease(lease: object) -> str:
    """Returns the lease of a job as far as it is a text; else a `BadRequest`."""
    if not isinstance(lease, str):
        raise BadRequest(f"the lease of a job is a text, not {lease!r:.100}")
    return lease


class PushOptions(TypedDict):
    """The options of a push, checked."""

    pusher: str
    delay_s: float
    priority: int


def checked_push(pusher: object, delay_s: object, priority: object) -> PushOptions:
    """Returns the options of a push; raises `BadRequest` for wrong ones."""
    return {
        "pusher": checked_text("pusher", pusher),
        "delay_s": checked_delay_s(delay_s),
        "priority": checked_priority(priority),
    }


def checked_text(name: str, text: object, *, most: int = MOST_TEXT) -> str:
    """Returns a text of a bounded size, without a zero byte."""
    if not isinstance(text, str) or "\0" in text:
        raise BadRequest(f"{name} is a text, not {text!r:.100}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name} is no text: {text!r:.100}") from error
    return text[:most]


@attrs.frozen(cache_hash=True)
class PipeName(TopicName):
    """The name of a pipe, by which its messages are written like those of a topic."""

    generation: int = 1
    pipe: int = 0

    @property
    def queue(self) -> str:
        """The name of the queue that it is a pipe of."""
        return queue_of(self)

    @property
    def in_namespace(self) -> str:
        """The name without its namespace."""
        return f"{self.name}.{self.generation}.{self.pipe}"

    def __str__(self) -> str:
        return f"{self.namespace}:{self.in_namespace}"


def pipe_of(text: object) -> PipeName | None:
    """Returns the pipe that a name is of, as pushes are told it; None for others."""
    if not isinstance(text, str) or ":." not in text:
        return None
    found = _PIPE.fullmatch(text)
    if found is None:
        return None
    return PipeName(found[2], found[1], int(found[3]), int(found[4]))


@attrs.frozen
class PipeTopic(Topic):
    """A pipe as the topic that its messages are written to; it has no row."""

    @property
    def prefix(self) -> bytes:
        """The beginning of the keys of all rows of the pipe."""
        name = cast(PipeName, self.topic)
        return pipe_prefix(name, name.generation, name.pipe)


def pipe_prefix(name: TopicName, generation: int, pipe: int) -> bytes:
    """Returns the beginning of the keys of the items in one pipe."""
    return data_prefix(name, generation) + pipe.to_bytes(PIPE_BYTES, "big")


@attrs.define
class Popped:
    """An item as it is handed out, with the lease to end it by.

    `lease_until_ms` is None where the lease ends with a transaction. Nobody changes
    one, but to make it frozen takes thrice as long, and a pop of many makes many.
    """

    id: str
    payload: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    deliveries: int
    pushed_ms: int
    lease: str
    lease_until_ms: int | None


@attrs.frozen
class LeasedJob:
    """Names a job that its popper still has, by its item and its lease."""

    id: str
    lease: str


def checked_leased(job: object) -> LeasedJob | None:
    """Returns the name of a job, or None; else a `BadRequest`."""
    if job is None:
        return None
    if not isinstance(job, LeasedJob):
        raise BadRequest(f"a job is named by its id and its lease, not {job!r:.100}")
    checked_item(job.id)
    checked_lease(job.lease)
    return job


def check_commits(
    commits: LeasedJob | None, *, wait_s: float, transaction: object
) -> None:
    """Refuses a pop that commits a job and waits, or is in a transaction."""
    if commits is not None and (wait_s or transaction is not None):
        raise BadRequest(
            "a pop that commits a job does not wait, and is in no transaction: pop "
            "once more to wait"
        )


@attrs.frozen
class PipeShare:
    """Room for so many items in a pipe, lent to a transaction."""

    pipe: str
    items: int


@attrs.frozen
class Waiting:
    """An item that waits, as `peek` shows it; `deliveries` counts those before."""

    id: str
    payload: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    deliveries: int
    pushed_ms: int

    @property
    def pushed_at(self) -> datetime:
        """The time of the push, in UTC."""
        return time_of(self.pushed_ms)


# So much of payloads comes with one look at items; the first item comes in any case.
MOST_BROWSED_BYTES = 8 << 20


@attrs.frozen
class QueueItem(Waiting):
    """An item as `browse` shows it, whoever has it.

    `popper` has it since `since_ms` and until `until_ms`, or with a `transaction` until
    the end of that. A delayed one waits until `due_ms`. `error` is why it was last
    given back, or why it died, with the `traceback` where that is known. Of a dead one
    `deliveries` and `headers` are those that it died with, and `id` and `pushed_ms` are
    those of its letter.
    """

    popper: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    transaction: int | None = None
    due_ms: int | None = None
    error: str = ""
    traceback: str = ""


@attrs.frozen
class JobInWork:
    """A job that somebody has now, and since when.

    `until_ms` is None where its lease ends with the `transaction`.
    """

    id: str
    popper: str
    since_ms: int
    until_ms: int | None
    deliveries: int
    transaction: int | None


@attrs.frozen
class PipeStats:
    """The counts of one pipe, and its `state`.

    That is `delayed`, `push active`, `push finished`, or `finished and empty`: nothing
    waits in it, and after the end of its last job the next pop or clean-up removes it.
    """

    id: int
    state: str
    created_ms: int
    priority: int
    pushed: int
    popped: int
    committed: int
    rolled_back: int
    depth: int
    in_work: int


@attrs.frozen
class QueueStats:
    """The counts of a queue since it was created or truncated, and how it stands now.

    `pushed` are committed pushes, `rolled_back` explicit ones. `depth` waits, delayed
    items included (`delayed`); `in_work` is leased. `pipes` are those that exist, and
    `open_pipes` those that still take pushes. The figures of `..._per_s` and
    `average_...` are of the last minute, or of the time since the start. An item waits
    from its push to its first pop. `jobs` are those that are longest in work, and
    `oldest_pipes` the first pipes, up to 100 each.
    """

    pushed: Annotated[int, counter("queue_pushed", "Items whose push has committed.")]
    popped: Annotated[int, counter("queue_popped", "Jobs that were handed out.")]
    committed: Annotated[int, counter("queue_committed", "Jobs that ended for good.")]
    rolled_back: Annotated[
        int, counter("queue_rolled_back", "Jobs that were given back.")
    ]
    expired_leases: Annotated[
        int,
        counter(
            "queue_expired_leases", "Jobs that came again as their lease was over."
        ),
    ]
    expired: Annotated[
        int, counter("queue_expired", "Items that nobody popped in their time to live.")
    ]
    dead_letters: Annotated[
        int, counter("queue_dead_letters", "Items that were delivered too often.")
    ]
    depth: Annotated[
        int, gauge("queue_depth", "Items that wait, delayed ones included.")
    ]
    delayed: Annotated[int, gauge("queue_delayed", "Items that wait for their time.")]
    in_work: Annotated[int, gauge("queue_in_work", "Jobs that somebody has.")]
    oldest_age_s: Annotated[
        float,
        gauge("queue_oldest_seconds", "Age of the oldest item that waits and is due."),
    ]
    pipes: int
    open_pipes: int
    is_paused: Annotated[
        bool, gauge("queue_paused", "Whether pops get nothing, 1 or 0.")
    ]
    pushed_per_s: float = 0.0
    popped_per_s: float = 0.0
    committed_per_s: float = 0.0
    average_wait_s: Annotated[
        float,
        gauge(
            "queue_wait_seconds",
            "How long items waited for their first pop, on average of the last minute.",
        ),
    ] = 0.0
    average_work_s: Annotated[
        float,
        gauge(
            "queue_work_seconds",
            "How long jobs took that were done in the last minute, on average.",
        ),
    ] = 0.0
    jobs: tuple[JobInWork, ...] = ()
    oldest_pipes: tuple[PipeStats, ...] = ()
