"""The position of a group: a versioned row that moves with the commit."""

from collections.abc import Iterable

import attrs

from coordinator.tracked_write import TrackedWrite
from coordinator.transaction import Transaction, TransactionType
from txaware.errors import MisusedTransaction
from txaware.interfaces import MessagingService
from txaware.messages import MessageId
from txaware.topics import TopicName


@attrs.frozen
class Group:
    """A group in one topic: where its position is kept, and where it first begins."""

    service: MessagingService
    name: str
    topic: TopicName
    start: MessageId | None
    shares_journal: bool

    @property
    def change_key(self) -> bytes:
        """What two transactions that both move it conflict on."""
        return b"position:" + self.name.encode("ascii") + b":" + self.topic.key

    def saved(self, transaction: Transaction | None = None) -> MessageId | None:
        """How far it has come, as a transaction or a fresh snapshot sees it."""
        return self.service.position(
            self.name, str(self.topic), transaction=transaction
        )

    def save(self, position: MessageId | None, transaction: Transaction) -> None:
        """Moves it with the commit of a transaction; None takes that back."""
        self.service.save_position(
            self.name, str(self.topic), position, transaction=transaction
        )

    def __str__(self) -> str:
        return f"group {self.name} in {self.topic}"


class GroupPosition:
    """Takes the position of a group through one transaction.

    It is read when the transaction begins, and written last, only if it moved. So two
    members at once conflict, and one after the other go on from each other. The first
    one writes where the group starts, even if nothing was there to poll: a start like
    "next" would otherwise be another one after a restart.
    """

    flushes_last = True

    def __init__(self, group: Group) -> None:
        self.shares_journal = group.shares_journal
        self.transaction_aware_name = f"position of {group}"
        self.saved: MessageId | None = None
        self.position = group.start
        self._group = group
        self._tx: Transaction | None = None
        self._write = TrackedWrite()

    def move(self, position: MessageId) -> None:
        """Goes on from there, if the transaction commits."""
        self.position = position

    @property
    def _moved(self) -> bool:
        return self.position != self.saved

    def start_tx(self, tx: Transaction) -> None:
        """Reads how far the group has come."""
        if tx.type is TransactionType.LONG:
            raise MisusedTransaction(
                f"{self._group} cannot be read in a long transaction: two of them "
                f"could move it at once without a conflict. Use short ones"
            )
        self.saved = self._group.saved(tx)
        if self.saved is not None:
            self.position = self.saved
        # Its first pointer goes with the row, whatever checkpoints follow.
        self._tx = tx

    def update_tx(self, tx: Transaction) -> None:
        """A checkpoint changes nothing for a position."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """One key, and only if the group moved: looking in vain disturbs nobody."""
        return (self._group.change_key,) if self._moved else ()

    def commit_tx(self) -> bool:
        """Writes the row, which nobody sees before the commit."""
        tx, position = self._tx, self.position
        if self._moved and tx is not None:
            self._write.do(lambda: self._group.save(position, tx))
        return True

    def post_tx_commit(self) -> None:
        """The row is visible now; nothing is remembered."""

    def rollback_tx(self) -> bool:
        """Takes the row back; False where nobody knows whether it was written."""
        tx = self._tx
        return tx is None or self._write.undo(lambda: self._group.save(None, tx))
