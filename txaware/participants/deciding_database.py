"""A database whose own commit decides a block: with its rows go messages and places."""

import logging
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

from coordinator.context import current_transaction
from coordinator.transaction import Transaction
from txaware.consume import Inbox
from txaware.consume.inbox import KeepsPositions
from txaware.consume.start_places import StartAt
from txaware.errors import MisusedTransaction, TxAwareError
from txaware.messaging import Messaging
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId
from txaware.model.queues import PushOptions
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.inbox_cleaner import InboxCleaner
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import (
    Columns,
    OutboxRows,
    columns_of,
    columns_of_item,
    new_token,
)
from txaware.publish import TakesItems
from txaware.queue.participants_of_threads import DatabaseConnection

log = logging.getLogger(__name__)


class DecidingDatabase(KeepsPositions, DatabaseConnection):
    """A participant over a connection of the user's, which decides its block.

    What is published and pushed in the block are rows of an outbox, in the transaction
    of the database. A relay carries them over after the commit. Items that are popped
    in the block are noted in an inbox, and end after the commit.
    """

    decides = True
    flushes_last = True
    # No row elsewhere has a pointer of the transaction.
    shares_journal = True
    connection: Any

    def __init__(
        self,
        messaging: Messaging,
        relay: OutboxRelay[OutboxRows],
        cleaner: InboxCleaner,
        *,
        name: str,
        in_background: bool,
    ) -> None:
        self.transaction_aware_name = name
        self.messaging = messaging
        self._relay = relay
        self._cleaner = cleaner
        self._in_background = in_background
        self._noted = 0
        self._tx: Transaction | None = None
        self._context: object = None
        self._token = b""

    def consumer(
        self, topic: str, *, group: str, start: StartAt = None, inclusive: bool = True
    ) -> Inbox:
        """Returns a reader of a topic whose position commits with this database.

        A group without a position begins at `start`, as with `messaging.consumer`.
        """
        return Inbox(
            self.messaging, self, topic, group=group, start=start, inclusive=inclusive
        )

    @cached_property
    def outbox(self) -> DatabaseOutbox:
        """Returns the outbox: what waits there, and what could not be carried over."""
        return DatabaseOutbox(self._relay.rows, self._relay)

    def relay(self) -> int:
        """Carries over now what has committed; returns how many messages these were.

        It also removes the notes of popped items that have ended.
        """
        self._cleaner.clean()
        return self._relay.carry_over()

    def start_tx(self, tx: Transaction) -> None:
        """Begins the transaction of the database."""
        if self._tx is not None:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is in the block of transaction "
                f"{self._tx.transaction_id}, and a connection has one at a time; end "
                f"that one first, or open another connection"
            )
        self._begin()
        self._tx, self._noted = tx, 0

    def take_block(self, context: Any) -> None:
        """Takes what is published in the block."""
        if getattr(context, "messaging", None) is not self.messaging:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is for blocks of the messaging that it "
                f"was opened with: with messaging.transaction(...): ..."
            )
        self._token = new_token()
        context.publish_by(OutboxPublisher(self))
        context.note_pops_in(self)
        self._context = context

    def commit_tx(self) -> bool:
        """Commits the transaction of the database, which decides the block."""
        tx = self._tx
        self._commit()
        self._leave()
        self._cleaner.expects_notes = self._noted > 0
        if self._noted and tx is not None:
            self._sync(tx)
        self._relay.wake()
        return True

    def _sync(self, tx: Transaction) -> None:
        """Has the commit on disk before the items of the block end.

        Where that fails, they come again and are found in the inbox.
        """
        try:
            if not self._is_synced():
                self._cleaner.sync()
        except TxAwareError as error:
            log.warning("items of %r come again: %s", self, error)
            self.messaging.coordinator.invalidate(tx)

    def post_tx_commit(self) -> None:
        """Has the notes of the block removed once its items have ended."""
        if self._noted:
            self._cleaner.has_noted(self._noted, in_background=self._in_background)

    def rollback_tx(self) -> bool:
        """Rolls the transaction of the database back, unless it has committed."""
        if self._tx is not None:
            self._leave()
            self._rollback()
        return True

    def close(self) -> None:
        """Closes its connection."""
        self.connection.close()

    def require_block(self, call: str) -> None:
        """Raises `MisusedTransaction` where no block of it is open here."""
        here = current_transaction(self.messaging.coordinator)
        if here is None or here is not self._context:
            raise MisusedTransaction(
                f"{call}() is for a block of {self.transaction_aware_name}, and none "
                f"is open here: with messaging.transaction(...): ..."
            )

    def committed_position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as it is committed."""
        return self._relay.rows.position(group, topic)

    def publish(self, topic: str, messages: Sequence[Payload]) -> None:
        """Writes checked messages to the outbox, with the block."""
        now_ms, token = self.messaging.clock_ms(), self._token
        self._insert(
            [columns_of(topic, one, token=token, now_ms=now_ms) for one in messages]
        )

    def push(self, queue: str, items: Sequence[Payload], options: PushOptions) -> None:
        """Writes checked items to the outbox, with the block."""
        now_ms, token = self.messaging.clock_ms(), self._token
        columns = partial(columns_of_item, queue, token=token, now_ms=now_ms)
        self._insert([columns(one, options) for one in items])

    def note(self, queue: str, items: Collection[str]) -> set[str]:
        """Notes items with the block; returns those that were noted before it."""
        self._noted += len(items)
        return self._note(self._cleaner.store, queue, items)

    def noted(self, queue: str, items: Collection[str]) -> set[str]:
        """Returns those that are still noted: a savepoint may have taken some back."""
        return self._still_noted(self._cleaner.store, queue, items)

    def forget(self, queue: str, items: Collection[str]) -> None:
        """Takes back what the block has noted."""
        self._forget(self._cleaner.store, queue, items)

    def save_apart(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group outside of a block; on disk when it returns."""
        self._relay.rows.save_position(group, topic, position)

    def _leave(self) -> None:
        self._tx = self._context = None

    def _begin(self) -> None:
        """Begins a transaction; refuses a connection that has one open."""
        raise NotImplementedError

    def _commit(self) -> None:
        """Commits it; raising means that nothing has."""
        raise NotImplementedError

    def _rollback(self) -> None:
        """Rolls it back."""
        raise NotImplementedError

    def _insert(self, rows: Sequence[Columns]) -> None:
        """Writes rows to the outbox."""
        raise NotImplementedError

    def flush_early(self, context: object) -> NoReturn:
        """Refuses: nobody but the database has the messages before its commit."""
        raise MisusedTransaction(
            f"messages of a block that {self.transaction_aware_name} decides are "
            f"published after its commit, and cannot be flushed before"
        )

    def _is_synced(self) -> bool:
        """Tells whether the last commit is on disk, whatever the program has set."""
        raise NotImplementedError

    def _note(self, store: str, queue: str, items: Collection[str]) -> set[str]:
        """Writes notes; returns the items that had one."""
        raise NotImplementedError

    def _still_noted(self, store: str, queue: str, items: Collection[str]) -> set[str]:
        """Returns the items that have a note."""
        raise NotImplementedError

    def _forget(self, store: str, queue: str, items: Collection[str]) -> None:
        """Removes notes."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.transaction_aware_name}>"


class OutboxPublisher(TakesItems):
    """Takes what is published in a block, in place of a `TransactionPublisher`.

    Each message is a row of the database's own transaction at once: so it is undone
    with that, and with a savepoint in it.
    """

    def __init__(self, database: DecidingDatabase) -> None:
        self.transaction_aware_name = database.transaction_aware_name
        self._database = database

    def publish(
        self, topic: str, message: Payload, *, size_bytes: int, limit_bytes: int
    ) -> None:
        """Writes a checked message; its size is that of a row of the database."""
        self._database.publish(topic, [message])

    def publish_all(
        self,
        topic: str,
        messages: list[Payload],
        checked: object,
        *,
        size_bytes: int,
        limit_bytes: int,
    ) -> bool:
        """Writes messages that were checked together."""
        self._database.publish(topic, messages)
        return True

    def push(self, queue: str, items: Sequence[Payload], options: PushOptions) -> None:
        """Writes checked items."""
        self._database.push(queue, items, options)

    def flush_early(self, context: object, topic: str | None = None) -> NoReturn:
        """Refuses: nobody but the database has the messages before its commit."""
        self._database.flush_early(context)

    def publish_stored(self, topic: str, receipts: object) -> NoReturn:
        """Refuses: what others stored is not in the database."""
        raise MisusedTransaction(
            f"what others stored for {topic} cannot be published in a block that "
            f"{self.transaction_aware_name} decides"
        )
