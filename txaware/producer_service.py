"""The port of producers: the service that stores no publish of theirs twice."""

from collections.abc import Iterable
from typing import Protocol

from coordinator.transaction import Transaction
from txaware.messages import MessageId
from txaware.producers import (
    Entered,
    KnownProducer,
    ProducerIdentity,
    ProducerOpened,
)
from txaware.requests import Payload, Pointer


class ProducerService(Protocol):
    """The service of producers, whose repeated publishes store nothing twice.

    The calls are the same embedded, over HTTP and on HBase. Any number of threads may
    call. A call that raises `OutOfOrderSequence` or `ProducerFenced` stored nothing.
    """

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
