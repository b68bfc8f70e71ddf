"""One topic in one transaction: buffered, stored when too large, published once."""

import os
from collections.abc import Callable

from coordinator.transaction import Transaction
from txaware.errors import ParticipantFailed, TopicNotFound, changed_nothing
from txaware.interfaces import MessagingService, Payload
from txaware.messages import PublishResponse, Receipt
from txaware.publish.buffer import TopicBuffer

ATTEMPT_BYTES = 16
# Of one store, about: LevelDB makes a file of what comes at once, and maps all of it.
STORE_BYTES = 1 << 20


class Outbox:
    """What goes to one topic with one commit: messages, or a reference to stored ones.

    Never both, since a reference expands where it stands. `in_doubt` says that a call
    was sent whose answer never came: from then on there is only the way back.
    """

    __slots__ = (
        "_buffer",
        "_receipts",
        "_response",
        "_service",
        "_topic",
        "_tx",
        "in_doubt",
    )

    def __init__(self, service: MessagingService, topic: str, tx: Transaction) -> None:
        self.in_doubt = False
        self._service = service
        self._topic = topic
        self._tx = tx
        self._buffer = TopicBuffer()
        self._receipts: list[Receipt] = []
        self._response: PublishResponse | None = None

    @property
    def size_bytes(self) -> int:
        """What is in memory."""
        return self._buffer.size_bytes

    def add(self, message: Payload, size_bytes: int) -> None:
        """Buffers a message."""
        self._buffer.add(message, size_bytes)

    def store(self) -> int:
        """Stores what is buffered, ahead of the commit; how many bytes that freed."""
        freed_bytes = self._buffer.size_bytes
        if not self._buffer.messages:
            return 0
        self._in_doubt(self._store)
        return freed_bytes

    def _store(self) -> None:
        buffer = self._buffer
        while buffer.messages:
            messages = buffer.first(STORE_BYTES)
            # An attempt of its own: rows of a store whose answer was lost are then
            # never among those that a reference names.
            receipt = self._service.store(
                self._topic,
                messages,
                transaction=self._tx,
                attempt=os.urandom(ATTEMPT_BYTES),
            )
            self._receipts.append(receipt)
            buffer.drop(len(messages))

    def add_stored(self, receipts: list[Receipt]) -> None:
        """Takes what others stored for this transaction, behind what was added before.

        Payloads of a reference come in the order in which they were stored, so call it
        without receipts before they store.
        """
        self.store()
        self._receipts += receipts

    def store_rest(self) -> None:
        """Stores what is buffered, where something was stored before it."""
        if self._receipts:
            self.store()

    def publish(self) -> None:
        """Publishes the messages or the reference, whichever it is, in one call."""
        if not self._receipts and not self._buffer.messages:
            return
        self._in_doubt(self._publish)

    def _publish(self) -> None:
        self._response = self._published()
        if self._response is None:
            raise ParticipantFailed(
                f"publishing to {self._topic} answered nothing to roll back"
            )

    def rollback(self) -> None:
        """Hides what was published, where the answer to it came."""
        if self._response is None:
            return
        try:
            self._service.rollback(self._topic, self._response)
        except TopicNotFound:
            # Deleted meanwhile, and its rows with it.
            return

    def _published(self) -> PublishResponse | None:
        if not self._receipts:
            return self._service.publish(
                self._topic, self._buffer.messages, transaction=self._tx
            )
        return self._service.publish(
            self._topic, [], transaction=self._tx, receipts=self._receipts
        )

    def _in_doubt(self, call: Callable[[], None]) -> None:
        """In doubt before the call, so that no interrupt can come in between."""
        if self.in_doubt:
            raise ParticipantFailed(
                f"the answer to an earlier write to {self._topic} was lost, so "
                f"transaction {self._tx.transaction_id} can only be rolled back"
            )
        self.in_doubt = True
        try:
            call()
        except BaseException as error:
            self.in_doubt = not changed_nothing(error)
            raise
        self.in_doubt = False
