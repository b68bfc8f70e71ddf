"""A view of transactions, from the coordinator and from topics."""

from collections.abc import Collection, Iterable
from contextlib import suppress

import attrs

from coordinator.transaction_status import (
    HERE,
    INVALID,
    NEVER,
    OPEN,
    Standing,
    standing,
    standings,
)
from txaware.cli.show import NOTHING, counted, duration_text, time_text
from txaware.errors import NotAuthorized
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.messages import MessageId, PublishResponse
from txaware.model.partitions import shown_partitions
from txaware.model.producers import KnownProducer
from txaware.model.topics import TopicName
from txaware.service.monitor.inspection import IN_PROGRESS

# The rows of a topic that are read at once.
PIECE_ROWS = 1000


@attrs.frozen
class Known:
    """The state of a transaction, as it is shown.

    `producer` is the transactional producer that has it, if one began it.
    """

    standing: Standing
    producer: KnownProducer | None = None

    @property
    def transaction_id(self) -> int:
        """The id of the transaction, which is its first pointer."""
        return self.standing.transaction_id

    @property
    def state(self) -> str:
        """The state: open, invalid, ended or never given out."""
        return self.standing.state

    @property
    def pointers(self) -> tuple[int, ...]:
        """All pointers that it wrote with."""
        return self.standing.pointers

    @property
    def began_ms(self) -> int:
        """The time at which it began, as ids are times."""
        return self.standing.began_ms

    @property
    def age_s(self) -> float:
        """The time since it began."""
        return max(system_clock_ms() - self.began_ms, 0) / 1000

    @property
    def expires_ms(self) -> int | None:
        """The time at which it times out, if that is known."""
        return self.standing.expires_ms

    @property
    def timeout_s(self) -> float | None:
        """The time that it may be open, if that is known."""
        if self.expires_ms is None:
            return None
        return max(self.expires_ms - self.began_ms, 0) / 1000

    @property
    def heard_s(self) -> float | None:
        """The time since its client last used it, if that is known."""
        heard_ms = self.standing.heard_ms
        return None if heard_ms is None else max(system_clock_ms() - heard_ms, 0) / 1000

    @property
    def owner_text(self) -> str:
        """Words for whether the client that began it still has it."""
        if self.standing.is_held:
            return "is there, and has it"
        if self.heard_s is None:
            return "not known to have it"
        return f"not known to have it; last used {duration_text(self.heard_s)} ago"

    @property
    def _producer_text(self) -> str:
        if self.producer is None:
            return NOTHING
        producer = self.producer
        return (
            f"{self.producer_text}, id {producer.producer_id}, epoch {producer.epoch}"
        )

    @property
    def _timeout_text(self) -> str:
        return NOTHING if self.timeout_s is None else duration_text(self.timeout_s)

    @property
    def stage(self) -> str:
        """The state, and for an open transaction how far its end has come."""
        return self.standing.stage or self.state

    @property
    def began_by(self) -> str:
        """The program that began it, and its place, as far as known."""
        standing = self.standing
        if standing.address == HERE:
            return "the coordinator's own process"
        if standing.principal is not None:
            at = "" if standing.address is None else f" at {standing.address}"
            return f"{standing.principal}{at}"
        if standing.state == NEVER:
            return NOTHING
        # Only the embedded coordinator, whose servers know who came, tells a type.
        return "not known" + " since the restart" * (standing.type is not None)

    @property
    def producer_text(self) -> str:
        """The transactional id of its producer, if one began it."""
        return (self.producer and self.producer.transactional_id) or NOTHING

    @property
    def producer_columns(self) -> tuple[object, ...]:
        """The columns of `PRODUCER_HEADER`."""
        if self.producer is None:
            return NOTHING, NOTHING, NOTHING
        return self.producer_text, self.producer.producer_id, self.producer.epoch

    @property
    def is_of_this_program(self) -> bool:
        """True when a producer of the program that owns the data has it."""
        return self.producer is not None and self.standing.address == HERE

    def is_chosen(
        self,
        *,
        older_than_s: float | None = None,
        principal: str | None = None,
        producer: str | None = None,
    ) -> bool:
        """Tells whether it is older than that, and begun by those."""
        is_old = older_than_s is None or self.age_s > older_than_s
        begun_by = principal in (None, self.standing.principal)
        return is_old and begun_by and producer in (None, self.producer_text)

    def has_any_of(self, pointers: Collection[int] | None) -> bool:
        """Tells whether it wrote with one of these; None stands for any."""
        return pointers is None or any(one in pointers for one in self.pointers)

    def as_json(self) -> dict[str, object]:
        """Returns it as `--json` prints it."""
        expires_ms = self.expires_ms
        return {
            "transaction": self.transaction_id,
            "state": self.state,
            "type": self.standing.type,
            "began": time_text(self.began_ms),
            "age_s": self.age_s,
            "times_out": None if expires_ms is None else time_text(expires_ms),
            "pointers": list(self.pointers),
            "principal": self.standing.principal,
            "address": self.standing.address,
            "timeout_s": self.timeout_s,
            "is_held": self.standing.is_held,
            "heard_s": self.heard_s,
            "producer": self.producer and self.producer.transactional_id,
            "producer_id": self.producer and self.producer.producer_id,
            "producer_epoch": self.producer and self.producer.epoch,
        }

    def as_row(self) -> tuple[object, ...]:
        """Returns it as a row of a table."""
        return (
            self.transaction_id,
            self.stage,
            self.standing.type or NOTHING,
            time_text(self.began_ms),
            duration_text(self.age_s),
            time_text(self.expires_ms),
            self.began_by,
            *self.producer_columns,
        )

    def as_fields(self) -> list[tuple[str, object]]:
        """Returns it as `describe` shows it; only an open one has an age."""
        standing = self.standing
        return [
            ("type", standing.type or NOTHING),
            ("began", time_text(self.began_ms)),
            ("began by", self.began_by),
            ("producer", self._producer_text),
            ("age", NOTHING if standing.stage is None else duration_text(self.age_s)),
            ("times out", time_text(self.expires_ms)),
            ("time-out", NOTHING if standing.stage is None else self._timeout_text),
            ("its client", NOTHING if standing.state != OPEN else self.owner_text),
            ("pointers", ", ".join(map(str, self.pointers))),
            ("changed keys", NOTHING if standing.changes is None else standing.changes),
        ]


# Columns are called as Kafka's operators know them.
PRODUCER_HEADER = ("TransactionalId", "ProducerId", "ProducerEpoch")
HEADER = (
    *("Transaction", "TransactionState", "Type", "StartTime", "Duration", "TimesOut"),
    *("BegunBy", *PRODUCER_HEADER),
)


def open_ones(messaging: Messaging) -> list[Known]:
    """Returns the transactions in progress now, the oldest first."""
    return _with_producers(messaging, standings(messaging.coordinator, OPEN))


def invalid_ones(messaging: Messaging) -> list[Known]:
    """Returns the invalid transactions, whose writes nobody will see, oldest first."""
    return [Known(one) for one in standings(messaging.coordinator, INVALID)]


def known(messaging: Messaging, pointer: int) -> Known:
    """Finds the transaction that writes, or wrote, with that pointer."""
    found = standing(messaging.coordinator, pointer)
    if found.state != OPEN:
        return Known(found)
    [with_producer] = _with_producers(messaging, [found])
    return with_producer


def _with_producers(messaging: Messaging, found: list[Standing]) -> list[Known]:
    """Adds the producers, as far as this caller may see them."""
    known: dict[int, KnownProducer] = {}
    with suppress(NotAuthorized):
        for producer in messaging.producers() if found else ():
            if producer.transaction is not None:
                known[producer.transaction] = producer
    return [Known(one, known.get(one.transaction_id)) for one in found]


@attrs.frozen
class WaitingRows:
    """Rows of a transaction in a topic that keep readers waiting.

    `first` is the id of the first one, and `last_ms` when the last one was published.
    """

    topic: str
    pointer: int
    first: MessageId
    last_ms: int
    rows: int = 1

    @property
    def text(self) -> str:
        """Words for where they are."""
        return (
            f"{counted(self.rows, 'row')} from {self.first} on, the last of "
            f"{time_text(self.last_ms)}"
        )

    def as_json(self) -> dict[str, object]:
        """Returns it as `--json` prints it."""
        return {
            "topic": self.topic,
            "pointer": self.pointer,
            "start": str(self.first),
            "last": time_text(self.last_ms),
            "rows": self.rows,
        }


def waiting_rows(messaging: Messaging, topics: Iterable[str]) -> list[WaitingRows]:
    """Finds rows that are undecided; reads topics only from the first such row on."""
    return [one for topic in topics for one in _waiting_in(messaging, topic)]


def _waiting_in(messaging: Messaging, topic: str) -> Iterable[WaitingRows]:
    found: dict[int, WaitingRows] = {}
    end = messaging.bounds(topic).next
    start = messaging.bounds(topic, isolation="committed").next
    while start < end:
        rows = messaging.administration.peek(topic, start=start, limit=PIECE_ROWS)
        for row in rows:
            if row.state != IN_PROGRESS or row.pointer is None:
                continue
            known, time_ms = found.get(row.pointer), row.id.publish_time_ms
            found[row.pointer] = (
                WaitingRows(topic, row.pointer, row.id, time_ms)
                if known is None
                else attrs.evolve(known, last_ms=time_ms, rows=known.rows + 1)
            )
        if len(rows) < PIECE_ROWS:
            break
        start = MessageId.after_payloads(rows[-1].id.row_key).after()
    return found.values()


def all_topics(messaging: Messaging, namespaces: Iterable[str]) -> list[str]:
    """Returns the full names of all topics of these namespaces, or of partitions."""
    return [
        name
        for namespace in namespaces
        for topic in messaging.topics(namespace)
        for name, _ in shown_partitions(
            messaging.topic(str(TopicName(topic, namespace)))
        )
    ]


@attrs.frozen
class Hanging:
    """A transaction that nobody has any more, and the rows that it left."""

    known: Known
    since_ms: int
    waiting: tuple[WaitingRows, ...]

    @property
    def age_s(self) -> float:
        """The time that it has been hanging for, at most."""
        return max(system_clock_ms() - self.since_ms, 0) / 1000

    @property
    def topics(self) -> list[str]:
        """The topics whose readers wait."""
        return sorted({one.topic for one in self.waiting})

    def as_json(self) -> dict[str, object]:
        """Returns it as `--json` prints it."""
        return self.known.as_json() | {
            "began": time_text(self.since_ms),
            "age_s": self.age_s,
            "topics": self.topics,
            "waiting": [one.as_json() for one in self.waiting],
        }

    def as_row(self) -> tuple[object, ...]:
        """Returns it as a row of a table."""
        first = min([one.first for one in self.waiting], default=None)
        last_ms = max([one.last_ms for one in self.waiting], default=None)
        return (
            ", ".join(self.topics) or NOTHING,
            self.known.transaction_id,
            *self.known.producer_columns,
            first or NOTHING,
            time_text(last_ms),
            time_text(self.since_ms),
            duration_text(self.age_s),
            time_text(self.known.expires_ms),
            self.known.began_by,
        )


HANGING_HEADER = (
    *("Topics", "Transaction", *PRODUCER_HEADER, "StartId", "LastTimestamp"),
    *("StartTime", "Duration", "TimesOut", "BegunBy"),
)


def hanging(
    messaging: Messaging, topics: Iterable[str], older_than_s: float
) -> list[Hanging]:
    """Finds transactions that hang for longer than that, and their rows in topics.

    Rows with an id that nobody was ever given are one's that began with the first row.
    """
    before_ms = system_clock_ms() - int(older_than_s * 1000)
    opened, waiting = open_ones(messaging), waiting_rows(messaging, topics)
    rows: dict[int, tuple[WaitingRows, ...]] = {}
    for one in waiting:
        rows[one.pointer] = (*rows.get(one.pointer, ()), one)
    found = []
    for known_one in opened:
        left = [row for p in known_one.pointers for row in rows.pop(p, ())]
        is_hanging = known_one.standing.is_hanging(before_ms=before_ms)
        if is_hanging and not known_one.is_of_this_program:
            found.append(Hanging(known_one, known_one.began_ms, tuple(left)))
    for pointer, strange in sorted(rows.items()):
        since_ms = min(one.first.publish_time_ms for one in strange)
        stranger = known(messaging, pointer)
        if stranger.state == NEVER and since_ms < before_ms:
            found.append(Hanging(stranger, since_ms, strange))
    return found


def roll_back_all(
    messaging: Messaging, pointer: int, namespaces: Iterable[str]
) -> list[str]:
    """Rolls back rows of a pointer that nobody began; returns their topics."""
    found = waiting_rows(messaging, all_topics(messaging, namespaces))
    topics = [one.topic for one in found if one.pointer == pointer]
    for topic in topics:
        end_ms = messaging.bounds(topic).next.publish_time_ms + 1
        messaging.rollback(topic, PublishResponse(pointer, 0, 0, end_ms, 0))
    return topics
