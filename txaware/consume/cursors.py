"""Cursors: the place of a consumer, in and outside transactions.

`GroupCursor` serves a consumer with a group, whose position is a row of the service.
`LocalCursor` serves one without, whose position is in memory.
"""

from collections.abc import Callable, Iterable

import attrs

from coordinator.context import Status, TransactionContext
from coordinator.interfaces import Coordinator, Participant
from coordinator.participants import TrackedWrite
from coordinator.resolve_outcome import settle
from coordinator.transaction import Transaction, TransactionType
from txaware.errors import MisusedTransaction, TransactionConflict
from txaware.model.groups import position_change_key
from txaware.model.interfaces import CargoCounted, MessagingService
from txaware.model.messages import MessageId
from txaware.model.partitions import parsed_rows
from txaware.model.start_places import ReadPlace


@attrs.frozen
class Group:
    """A group in one topic, with the service that keeps its position and its start."""

    service: MessagingService
    name: str
    topic: str
    start: MessageId | None
    shares_journal: bool

    @property
    def change_key(self) -> bytes:
        """The key on which two transactions conflict that both move the group."""
        return position_change_key(self.name, parsed_rows(self.topic))

    def saved(self, transaction: Transaction | None = None) -> MessageId | None:
        """Returns the position, as a transaction or a fresh snapshot sees it."""
        return self.service.position(self.name, self.topic, transaction=transaction)

    def save(self, position: MessageId | None, transaction: Transaction) -> None:
        """Moves the group with the commit of a transaction; None takes that back."""
        self.service.save_position(
            self.name, self.topic, position, transaction=transaction
        )

    def __str__(self) -> str:
        return f"group {self.name} in {self.topic}"


class GroupPosition(Participant):
    """The participant that takes the position of a group through one transaction.

    The position is read when the transaction begins, and written last, only if it
    moved. So two members at the same time conflict, and two members one after the other
    go on from each other. The first member writes where the group starts, even if there
    was nothing to poll: a start like "next" would otherwise change with a restart.
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
        self._cargo: CargoCounted | None = None

    def move(self, position: MessageId) -> None:
        """Goes on from a position, if the transaction commits."""
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

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns a key only if the group moved: a poll in vain disturbs nobody."""
        return (self._group.change_key,) if self._moved else ()

    def commit_cargo(self, coordinator: Coordinator) -> CargoCounted | None:
        """Returns the row for the commit to carry; None if it goes before it."""
        group, moved_to = self._group, self.position if self._moved else None
        carrier = group.service.carrier
        if self._tx is None or carrier is None:
            return None
        self._cargo = carrier.position_cargo(
            coordinator, self._tx, group.name, group.topic, moved_to
        )
        return self._cargo

    def commit_tx(self) -> bool:
        """Writes the row, which nobody sees before the commit."""
        tx, position = self._tx, self.position
        if self._moved and tx is not None:
            self._write.do(lambda: self._group.save(position, tx))
        return True

    def post_tx_commit(self) -> None:
        """Counts a row that the commit carried; nothing is remembered."""
        if self._cargo is not None:
            self._cargo.count()

    def post_tx_prepare(self) -> None:
        """Does nothing: the row is written, and nothing is remembered."""

    def rollback_tx(self) -> bool:
        """Takes the row back; False where nobody knows whether it was written."""
        tx = self._tx
        return tx is None or self._write.undo(lambda: self._group.save(None, tx))


@attrs.frozen
class TransactionAttempt:
    """A transaction that moves a consumer, with its beginning by `clock_s`."""

    context: TransactionContext
    clock_s: Callable[[], float]
    began_s: float

    @classmethod
    def begin(
        cls, context: TransactionContext, clock_s: Callable[[], float]
    ) -> "TransactionAttempt":
        """Makes the attempt of a transaction that begins now, or began before."""
        return cls(context, clock_s, clock_s())

    @property
    def is_open(self) -> bool:
        """True when the transaction has not ended."""
        return self.context.status in (Status.ACTIVE, Status.ENDING)

    def committed(self) -> bool:
        """Tells whether the transaction committed; call it once it has ended.

        Where the answer to its commit was lost, the coordinator is asked again. Raises
        `TransactionOutcomeUnknown` if that does not settle it.
        """
        if self.context.status is not Status.UNKNOWN:
            return self.context.status is Status.COMMITTED
        return settle(
            self.context.coordinator,
            self.context.transaction.transaction_id,
            open_for_s=lambda: self.clock_s() - self.began_s,
        )


class Ahead:
    """The place of a consumer that polled on from its group's `saved` position."""

    def __init__(
        self, cursor: "GroupCursor", saved: MessageId | None, start: MessageId | None
    ) -> None:
        self.saved = saved
        self.position = start if saved is None else saved
        self._cursor = cursor

    def move(self, position: MessageId) -> None:
        """Goes on from a position, for this consumer only, until it commits."""
        self.position = position
        self._cursor.ahead = self


@attrs.frozen
class Saving:
    """A position that goes with the commit of a transaction open elsewhere."""

    attempt: TransactionAttempt
    position: MessageId | None


class GroupCursor:
    """The cursor of a consumer with a group.

    It reads the position anew each time, unless the consumer has polled outside
    transactions and not committed. All calls come under the consumer's lock.
    """

    def __init__(
        self, group: Group, coordinator: Coordinator, *, clock_s: Callable[[], float]
    ) -> None:
        self.ahead: Ahead | None = None
        self._group = group
        self._coordinator = coordinator
        self._clock_s = clock_s
        self._tried: TransactionAttempt | None = None
        self._saving: Saving | None = None

    def within(self, context: TransactionContext) -> ReadPlace:
        """Returns the group's place in a transaction, one for all its consumers."""
        if self.ahead is not None:
            raise MisusedTransaction(
                f"{self._group}: what was polled outside transactions is not saved, "
                f"and would come again in {context}; commit() or rollback() it first"
            )
        return self._joined(context)

    def _joined(self, context: TransactionContext) -> GroupPosition:
        group = self._group
        key = (GroupPosition, id(group.service), group.name, group.topic)
        return context.joined(key, lambda: GroupPosition(group))

    def outside(self) -> ReadPlace:
        """Returns the place of this consumer outside transactions."""
        self._settle()
        if self.ahead is not None:
            return self.ahead
        return Ahead(self, self._group.saved(), self._group.start)

    def commit(self) -> None:
        """Saves this consumer's position, if nobody else moved the group meanwhile."""
        self._settle()
        ahead = self.ahead
        if self._saving is not None:
            raise MisusedTransaction(
                f"{self._group}: its position is saved with the commit of "
                f"{self._saving.attempt.context}, which is open"
            )
        if ahead is None and self._begun():
            return
        participant = GroupPosition(self._group)
        context = TransactionContext(self._coordinator, participant)
        try:
            with context:
                if ahead is not None:
                    self._tried = TransactionAttempt.begin(context, self._clock_s)
                    self._require_unmoved(ahead, participant)
                    participant.position = ahead.position
        except TransactionConflict:
            self.forget()
            raise
        self.forget()

    def save_in(self, context: TransactionContext) -> None:
        """Saves the position with the commit of a transaction that is open elsewhere.

        If that is rolled back, the next poll goes on from the position of the group.
        """
        self._settle()
        ahead = self.ahead
        if ahead is None:
            return  # it has polled nothing, or in the transaction
        participant = self._joined(context)
        self._require_unmoved(ahead, participant)
        participant.position = ahead.position
        attempt = TransactionAttempt.begin(context, self._clock_s)
        self._saving = Saving(attempt, ahead.position)

    def forget(self) -> None:
        """Goes back to the position that the group has saved."""
        self.ahead = self._tried = self._saving = None

    def _begun(self) -> bool:
        """Tells whether no start has to be saved for the members to come."""
        return self._group.start is None or self._group.saved() is not None

    def _require_unmoved(self, ahead: Ahead, now: GroupPosition) -> None:
        """Raises `TransactionConflict` if the group moved since it was polled."""
        if now.saved != ahead.saved:
            raise TransactionConflict(
                f"{self._group} was moved by somebody else since it was polled here, "
                f"from {ahead.saved or 'its start'} to {now.saved}; nothing was saved, "
                f"and the next poll goes on from there"
            )

    def _settle(self) -> None:
        """Finds out about a commit that was interrupted, or whose answer was lost."""
        self._settle_saving()
        if self._tried is None:
            return
        # Nothing was polled since: each poll calls this first.
        if self._tried.committed():
            self.ahead = None
        self._tried = None

    def _settle_saving(self) -> None:
        """Goes on after a transaction that saved the position, or back if it failed."""
        saving, ahead = self._saving, self.ahead
        if saving is None or saving.attempt.is_open:
            return
        committed = saving.attempt.committed()
        self._saving = None
        if not committed or ahead is None or ahead.position == saving.position:
            self.ahead = None
        else:
            ahead.saved = saving.position


class LocalCursor:
    """The cursor of a consumer without a group, which serves one transaction at a time.

    Two transactions at once would begin at the same position and deliver the same
    messages. All calls come under the consumer's lock, except those of its participant.
    """

    def __init__(
        self, start: MessageId | None, *, name: str, clock_s: Callable[[], float]
    ) -> None:
        self.position = start
        self._name = name
        self._clock_s = clock_s
        self._moving: OwnPosition | None = None

    def move(self, position: MessageId) -> None:
        """Goes on from a position; for use outside transactions."""
        self.position = position

    def within(self, context: TransactionContext) -> ReadPlace:
        """Returns the place of the consumer in a transaction."""
        return context.joined((LocalCursor, id(self)), lambda: self._join(context))

    def outside(self) -> ReadPlace:
        """Returns the place of the consumer outside transactions."""
        self._require_free()
        return self

    def commit(self) -> None:
        """Raises `MisusedTransaction`: without a group nobody keeps the position."""
        raise MisusedTransaction(
            f"{self._name} has no group, so nobody keeps its position; "
            f"see `position`, and start there"
        )

    def save_in(self, context: TransactionContext) -> None:
        """Raises `MisusedTransaction`: without a group nobody keeps the position."""
        self.commit()

    def forget(self) -> None:
        """Goes back to the position before a transaction whose outcome is unknown."""
        if self._moving is not None and not self._moving.attempt.is_open:
            self._moving = None

    def ended(self, moving: "OwnPosition", *, committed: bool) -> None:
        """Takes over the position of a transaction that committed, or drops it."""
        if committed and self._moving is moving:
            self.position = moving.position
        if self._moving is moving:
            self._moving = None

    def _join(self, context: TransactionContext) -> "OwnPosition":
        self._require_free()
        attempt = TransactionAttempt.begin(context, self._clock_s)
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


class OwnPosition(Participant):
    """The participant that takes a position in memory through one transaction."""

    # It writes nothing, so nothing has to be on disk before it does.
    shares_journal = True

    def __init__(
        self, cursor: LocalCursor, attempt: TransactionAttempt, *, name: str
    ) -> None:
        self.position = cursor.position
        self.attempt = attempt
        self.transaction_aware_name = f"position of {name}"
        self._cursor = cursor

    def move(self, position: MessageId) -> None:
        """Goes on from a position, if the transaction commits."""
        self.position = position

    def post_tx_commit(self) -> None:
        """Moves the consumer."""
        self._cursor.ended(self, committed=True)

    def rollback_tx(self) -> bool:
        """Leaves the consumer where it was."""
        self._cursor.ended(self, committed=False)
        return True
