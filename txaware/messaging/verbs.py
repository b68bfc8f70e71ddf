"""The verbs of a `Messaging`, passed on to the services that perform them."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

from coordinator.context import current_transaction
from coordinator.interfaces import Coordinator
from coordinator.optional_ports import note_writers
from coordinator.prepared_transactions import PreparedTransaction, two_phases
from coordinator.transaction import Transaction
from txaware.errors import PartitionNeeded
from txaware.model.group_service import GroupMethods, GroupService
from txaware.model.interfaces import (
    UNSAID,
    Isolation,
    MessageMethods,
    MessagingService,
    OperatorMethods,
    OperatorService,
)
from txaware.model.latest import Latest, LatestPage
from txaware.model.messages import MessageId, Page, PublishResponse, Receipt
from txaware.model.partitions import partition_name
from txaware.model.producers import ProducerService
from txaware.model.queue_service import QueueService
from txaware.model.reports import Progress
from txaware.model.requests import Payload, Pointer, checked_positions
from txaware.model.signatures import BlockingMethods, passed_on, passes_on, signed_as
from txaware.model.traced_messages import sent
from txaware.publish import WrittenByHand, written_by_hand
from txaware.service.transfer.backup import Backup, save


@passes_on(to="_service")
class Verbs(BlockingMethods, MessageMethods):
    """A `MessagingService` over another one, which knows the block it is called in."""

    def __init__(self, service: MessagingService, coordinator: Coordinator) -> None:
        self._service = service
        self._coordinator = coordinator

    @property
    def carrier(self) -> None:
        """None: what is published by hand is written at once, and not by a commit."""

    @property
    @abstractmethod
    def shares_journal(self) -> bool:
        """True when one batch has rows of the store and records of the coordinator."""

    def partitions(self, topic: str) -> int:
        """Returns how many partitions a topic has, each with an order of its own."""
        return self._service.topic(topic).partitions

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
        service = by_hand or self._service
        options: dict[str, Any] = {"transaction": transaction, "receipts": receipts}
        if not isinstance(messages, list):
            return service.publish(topic, messages, **options)
        with sent("publish", topic, messages) as carried:
            return service.publish(topic, carried, **options)

    @signed_as(MessagingService.store)
    def store(self, topic: str, messages: Iterable[Payload], **options: Any) -> Receipt:
        current_transaction(self._coordinator)  # refuses a loop inside of a block
        return self._service.store(topic, messages, **options)

    @signed_as(MessagingService.poll)
    def poll(
        self,
        topic: str,
        *,
        transaction: Transaction | None = None,
        isolation: Isolation = UNSAID,
        **options: Any,
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
            topic, transaction=transaction, isolation=isolation, **options
        )

    def latest_page(
        self,
        topic: str,
        *,
        start: MessageId | None = None,
        transaction: Transaction | None = None,
    ) -> LatestPage:
        """Reads the newest message of each key in a piece of a topic, behind `start`.

        Inside a `with` block of this thread or task the block's transaction is used.
        """
        seen_by = self._of_block("latest_page", transaction)
        return self._service.latest_page(topic, start=start, transaction=seen_by)

    def latest(self, topic: str, *, transaction: Transaction | None = None) -> Latest:
        """Reads the newest committed message of each key, as of a snapshot.

        Inside a `with` block of this thread or task it is the block's snapshot. A key
        whose newest message has expired is not there. A topic that is `compact` keeps
        these messages beyond its time to live.
        """
        seen_by = self._of_block("latest", transaction)
        try:
            return self._latest(topic, seen_by)
        except PartitionNeeded:
            if seen_by is not None:
                return self._latest_of_all(topic, seen_by)
        own = self._coordinator.start_short()  # one snapshot for all partitions
        try:
            return self._latest_of_all(topic, own)
        finally:
            self._coordinator.abort(own)

    def _latest_of_all(self, topic: str, seen_by: Transaction) -> Latest:
        numbers = range(self._service.topic(topic).partitions)
        return Latest.joined(
            {n: self._latest(partition_name(topic, n), seen_by) for n in numbers}
        )

    def _latest(self, topic: str, seen_by: Transaction | None) -> Latest:
        found = Latest()
        while not found.is_whole:
            place = found.place
            found.add(
                self._service.latest_page(topic, start=place, transaction=seen_by)
            )
        return found

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

    def save_positions(
        self, group: str, positions: Mapping[str, MessageId], *, transaction: Pointer
    ) -> None:
        """Moves a group in several topics, `{topic: id}`, with the commit.

        All are checked before the first is saved. As with `save_position`, a `with`
        block of that transaction takes the moves back when it fails.
        """
        for topic, position in checked_positions(group, positions).items():
            self.save_position(group, topic, position, transaction=transaction)

    def _by_hand(self, transaction: Pointer) -> WrittenByHand | None:
        return written_by_hand(
            self._service,
            self._coordinator,
            transaction,
            shares_journal=self.shares_journal,
        )

    def persist_stored(self, transaction: Transaction) -> None:
        """Persists a transaction before other processes store rows of it here.

        It does what `coordinator.persist` does, which is for rows elsewhere. Rows in
        the store that shares the coordinator's journal are marked before anything is
        forgotten.
        """
        if self.shares_journal:
            note_writers(self._coordinator, transaction, ())
        self._coordinator.persist(transaction)


class PreparedVerbs:
    """The verbs for transactions that `tx.prepare(name)` left prepared."""

    _coordinator: Coordinator

    def prepared(self) -> list[PreparedTransaction]:
        """Returns the prepared transactions, the oldest first.

        Over the network these are the caller's own; operators see all.
        """
        return two_phases(self._coordinator).prepared()

    def commit_prepared(self, name: str) -> None:
        """Commits a prepared transaction, from any process.

        Raises `PreparedNotFound` if none has that name (any more).
        """
        two_phases(self._coordinator).commit_prepared(name)

    def rollback_prepared(self, name: str) -> None:
        """Rolls a prepared transaction back: nobody ever sees what it wrote.

        Raises `PreparedNotFound` if none has that name (any more).
        """
        two_phases(self._coordinator).rollback_prepared(name)


class QueueVerbs:
    """The verbs that make, list and delete queues, and that end what was handled."""

    def __init__(self, queues: QueueService) -> None:
        self._queue_service = queues

    create_queue = passed_on(QueueService.create_queue, to="_queue_service")
    update_queue = passed_on(QueueService.update_queue, to="_queue_service")
    queues = passed_on(QueueService.queues, to="_queue_service")
    delete_queue = passed_on(QueueService.delete_queue, to="_queue_service")
    end_handled = passed_on(QueueService.end_handled, to="_queue_service")


@passes_on(to="_group_service")
class GroupVerbs(BlockingMethods, GroupMethods):
    """The verbs that make, show, rewind, assign and delete groups with members."""

    def __init__(self, groups: GroupService) -> None:
        self._group_service = groups


@passes_on(to="_administration")
class OperatorVerbs(BlockingMethods, OperatorMethods):
    """The verbs for operators, and for participants whose rows `prune` respects."""

    def __init__(
        self, administration: OperatorService, producers: ProducerService
    ) -> None:
        self._administration = administration
        self._producers = producers

    @property
    def administration(self) -> OperatorService:
        """The verbs of operators, with the steps of a clean-up that processes share."""
        return self._administration

    check = passed_on(OperatorService.check, to="_administration")
    clean_up = passed_on(OperatorService.clean_up, to="_administration")
    register_keeper = passed_on(OperatorService.register_keeper, to="_administration")

    producers = passed_on(ProducerService.producers, to="_producers")
    describe_producer = passed_on(ProducerService.describe_producer, to="_producers")
    forget_producer = passed_on(ProducerService.forget_producer, to="_producers")

    def backup(self, file: BinaryIO, *, progress: Progress | None = None) -> Backup:
        """Copies everything that is committed now to a file, while the data is in use.

        `txaware restore` makes a data directory of the file. `progress` is told how
        many rows were copied, and about what part of all rows that is.
        """
        return save(self._administration.backup(), file, progress=progress)
