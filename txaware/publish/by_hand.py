"""What a program publishes by the verbs themselves, in a block that may still fail."""

from collections.abc import Iterable

from coordinator.context import current_transaction
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.errors import (
    BadRequest,
    NotAuthorized,
    TopicNotFound,
    TransactionRefused,
)
from txaware.interfaces import MessagingService
from txaware.messages import MessageId, PublishResponse, Receipt
from txaware.requests import Payload, Pointer

_DEFINITE_NO = (BadRequest, NotAuthorized, TopicNotFound, TransactionRefused)


class WrittenByHand:
    """A participant that takes back what was written when the transaction fails.

    Nothing is held back: the verbs write at once, and this one only remembers what.
    """

    transaction_aware_name = "what was published by hand"
    flushes_last = True

    def __init__(self, service: MessagingService, *, shares_journal: bool) -> None:
        self.shares_journal = shares_journal
        self._service = service
        self._responses: list[tuple[str, PublishResponse]] = []
        self._positions: list[tuple[str, str, Pointer]] = []
        self._in_doubt = False

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes, and remembers the answer."""
        try:
            response = self._service.publish(
                topic, messages, transaction=transaction, receipts=receipts
            )
        except _DEFINITE_NO:
            raise
        except BaseException:
            self._in_doubt = True
            raise
        if response is not None:
            self._responses.append((topic, response))
        return response

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Saves a position, and remembers which."""
        self._positions.append((group, topic, transaction))
        try:
            self._service.save_position(group, topic, position, transaction=transaction)
        except _DEFINITE_NO:
            self._positions.pop()
            raise

    def start_tx(self, tx: Transaction) -> None:
        """Each call names its transaction."""

    def update_tx(self, tx: Transaction) -> None:
        """What was written carries the first pointer."""

    def get_tx_changes(self) -> list[bytes]:
        """Messages never conflict; whoever saves positions by hand sees to it."""
        return []

    def commit_tx(self) -> bool:
        """It is written already."""
        return True

    def post_tx_commit(self) -> None:
        """Nothing is left to take back."""
        self._responses.clear()
        self._positions.clear()

    def rollback_tx(self) -> bool:
        """Takes back everything; False where something may be left."""
        for topic, response in self._responses:
            try:
                self._service.rollback(topic, response)
            except TopicNotFound:
                continue  # and its messages with it
        for group, topic, transaction in self._positions:
            self._service.save_position(group, topic, None, transaction=transaction)
        return not self._in_doubt


def written_by_hand(
    service: MessagingService,
    coordinator: Coordinator,
    transaction: Pointer,
    *,
    shares_journal: bool,
) -> WrittenByHand | None:
    """Who remembers for the block that is open here, if this is its transaction."""
    context = current_transaction(coordinator)
    if context is None or not context.may_undo:
        return None
    pointer = transaction if isinstance(transaction, int) else None
    if isinstance(transaction, Transaction):
        pointer = transaction.transaction_id
    if pointer not in context.transaction.pointers:
        return None
    return context.joined(
        ("by hand", id(service)),
        lambda: WrittenByHand(service, shares_journal=shares_journal),
        while_ending=True,
    )
