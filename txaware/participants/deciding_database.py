"""A database whose own commit decides a block: with its rows go messages and places."""

import logging
from abc import abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn, Self

from coordinator.context import current_transaction
from coordinator.interfaces import Coordinator
from coordinator.joining import require_own
from coordinator.transaction import Transaction
from txaware.consume import Inbox
from txaware.consume.inbox import KeepsPositions
from txaware.errors import MisusedTransaction, TxAwareError
from txaware.messaging import Messaging
from txaware.model.interfaces import Payload
from txaware.model.messages import MessageId
from txaware.model.queues import PushOptions
from txaware.model.start_places import StartAt
from txaware.participants.database_link import DatabaseLink
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.database_steps import (
    Drives,
    Steps,
    closed,
    in_thread,
)
from txaware.participants.inbox_cleaner import FORGET, NOTED, InboxCleaner, NotedRows
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import (
    Columns,
    columns_of,
    columns_of_item,
    new_token,
)
from txaware.participants.outbox_tables import POSITION, OutboxTables, id_of
from txaware.participants.sql_dialect import SqlDialect, any_of
from txaware.publish import TakesItems
from txaware.queue.participants_of_threads import DatabaseConnection

log = logging.getLogger(__name__)


class DecidingDatabase(KeepsPositions, DatabaseConnection):
    """A participant over a connection of the user's, which decides its block.

    What is published and pushed in the block are rows of an outbox, in the transaction
    of the database. A relay carries them over after the commit. Items that are popped
    in the block are noted in an inbox, and end after the commit.
    """

    kind = ""
    dialect: SqlDialect
    decides = True
    flushes_last = True
    # No row elsewhere has a pointer of the transaction.
    shares_journal = True

    def __init__(
        self,
        messaging: Messaging,
        connection: Any,
        *,
        in_background: bool,
        drive: Drives = in_thread,
    ) -> None:
        self.messaging = messaging
        self.connection = connection
        self._drive = drive
        self._in_background = in_background
        self._noted = 0
        self._tx: Transaction | None = None
        self._context: object = None
        self._token = b""

    @cached_property
    def _place(self) -> str:
        """The name of the database, which nobody but it knows."""
        return self._drive(self._name())

    @property
    def transaction_aware_name(self) -> str:  # type: ignore[override]
        """The name of the database in error messages."""
        return self.__dict__.get("_place") or f"{self.kind} database"

    @cached_property
    def _relay(self) -> OutboxRelay[Any]:
        """The relay of this database in this process, at work if it is to be."""

        def new() -> OutboxRelay[Any]:
            return OutboxRelay(self.messaging, self._new_rows())

        relay = self.messaging.kept_once(("outbox", self._place), new)
        if self._in_background:
            relay.start()
        return relay

    @cached_property
    def _cleaner(self) -> InboxCleaner:
        def new() -> InboxCleaner:
            return InboxCleaner(self.messaging, NotedRows(self._new_link()))

        return self.messaging.kept_once(("inbox", self._place), new)

    @property
    def is_open(self) -> bool:
        """True when this process has the tables and the relay of the database."""
        kept = self.messaging.is_kept
        return kept(("outbox", self._place)) and kept(("inbox", self._place))

    def open(self) -> Self:
        """Opens what it has beside the connection: the tables, and the relay."""
        _ = self._relay, self._cleaner
        return self

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Refuses a block of another messaging."""
        own, name = self.messaging.coordinator, self.transaction_aware_name
        require_own(name, own, coordinator, block=self.block)

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
            raise self._busy(self._tx.label)
        self._begin_block()
        self._tx, self._noted = tx, 0

    def _busy(self, other: str) -> MisusedTransaction:
        return MisusedTransaction(
            f"{self.transaction_aware_name} is in the block of {other}, and a "
            f"connection has one at a time; end that one first, or open another "
            f"connection"
        )

    def _begin_block(self) -> None:
        _ = self._place
        self._require_idle()
        self.open()
        self._take("begin", self._begin())

    def _take(self, call: str, steps: Steps[None]) -> None:
        """Takes steps of the block that nobody needs an answer of."""
        self._drive(steps)

    def take_block(self, context: Any) -> None:
        """Takes what is published in the block."""
        if getattr(context, "messaging", None) is not self.messaging:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} is for blocks of the messaging that it "
                f"was opened with: {self.block}: ..."
            )
        self._token = new_token()
        context.publish_by(OutboxPublisher(self))
        context.note_pops_in(self)
        self._context = context

    def commit_tx(self) -> bool:
        """Commits the transaction of the database, which decides the block."""
        tx = self._tx
        self._take("commit", self._commit())
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
            if not self._drive(self._is_synced()):
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
            self._take("rollback", self._rollback())
        return True

    def close(self) -> None:
        """Closes its connection."""
        self._drive(closed(self.connection))

    def require_block(self, call: str) -> None:
        """Raises `MisusedTransaction` where no block of it is open here."""
        here = current_transaction(self.messaging.coordinator)
        if here is None or here is not self._context:
            raise MisusedTransaction(
                f"{call}() is for a block of {self.transaction_aware_name}, and none "
                f"is open here: {self.block}: ..."
            )

    def committed_position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as it is committed."""
        found: MessageId | None = self._relay.rows.position(group, topic)
        return found

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as the block sees it."""
        return self._drive(self._position(group, topic))

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""
        self._drive(self._save_position(group, topic, position))

    def publish(self, topic: str, messages: Sequence[Payload]) -> None:
        """Writes checked messages to the outbox, with the block."""
        now_ms, token = self.messaging.clock_ms(), self._token
        rows = [columns_of(topic, one, token=token, now_ms=now_ms) for one in messages]
        self._take("insert", self._insert(rows))

    def push(self, queue: str, items: Sequence[Payload], options: PushOptions) -> None:
        """Writes checked items to the outbox, with the block."""
        now_ms, token = self.messaging.clock_ms(), self._token
        columns = partial(columns_of_item, queue, token=token, now_ms=now_ms)
        self._take("insert", self._insert([columns(one, options) for one in items]))

    def note(self, queue: str, items: Collection[str]) -> set[str]:
        """Notes items with the block; returns those that were noted before it."""
        self._noted += len(items)
        return self._drive(self._note(self._cleaner.store, queue, items))

    def noted(self, queue: str, items: Collection[str]) -> set[str]:
        """Returns those that are still noted: a savepoint may have taken some back."""
        return self._drive(self._still_noted(self._cleaner.store, queue, items))

    def forget(self, queue: str, items: Collection[str]) -> None:
        """Takes back what the block has noted."""
        self._drive(self._forget(self._cleaner.store, queue, items))

    def save_apart(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group outside of a block; on disk when it returns."""
        self._relay.rows.save_position(group, topic, position)

    def _leave(self) -> None:
        self._tx = self._context = None

    def flush_early(self, context: object) -> NoReturn:
        """Refuses: nobody but the database has the messages before its commit."""
        raise MisusedTransaction(
            f"messages of a block that {self.transaction_aware_name} decides are "
            f"published after its commit, and cannot be flushed before"
        )

    @abstractmethod
    def _name(self) -> Steps[str]:
        """Asks for the name of the database."""

    @abstractmethod
    def _new_rows(self) -> OutboxTables:
        """Opens its outbox over a connection of the relay's."""

    @abstractmethod
    def _new_link(self) -> DatabaseLink:
        """Makes a connection to where its own one leads."""

    @abstractmethod
    def _require_idle(self) -> None:
        """Refuses a connection that has a transaction open, or cannot begin one."""

    @abstractmethod
    def _begin(self) -> Steps[None]:
        """Begins a transaction."""

    @abstractmethod
    def _commit(self) -> Steps[None]:
        """Commits it; raising means that nothing has."""

    @abstractmethod
    def _rollback(self) -> Steps[None]:
        """Rolls it back."""

    @abstractmethod
    def _is_synced(self) -> Steps[bool]:
        """Tells whether the last commit is on disk, whatever the program has set."""

    def _insert(self, rows: Sequence[Columns]) -> Steps[None]:
        """Writes rows to the outbox."""
        dialect = self.dialect
        yield from dialect.change_many(self.connection, dialect.insert, rows)

    def _position(self, group: str, topic: str) -> Steps[MessageId | None]:
        """Reads how far a group has come; other members wait for this block."""
        dialect, key = self.dialect, (group, topic)
        if dialect.enter:
            yield from dialect.change(self.connection, dialect.enter, *key)
        read = POSITION + dialect.lock
        return id_of((yield from dialect.rows(self.connection, read, *key)))

    def _save_position(
        self, group: str, topic: str, position: MessageId
    ) -> Steps[None]:
        """Moves a group."""
        place = (bytes(position), group, topic)
        yield from self.dialect.change(self.connection, self.dialect.save, *place)

    def _note(self, store: str, queue: str, items: Collection[str]) -> Steps[set[str]]:
        """Writes notes; returns the items that had one."""
        dialect, had = self.dialect, set()
        for one in items:
            made = dialect.change(self.connection, dialect.note, store, queue, one)
            if not (yield from made):
                had.add(one)
        return had

    def _still_noted(
        self, store: str, queue: str, items: Collection[str]
    ) -> Steps[set[str]]:
        """Returns the items that have a note."""
        key = (store, queue, *items)
        read = self.dialect.rows(self.connection, NOTED + any_of(items), *key)
        return {item for (item,) in (yield from read)} if items else set()

    def _forget(self, store: str, queue: str, items: Collection[str]) -> Steps[None]:
        """Removes notes."""
        key = (store, queue, *items)
        if items:
            remove = FORGET + any_of(items)
            yield from self.dialect.change(self.connection, remove, *key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.transaction_aware_name}>"


class OutboxPublisher(TakesItems):
    """Takes what is published in a block, in place of a `TransactionPublisher`.

    Each message is a row of the database's own transaction at once: so it is undone
    with that, and with a savepoint in it.
    """

    def __init__(self, database: DecidingDatabase) -> None:
        self.transaction_aware_name = database.transaction_aware_name
        self.looks_up = not database.messaging.needs_server
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
