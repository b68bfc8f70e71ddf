"""The messages of a transaction: an outbox for each topic, flushed last of all."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator, Participant
from coordinator.transaction import Transaction
from txaware.errors import (
    MisusedTransaction,
    ParticipantFailed,
    TopicNotFound,
    leaves_no_doubt,
)
from txaware.model.interfaces import CargoCounted, MessagingService, Payload
from txaware.model.messages import PublishResponse, Receipt
from txaware.model.queues import PushOptions, pipe_of
from txaware.model.requests import Payloads


class TopicBuffer:
    """Messages in the order of publishing, and their size in memory."""

    __slots__ = ("_checked", "messages", "size_bytes")

    def __init__(self) -> None:
        self.messages: list[Payload] = []
        self.size_bytes = 0
        self._checked: list[Payloads] = []

    @property
    def contents(self) -> Iterable[Payload]:
        """The messages; where all came in lists, as they were checked then."""
        if self._checked and sum(map(len, self._checked)) == len(self.messages):
            return Payloads.joined(self._checked)
        return self.messages

    def add(self, message: Payload, size_bytes: int) -> None:
        """Adds a message."""
        self.messages.append(message)
        self.size_bytes += size_bytes

    def add_all(self, messages: list[Payload], checked: Payloads, size: int) -> None:
        """Adds messages, which were checked together."""
        self.messages += messages
        self._checked.append(checked)
        self.size_bytes += size

    def first(self, limit_bytes: int) -> list[Payload]:
        """Returns the first messages, of about `limit_bytes`; at least one."""
        count = len(self.messages)
        fitting = count * limit_bytes // max(1, self.size_bytes)
        return self.messages[: max(1, min(count, fitting))]

    def drop(self, count: int) -> None:
        """Forgets the first messages."""
        self.size_bytes -= self.size_bytes * count // len(self.messages)
        del self.messages[:count]
        self._checked = []


ATTEMPT_BYTES = 16
# The size of one store, about: LevelDB writes what comes at once to one file, and maps
# all of it.
STORE_BYTES = 1 << 20


class TopicOutbox:
    """The messages for one topic and one commit: in memory, or stored ahead of it.

    A call publishes the messages or a reference to the stored ones, and never both,
    since a reference expands where it stands. `in_doubt` is True after a call whose
    answer never came: then the transaction can only be rolled back.
    """

    __slots__ = (
        "_responses",
        "_service",
        "_topic",
        "_tx",
        "buffer",
        "in_doubt",
        "receipts",
    )

    def __init__(self, service: MessagingService, topic: str, tx: Transaction) -> None:
        self.in_doubt = False
        self._service = service
        self._topic = topic
        self._tx = tx
        self.buffer = TopicBuffer()
        self.receipts: list[Receipt] = []
        self._responses: list[PublishResponse] = []

    def store(self) -> int:
        """Stores the buffer ahead of the commit; answers how many bytes that freed."""
        freed_bytes = self.buffer.size_bytes
        if not self.buffer.messages:
            return 0
        self._in_doubt(self._store)
        return freed_bytes

    def _store(self) -> None:
        buffer = self.buffer
        while buffer.messages:
            messages = buffer.first(STORE_BYTES)
            # Each store is an attempt of its own, so that a reference never names the
            # rows of a store whose answer was lost.
            receipt = self._service.store(
                self._topic,
                messages,
                transaction=self._tx,
                attempt=os.urandom(ATTEMPT_BYTES),
            )
            self.receipts.append(receipt)
            buffer.drop(len(messages))

    def add_stored(self, receipts: list[Receipt]) -> None:
        """Takes what others stored for this transaction, behind what was added before.

        The payloads of a reference come in the order in which they were stored. So call
        this without receipts before the others store.
        """
        self.store()
        self.receipts += receipts

    def store_rest(self) -> None:
        """Stores the buffer, if something was stored before it."""
        if self.receipts:
            self.store()

    def publish(self) -> None:
        """Publishes the messages or the reference, whichever it is, in one call.

        What comes after it is published by a call of its own.
        """
        if not self.receipts and not self.buffer.messages:
            return
        self._in_doubt(self._publish)

    def _publish(self) -> None:
        response = self._published()
        if response is None:
            raise ParticipantFailed(
                f"publishing to {self._topic} answered nothing to roll back"
            )
        self._responses.append(response)
        self.buffer, self.receipts = TopicBuffer(), []

    def rollback(self) -> None:
        """Hides what was published, if the answer to that came."""
        try:
            for response in self._responses:
                self._service.rollback(self._topic, response)
        except TopicNotFound:
            # The topic was deleted meanwhile, and its rows with it.
            return

    def _published(self) -> PublishResponse | None:
        if not self.receipts:
            return self._service.publish(
                self._topic, self.buffer.contents, transaction=self._tx
            )
        return self._service.publish(
            self._topic, [], transaction=self._tx, receipts=self.receipts
        )

    def _in_doubt(self, call: Callable[[], None]) -> None:
        """Makes a call; the doubt begins before it, as an interrupt may come."""
        if self.in_doubt:
            raise ParticipantFailed(
                f"the answer to an earlier write to {self._topic} was lost, so "
                f"transaction {self._tx.transaction_id} can only be rolled back"
            )
        self.in_doubt = True
        try:
            call()
        except BaseException as error:
            self.in_doubt = not leaves_no_doubt(error)
            raise
        self.in_doubt = False


class TakesItems(ABC):
    """A stand-in for a `TransactionPublisher` that takes items of queues as such.

    To others items are messages to a pipe, which they are told of before. `looks_up`
    is True when each topic and queue has to be there, and is asked for.
    """

    looks_up = True

    @abstractmethod
    def push(self, queue: str, items: Sequence[Payload], options: PushOptions) -> None:
        """Takes checked items, with checked options."""


class TransactionPublisher(Participant):
    """The participant that publishes with the commit, one for a whole transaction.

    It makes one `publish` for each topic, in the order of their first use, after every
    other participant has written. It changes no keys, so that it never conflicts. It
    uses the first pointer of its transaction, whatever checkpoints follow.

    The messages in memory stay below the limit that `publish` names, for one topic and
    for all of them together; above it messages are stored ahead of the commit.
    """

    flushes_last = True
    waits_for_commit = True

    def __init__(
        self,
        service: MessagingService,
        *,
        shares_journal: bool,
    ) -> None:
        self.shares_journal = shares_journal
        self._service = service
        self._tx: Transaction | None = None
        self._outboxes: dict[str, TopicOutbox] = {}
        self._held_bytes = 0
        self._limit_bytes = 0
        self._cargo: CargoCounted | None = None

    @property
    def transaction_aware_name(self) -> str:  # type: ignore[override]
        """The name for messages and logs, with the topics in it."""
        return f"publisher of {', '.join(self._outboxes) or 'nothing'}"

    def start_tx(self, tx: Transaction) -> None:
        """Begins to hold messages for a transaction."""
        if self._outboxes:
            self._let_go()
        self._tx = tx

    def publish(
        self, topic: str, message: Payload, *, size_bytes: int, limit_bytes: int
    ) -> None:
        """Holds a checked message for the commit.

        When this raises, the message was not taken: a limit was reached, and what was
        held before could not be stored.
        """
        if limit_bytes > self._limit_bytes:
            self._limit_bytes = limit_bytes
        # Without a call where the topic has had a message.
        known = topic in self._outboxes
        outbox = self._outboxes[topic] if known else self._outbox(topic)
        if outbox.buffer.size_bytes + size_bytes > limit_bytes:
            self._held_bytes -= outbox.store()
        while self._held_bytes and self._held_bytes + size_bytes > self._limit_bytes:
            self._held_bytes -= self._largest().store()
        outbox.buffer.add(message, size_bytes)
        self._held_bytes += size_bytes

    def publish_all(
        self,
        topic: str,
        messages: list[Payload],
        checked: Payloads,
        *,
        size_bytes: int,
        limit_bytes: int,
    ) -> bool:
        """Holds messages that were checked; False, and none taken, if some go ahead."""
        outbox = self._outbox(topic)
        limit_of_all = max(limit_bytes, self._limit_bytes)
        if (
            outbox.buffer.size_bytes + size_bytes > limit_bytes
            or self._held_bytes + size_bytes > limit_of_all
        ):
            return False
        self._limit_bytes = limit_of_all
        outbox.buffer.add_all(messages, checked, size_bytes)
        self._held_bytes += size_bytes
        return True

    def publish_stored(self, topic: str, receipts: list[Receipt]) -> None:
        """Takes what others have stored, to be published with the commit."""
        outbox = self._outbox(topic)
        held_bytes = outbox.buffer.size_bytes
        outbox.add_stored(receipts)
        self._held_bytes -= held_bytes

    def store_held(self) -> None:
        """Stores what is in memory, so that it comes before what others store later."""
        for outbox in self._outboxes.values():
            self._held_bytes -= outbox.store()

    def flush_early(
        self, context: TransactionContext, topic: str | None = None
    ) -> None:
        """Publishes what is held for a topic, or for all, before the commit.

        Who reads what is not committed gets it at once. Items of queues stay: nobody
        pops them before the commit.
        """
        context.require_writable(self)
        outboxes = [
            outbox
            for name, outbox in self._outboxes.items()
            if topic in (None, name) and pipe_of(name) is None
        ]
        for outbox in outboxes:
            held_bytes = outbox.buffer.size_bytes
            outbox.store_rest()
            outbox.publish()
            self._held_bytes -= held_bytes

    def commit_tx(self) -> bool:
        """Publishes everything; one call for each topic."""
        # Readers wait from the first row that is published to the commit, so whatever
        # takes long comes before it.
        for outbox in self._outboxes.values():
            outbox.store_rest()
        for outbox in self._outboxes.values():
            outbox.publish()
        return True

    def commit_cargo(self, coordinator: Coordinator) -> CargoCounted | None:
        """Returns the messages for the commit to carry; None if they go before it."""
        carrier, tx = self._service.carrier, self._tx
        if carrier is None or tx is None or not self._outboxes:
            return None
        messages: list[tuple[str, Iterable[Payload]]] = []
        for topic, outbox in self._outboxes.items():
            if outbox.receipts or outbox.in_doubt or not outbox.buffer.messages:
                return None
            messages += ((topic, outbox.buffer.contents),)
        self._cargo = carrier.cargo(coordinator, tx, messages)
        return self._cargo

    def post_tx_commit(self) -> None:
        """Forgets all messages of the transaction."""
        cargo = self._cargo
        self._let_go()
        if cargo is not None:
            cargo.count()

    def post_tx_prepare(self) -> None:
        """Forgets all messages of the transaction, which are written."""
        self._let_go()

    def rollback_tx(self) -> bool:
        """Rolls back every topic; False if an answer was lost and rows may be left."""
        failures: list[Exception] = []
        for outbox in self._outboxes.values():
            try:
                outbox.rollback()
            except Exception as error:
                failures.append(error)
        certain = not any(outbox.in_doubt for outbox in self._outboxes.values())
        self._let_go()
        if failures:
            raise ExceptionGroup("not all messages could be rolled back", failures)
        return certain

    def _outbox(self, topic: str) -> TopicOutbox:
        if topic not in self._outboxes:
            if self._tx is None:
                raise MisusedTransaction("this publisher takes part in no transaction")
            self._outboxes[topic] = TopicOutbox(self._service, topic, self._tx)
        return self._outboxes[topic]

    def _largest(self) -> TopicOutbox:
        return max(self._outboxes.values(), key=lambda outbox: outbox.buffer.size_bytes)

    def _let_go(self) -> None:
        self._tx = self._cargo = None
        self._outboxes = {}
        self._held_bytes = self._limit_bytes = 0
