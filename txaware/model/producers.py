"""Producers, who publish so that a repeat stores nothing twice; and their port."""

from collections.abc import Iterable
from typing import Protocol

import attrs

from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.interfaces import CargoCounted
from txaware.model.messages import MessageId
from txaware.model.requests import Payload, Pointer
from txaware.model.signatures import PortVerb

# Numbers count on from 0 after the greatest.
SEQUENCES = 2**31
MAX_EPOCH = 2**15 - 1
MAX_PRODUCER_ID = 2**63 - 1
LONGEST_KEY = 10_000


class KeyReused(BadRequest):
    """A key that names one request came with another one; nothing was stored."""

    def __init__(self) -> None:
        super().__init__(
            "the Idempotency-Key has been used for another request; each request has "
            "its own"
        )


@attrs.frozen
class ProducerIdentity:
    """The id of a producer and its epoch; a newer epoch fences all older ones.

    A producer `by_client` is opened by its first publish, under an id that its client
    drew. It is forgotten after an hour without any. One that is a sender has several
    requests under way: one that comes before its turn is `SequenceAhead`, and does not
    end the producer. Of its messages only the first id is answered.
    """

    producer_id: int
    epoch: int = 0
    by_client: bool = False
    is_sender: bool = False


@attrs.frozen
class ProducerOpened:
    """The answer to a producer that begins; `commits` counts those of its name."""

    producer_id: int
    epoch: int
    commits: int = 0

    @property
    def identity(self) -> ProducerIdentity:
        """Identifies the producer and its instance, in each publish."""
        return ProducerIdentity(self.producer_id, self.epoch)


@attrs.frozen
class Entered:
    """Counts a transactional id's commits, as its producer's transaction sees them.

    `is_done` tells whether the key that was named has been committed before, and
    `is_written` whether the rows are written, and need not go with the commit.
    """

    commits: int
    is_done: bool = False
    is_written: bool = True


@attrs.frozen
class Begun:
    """A transaction of a producer that was begun and entered at once."""

    transaction: Transaction
    entered: Entered


class BeginsTransactions(Protocol):
    """A service whose coordinator begins the transactions of producers, in one call."""

    def begin_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        timeout_s: float | None = None,
        key: str | None = None,
    ) -> Begun:
        """Begins a short transaction, and enters it; see `enter_transaction`.

        If it raises, nothing is left but what the next transaction of the id ends.
        """


@attrs.frozen
class ProducedTopic:
    """Holds the last request of a producer that a topic has stored.

    `next_sequence` is the number of the next message.
    """

    topic: str
    epoch: int
    next_sequence: int
    last_id: MessageId
    last_ms: int


@attrs.frozen
class KnownProducer:
    """A producer that the store knows, for operators.

    `has_ended` is True after a gap in its sequences: it publishes nothing more.
    `topics` is filled in by `describe_producer`, not in a list of all. `transaction` is
    the one that an instance of its transactional id began last, since the store was
    opened; it may be over.
    """

    producer_id: int
    epoch: int
    owner: str | None
    opened_ms: int
    last_ms: int
    has_ended: bool = False
    transactional_id: str | None = None
    topics: tuple[ProducedTopic, ...] = ()
    transaction: int | None = None


def checked_identity(producer: object) -> ProducerIdentity:
    """Returns an identity whose numbers can be one's; `BadRequest` for others."""
    if not isinstance(producer, ProducerIdentity):
        raise BadRequest(f"producer is a ProducerIdentity, not {producer!r:.100}")
    checked_producer_id(producer.producer_id)
    _checked("an epoch", producer.epoch, MAX_EPOCH)
    return producer


def checked_producer_id(producer_id: object) -> int:
    """Returns the id of a producer; `BadRequest` for what is none."""
    return _checked("a producer id", producer_id, MAX_PRODUCER_ID)


def checked_key(key: object) -> str:
    """Returns a key of what is done once; `BadRequest` for what is no text."""
    if isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and _is_unicode(key):
        return key
    raise BadRequest(
        f"a key is a text of 1 to {LONGEST_KEY} characters, not {key!r:.100}"
    )


def checked_left_key(key: object) -> str | None:
    """Returns the key of a transaction that is left, which may have had none."""
    return key if key is None or key == "" else checked_key(key)


def _is_unicode(text: str) -> bool:
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def checked_sequence(sequence: object) -> int:
    """Returns the number of a request's first message; `BadRequest` for others."""
    return _checked("a sequence", sequence, SEQUENCES - 1)


def _checked(what: str, value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise BadRequest(f"{what} is a whole number from 0 to {most}, not {value!r}")
    return value


class CarriesCommits(Protocol):
    """The part of a service whose count of a producer's commits a commit carries."""

    def producer_cargo(
        self,
        coordinator: Coordinator,
        transactional_id: str,
        producer: "ProducerIdentity",
        tx: Transaction,
        *,
        key: str | None = None,
    ) -> CargoCounted | None:
        """Returns the rows of a transaction; None where they go before the commit."""


class ProducerService(Protocol):
    """The service of producers, whose repeated publishes store nothing twice.

    The calls are the same embedded, over HTTP and on HBase. Any number of threads may
    call. A call that raises `OutOfOrderSequence` or `ProducerFenced` stored nothing.
    """

    @property
    def carrier(self) -> CarriesCommits | None:
        """Makes cargoes of its rows; None where no commit carries any."""

    def open_producer(self, transactional_id: str | None = None) -> ProducerOpened:
        """Opens a new producer with an id of its own; that is durable.

        With a `transactional_id` it opens a new instance of that producer. Older ones
        are fenced, and the transactions that they left open have ended.
        """

    def enter_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        transaction: Transaction,
        *,
        key: str | None = None,
    ) -> Entered:
        """Makes a transaction that of a producer; returns the commits that it sees.

        From here on it counts as one more when it commits, and a newer instance ends
        it. A `key` is committed with it, unless it was committed before.
        """

    def leave_transaction(
        self, transactional_id: str, transaction: Pointer, *, key: str | None = None
    ) -> None:
        """Takes back what `enter_transaction` did, for a rollback."""

    def producer_commits(
        self, transactional_id: str, producer: ProducerIdentity | None = None
    ) -> int:
        """Returns how many transactions of a transactional id have committed.

        If a `producer` is named and is not its newest instance, this raises
        `ProducerFenced`.
        """

    def publish_once(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        producer: ProducerIdentity,
        sequence: int,
    ) -> list[MessageId]:
        """Publishes in one piece, unless it did already; returns the ids either way.

        `sequence` is the number of the first message, counted from 0 for each producer
        and topic; after 2,147,483,647 comes 0. Messages that are among the last five
        requests are a repeat. A gap ends the producer. An expired or forgotten one is
        refused as fenced.
        """

    def producers(self) -> list[KnownProducer]:
        """Returns all producers that the store knows, by their ids."""

    def describe_producer(self, producer_id: int) -> KnownProducer:
        """Returns one producer, with its topics."""

    def forget_producer(self, producer_id: int) -> None:
        """Forgets a producer; what it publishes later is refused as fenced."""


class ProducerMethods:
    """The verbs of `ProducerService` that clients have outside of transactions."""

    open_producer = PortVerb(ProducerService.open_producer)
    publish_once = PortVerb(ProducerService.publish_once)
    producers = PortVerb(ProducerService.producers)
    describe_producer = PortVerb(ProducerService.describe_producer)
    forget_producer = PortVerb(ProducerService.forget_producer)
