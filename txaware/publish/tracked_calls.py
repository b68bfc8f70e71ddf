"""Tracked calls: writes that a program makes by itself in a block that may fail."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from coordinator.context import TransactionContext, current_transaction
from coordinator.interfaces import Coordinator, Participant
from coordinator.participants import TrackedWrite
from coordinator.transaction import Transaction
from txaware.errors import TopicNotFound
from txaware.model.interfaces import MessagingService
from txaware.model.messages import MessageId, PublishResponse, Receipt
from txaware.model.requests import Payload, Pointer, checked_positions


class WrittenByHand(Participant):
    """A participant that takes written rows back when the transaction fails.

    Nothing is held back: each call writes at once, and is remembered here.
    """

    transaction_aware_name = "what was published by hand"
    flushes_last = True

    def __init__(self, service: MessagingService, *, shares_journal: bool) -> None:
        self.shares_journal = shares_journal
        self._service = service
        self._writes: list[tuple[TrackedWrite, Callable[[], object]]] = []

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes at once, and remembers the answer."""
        answers: list[PublishResponse | None] = []

        def write() -> None:
            answers.append(
                self._service.publish(
                    topic, messages, transaction=transaction, receipts=receipts
                )
            )

        def take_back() -> None:
            for response in filter(None, answers):
                with suppress(TopicNotFound):  # and its messages with it
                    self._service.rollback(topic, response)

        self._track(write, take_back)
        return answers[0]

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Saves a position at once, and remembers which."""
        save = partial(self._service.save_position, group, topic)
        self._track(
            partial(save, position, transaction=transaction),
            partial(save, None, transaction=transaction),
        )

    def save_positions(
        self, group: str, positions: Mapping[str, MessageId], *, transaction: Pointer
    ) -> None:
        """Saves the positions of a group in several topics; all are checked first."""
        for topic, position in checked_positions(group, positions).items():
            self.save_position(group, topic, position, transaction=transaction)

    def _track(
        self, write: Callable[[], object], take_back: Callable[[], object]
    ) -> None:
        tracked = TrackedWrite()
        self._writes.append((tracked, take_back))
        tracked.do(write)

    def post_tx_commit(self) -> None:
        """Forgets the writes: there is nothing left to take back."""
        self._writes.clear()

    def post_tx_prepare(self) -> None:
        """Forgets the writes: nobody takes them back any more."""
        self._writes.clear()

    def rollback_tx(self) -> bool:
        """Takes all writes back; False where something may be left."""
        undone = [tracked.undo(take_back) for tracked, take_back in self._writes]
        return all(undone)


def written_by_hand(
    service: MessagingService,
    coordinator: Coordinator,
    transaction: Pointer,
    *,
    shares_journal: bool,
) -> WrittenByHand | None:
    """Returns the participant of the open block; None if it is not this transaction's.

    None also means that the block no longer undoes anything.
    """
    context = current_transaction(coordinator)
    if context is None or not context.may_undo:
        return None
    pointer = transaction if isinstance(transaction, int) else None
    if isinstance(transaction, Transaction):
        pointer = transaction.transaction_id
    if pointer not in context.transaction.pointers:
        return None
    return joined_by_hand(service, context, shares_journal=shares_journal)


def joined_by_hand(
    service: MessagingService, context: TransactionContext, *, shares_journal: bool
) -> WrittenByHand:
    """Returns the participant of a transaction for what its program writes itself."""
    return context.joined(
        ("by hand", id(service)),
        lambda: WrittenByHand(service, shares_journal=shares_journal),
        while_ending=True,
    )
