"""Publishes what could not be handled to another topic, with the position's commit."""

from collections.abc import Iterable
from contextlib import suppress

from coordinator.tracked_write import TrackedWrite
from coordinator.transaction import Transaction
from txaware.errors import TopicNotFound
from txaware.interfaces import MessagingService
from txaware.messages import PublishResponse


class DeadLetters:
    """Takes given-up payloads through one transaction, to be published last."""

    flushes_last = True

    def __init__(
        self, service: MessagingService, topic: str, *, shares_journal: bool = False
    ) -> None:
        self.shares_journal = shares_journal
        self.transaction_aware_name = f"dead letters to {topic}"
        self._service = service
        self._topic = topic
        self._payloads: list[bytes] = []
        self._write = TrackedWrite()
        self._tx: Transaction | None = None
        self._response: PublishResponse | None = None

    def add(self, payload: bytes) -> None:
        """Publishes it if the transaction commits."""
        self._payloads.append(payload)

    def start_tx(self, tx: Transaction) -> None:
        """Remembers the pointer that messages carry."""
        self._tx = tx

    def update_tx(self, tx: Transaction) -> None:
        """Messages carry the first pointer, whatever checkpoints follow."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """Publishing conflicts with nobody."""
        return ()

    def commit_tx(self) -> bool:
        """Publishes in one piece."""
        if self._payloads:
            self._write.do(self._publish)
        return True

    def post_tx_commit(self) -> None:
        """They are visible now."""

    def rollback_tx(self) -> bool:
        """Takes them back; False where nobody knows whether they were published."""
        return self._write.undo(self._take_back)

    def _publish(self) -> None:
        self._response = self._service.publish(
            self._topic, self._payloads, transaction=self._tx
        )

    def _take_back(self) -> None:
        if self._response is not None:
            with suppress(TopicNotFound):  # and its messages with it
                self._service.rollback(self._topic, self._response)
