"""The verbs of the messaging service, passed on to the service that performs them."""

from collections.abc import Iterable, Mapping

from coordinator.context import current_transaction
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.interfaces import COMMITTED, UNSAID, Isolation, MessagingService
from txaware.messages import Bounds, MessageId, Page, PublishResponse, Receipt
from txaware.publish import WrittenByHand, written_by_hand
from txaware.requests import Payload, Pointer, Start
from txaware.topics import Topic


class Verbs:
    """A `MessagingService` over another one, which knows the block it is called in."""

    def __init__(
        self,
        service: MessagingService,
        coordinator: Coordinator,
        *,
        shares_journal: bool = False,
    ) -> None:
        self._service = service
        self._coordinator = coordinator
        self._shares_journal = shares_journal

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""
        return self._service.create_topic(topic, ttl_s=ttl_s, properties=properties)

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> Topic:
        """Changes what is named and leaves the rest; None removes a property."""
        return self._service.update_topic(topic, ttl_s=ttl_s, properties=properties)

    def topic(self, topic: str) -> Topic:
        """Returns the topic as it is now."""
        return self._service.topic(topic)

    def topics(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's topics, in the order of their keys."""
        return self._service.topics(namespace)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""
        self._service.delete_topic(topic)

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction returns what `rollback` takes.

        The call itself joins no transaction; a `publisher` does. If `transaction` is
        that of a `with` block of this thread or task, the block takes the publish back
        when it fails. For any other transaction the caller has to call `rollback`.
        """
        by_hand = None if transaction is None else self._by_hand(transaction)
        return (by_hand or self._service).publish(
            topic, messages, transaction=transaction, receipts=receipts
        )

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""
        current_transaction(self._coordinator)  # refuses a loop inside of a block
        return self._service.store(
            topic, messages, transaction=transaction, attempt=attempt
        )

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all polls in a transaction."""
        self._service.rollback(topic, response)

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: Isolation = UNSAID,
        wait_s: float = 0,
    ) -> Page:
        """Polls messages from `start`: an id, a time in ms, or None for the beginning.

        With a transaction the page stops at the first row that its snapshot cannot
        decide. Inside a `with` block of this thread or task the block's transaction is
        used, unless `isolation` is named. `"committed"` looks with a fresh snapshot.
        `"uncommitted"` delivers everything, also what is rolled back; it is the default
        outside of blocks. `wait_s` waits for the first message; it is for polls without
        a transaction only.
        """
        if isolation is UNSAID:
            transaction = self._of_block("poll", transaction)
        return self._service.poll(
            topic,
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
            isolation=isolation,
            wait_s=wait_s,
        )

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Reads a group's position, as the transaction or a fresh snapshot sees it.

        Inside a `with` block of this thread or task the block's transaction is used.
        """
        seen_by = self._of_block("position", transaction)
        return self._service.position(group, topic, transaction=seen_by)

    def _of_block(self, call: str, named: Transaction | None) -> Transaction | None:
        """Returns the transaction that is named, or that of the block of this call."""
        if named is not None:
            return named
        block = current_transaction(self._coordinator)
        return None if block is None else block.snapshot_for(call)

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what the transaction saved.

        A `with` block of that transaction takes the move back when it fails.
        """
        by_hand = self._by_hand(transaction) or self._service
        by_hand.save_position(group, topic, position, transaction=transaction)

    def _by_hand(self, transaction: Pointer) -> WrittenByHand | None:
        return written_by_hand(
            self._service,
            self._coordinator,
            transaction,
            shares_journal=self._shares_journal,
        )

    def bounds(self, topic: str) -> Bounds:
        """Reads the first and last id, committed or not, and the place of the next."""
        return self._service.bounds(topic)

    def wait(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        timeout_s: float,
    ) -> bool:
        """Waits until there is a message to poll; returns False after the time-out."""
        return self._service.wait(
            topic,
            start=start,
            inclusive=inclusive,
            isolation=isolation,
            timeout_s=timeout_s,
        )
