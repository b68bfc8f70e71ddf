"""A group's consumer in and outside transactions; outside it runs ahead of the row."""

from collections.abc import Callable, Iterable

import attrs

from coordinator.context import Status, TransactionContext
from coordinator.interfaces import Coordinator
from coordinator.participants import TrackedWrite
from coordinator.resolve_outcome import settle
from coordinator.transaction import Transaction, TransactionType
from txaware.consume.start_places import Place
from txaware.errors import MisusedTransaction, TransactionConflict
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


@attrs.frozen
class Attempt:
    """A transaction that moves a consumer, and since when (by `clock_s`) it is open."""

    context: TransactionContext
    clock_s: Callable[[], float]
    began_s: float

    @classmethod
    def begin(
        cls, context: TransactionContext, clock_s: Callable[[], float]
    ) -> "Attempt":
        """The attempt of a transaction that begins now, or did so before."""
        return cls(context, clock_s, clock_s())

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.context.status in (Status.ACTIVE, Status.ENDING)

    def committed(self) -> bool:
        """Whether it did, once it has ended; `TransactionOutcomeUnknown` if it must.

        Where the answer to its commit was lost, the coordinator is asked again.
        """
        if self.context.status is not Status.UNKNOWN:
            return self.context.status is Status.COMMITTED
        return settle(
            self.context.coordinator,
            self.context.transaction.transaction_id,
            open_for_s=lambda: self.clock_s() - self.began_s,
        )


class Ahead:
    """Where a consumer has come outside transactions since its group was `saved`."""

    def __init__(
        self, cursor: "GroupCursor", saved: MessageId | None, start: MessageId | None
    ) -> None:
        self.saved = saved
        self.position = start if saved is None else saved
        self._cursor = cursor

    def move(self, position: MessageId) -> None:
        """Goes on from there, for this consumer only, until it commits."""
        self.position = position
        self._cursor.ahead = self


class GroupCursor:
    """Reads the position anew each time, but for what it polled and did not commit.

    All calls come under the consumer's lock.
    """

    def __init__(
        self, group: Group, coordinator: Coordinator, *, clock_s: Callable[[], float]
    ) -> None:
        self.ahead: Ahead | None = None
        self._group = group
        self._coordinator = coordinator
        self._clock_s = clock_s
        self._tried: Attempt | None = None

    def within(self, context: TransactionContext) -> Place:
        """Where the group stands in a transaction: one place for all its consumers."""
        if self.ahead is not None:
            raise MisusedTransaction(
                f"{self._group}: what was polled outside transactions is not saved, "
                f"and would come again in {context}; commit() or rollback() it first"
            )
        group = self._group
        key = (GroupPosition, id(group.service), group.name, group.topic)
        return context.joined(key, lambda: GroupPosition(group))

    def outside(self) -> Place:
        """Where this consumer stands outside transactions."""
        self._settle()
        if self.ahead is not None:
            return self.ahead
        return Ahead(self, self._group.saved(), self._group.start)

    def commit(self) -> None:
        """Saves how far it has come, if nobody else moved the group meanwhile."""
        self._settle()
        ahead = self.ahead
        if ahead is None and self._begun():
            return
        participant = GroupPosition(self._group)
        context = TransactionContext(self._coordinator, participant)
        try:
            with context:
                if ahead is not None:
                    self._tried = Attempt.begin(context, self._clock_s)
                    self._require_unmoved(ahead, participant)
                    participant.position = ahead.position
        except TransactionConflict:
            self.forget()
            raise
        self.forget()

    def forget(self) -> None:
        """Goes back to where the group stands."""
        self.ahead = self._tried = None

    def _begun(self) -> bool:
        """Whether there is no start to be saved for the members to come."""
        return self._group.start is None or self._group.saved() is not None

    def _require_unmoved(self, ahead: Ahead, now: GroupPosition) -> None:
        """A move that committed before this transaction began is a conflict, too."""
        if now.saved != ahead.saved:
            raise TransactionConflict(
                f"{self._group} was moved by somebody else since it was polled here, "
                f"from {ahead.saved or 'its start'} to {now.saved}; nothing was saved, "
                f"and the next poll goes on from there"
            )

    def _settle(self) -> None:
        """Finds out about a commit that was interrupted, or whose answer was lost."""
        if self._tried is None:
            return
        # Nothing was polled since: that comes here first.
        if self._tried.committed():
            self.ahead = None
        self._tried = None


class OwnCursor:
    """Stands at one position, and serves one transaction at a time.

    Two at once would begin at the same position, and both deliver what follows it.
    All calls but those of its participant come under the consumer's lock.
    """

    def __init__(
        self, start: MessageId | None, *, name: str, clock_s: Callable[[], float]
    ) -> None:
        self.position = start
        self._name = name
        self._clock_s = clock_s
        self._moving: OwnPosition | None = None

    def move(self, position: MessageId) -> None:
        """Goes on from there; for use outside transactions."""
        self.position = position

    def within(self, context: TransactionContext) -> Place:
        """Where it stands in a transaction."""
        return context.joined((OwnCursor, id(self)), lambda: self._join(context))

    def outside(self) -> Place:
        """Where it stands outside transactions."""
        self._require_free()
        return self

    def commit(self) -> None:
        """There is nothing to commit to."""
        raise MisusedTransaction(
            f"{self._name} has no group, so nobody keeps its position; "
            f"see `position`, and start there"
        )

    def forget(self) -> None:
        """Stays where it was before a transaction of which nobody knows the outcome."""
        if self._moving is not None and not self._moving.attempt.is_open:
            self._moving = None

    def ended(self, moving: "OwnPosition", *, committed: bool) -> None:
        """Takes over what a transaction did, or drops it."""
        if committed and self._moving is moving:
            self.position = moving.position
        if self._moving is moving:
            self._moving = None

    def _join(self, context: TransactionContext) -> "OwnPosition":
        self._require_free()
        attempt = Attempt.begin(context, self._clock_s)
        self._moving = OwnPosition(self, attempt, name=self._name)
        return self._moving

    def _require_free(self) -> None:
        moving = self._moving
        if moving is None:
            return
        if moving.attempt.is_open:
            raise MisusedTransaction(
                f"{self._name} is in use by {moving.attempt.context}; without a group "
                f"it serves one transaction at a time, so make one for each"
            )
        self.ended(moving, committed=moving.attempt.committed())


class OwnPosition:
    """Takes an in-memory position through one transaction."""

    # It writes nothing, so nothing has to be on disk before it does.
    shares_journal = True

    def __init__(self, cursor: OwnCursor, attempt: Attempt, *, name: str) -> None:
        self.position = cursor.position
        self.attempt = attempt
        self.transaction_aware_name = f"position of {name}"
        self._cursor = cursor

    def move(self, position: MessageId) -> None:
        """Goes on from there, if the transaction commits."""
        self.position = position

    def start_tx(self, tx: Transaction) -> None:
        """Nothing is read: the position is in memory."""

    def update_tx(self, tx: Transaction) -> None:
        """A checkpoint changes nothing for a position."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """Nobody else can change it."""
        return ()

    def commit_tx(self) -> bool:
        """There is nothing to write."""
        return True

    def post_tx_commit(self) -> None:
        """Moves the consumer."""
        self._cursor.ended(self, committed=True)

    def rollback_tx(self) -> bool:
        """Leaves the consumer where it was."""
        self._cursor.ended(self, committed=False)
        return True
