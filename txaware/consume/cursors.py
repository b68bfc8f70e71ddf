"""Cursors: the place of a consumer, in and outside transactions.

`GroupCursor` serves a consumer with a group, whose position is a row of the service.
`LocalCursor` serves one without, whose position is in memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator, JoinedCargo, Participant
from coordinator.participants import TrackedWrite
from coordinator.resolve_outcome import settle
from coordinator.transaction import Status, Transaction, TransactionType
from txaware.errors import MisusedTransaction, PartitionNeeded, TransactionConflict
from txaware.model.groups import position_change_key
from txaware.model.interfaces import CargoCounted, MessagingService
from txaware.model.messages import MessageId, Places
from txaware.model.partitions import parsed_rows, partition_name
from txaware.model.start_places import (
    Position,
    ReadPlace,
    moved_places,
    partition_names,
)

# The places that a group moves to, by the name of a topic or of a partition.
Moves = dict[str, MessageId]


@attrs.frozen
class Group:
    """A group in one topic, with the service that keeps its position and its start."""

    service: MessagingService
    name: str
    topic: str
    start: Position | None
    shares_journal: bool

    def change_key(self, topic: str) -> bytes:
        """Returns the key on which two transactions conflict that both move it there.

        `topic` is the topic or one of its partitions.
        """
        return position_change_key(self.name, parsed_rows(topic))

    def saved(self, transaction: Transaction | None = None) -> Position | None:
        """Returns the position, as a transaction or a fresh snapshot sees it.

        In a topic of several partitions that is the position in each that has one.
        """
        service, group = self.service, self.name
        try:
            return service.position(group, self.topic, transaction=transaction)
        except PartitionNeeded:
            names = partition_names(service, self.topic)
        places = {
            number: service.position(group, name, transaction=transaction)
            for number, name in names.items()
        }
        return {n: one for n, one in places.items() if one is not None}

    def place(self, saved: Position | None) -> Position | None:
        """Returns where it goes on: at the saved position, or else at its start."""
        if not isinstance(saved, dict):
            return self.start if saved is None else saved
        start: Places = {}
        if isinstance(self.start, dict):
            start = self.start
        elif self.start is not None:
            names = partition_names(self.service, self.topic)
            start = dict.fromkeys(names, self.start)
        return {**start, **saved} or None

    def moves(self, saved: Position | None, position: Position | None) -> Moves:
        """Returns where it moves to, by the name of the topic or of the partition."""
        if position.__class__ is dict:
            moved = moved_places(saved, position).items()
            return {partition_name(self.topic, n): place for n, place in moved}
        if position is None or position == saved:
            return {}
        return {self.topic: cast(MessageId, position)}

    def save(self, moves: Mapping[str, MessageId | None], tx: Transaction) -> None:
        """Moves the group with the commit of a transaction; None takes that back."""
        for topic, position in moves.items():
            self.service.save_position(self.name, topic, position, transaction=tx)

    def __str__(self) -> str:
        return f"group {self.name} in {self.topic}"


class PositionsCargo(JoinedCargo):
    """The positions of a group in several partitions."""

    def __init__(self, cargoes: Sequence[CargoCounted]) -> None:
        super().__init__(cargoes)
        self._counted = cargoes

    def count(self) -> None:
        """Counts each."""
        for cargo in self._counted:
            cargo.count()


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
        self.saved: Position | None = None
        self.position = group.start
        self._group = group
        self._tx: Transaction | None = None
        self._write = TrackedWrite()
        self._cargo: CargoCounted | None = None

    def move(self, position: Position) -> None:
        """Goes on from a position, if the transaction commits."""
        self.position = position

    @property
    def _moves(self) -> Moves:
        return self._group.moves(self.saved, self.position)

    def start_tx(self, tx: Transaction) -> None:
        """Reads how far the group has come."""
        if tx.type is TransactionType.LONG:
            raise MisusedTransaction(
                f"{self._group} cannot be read in a long transaction: two of them "
                f"could move it at once without a conflict. Use short ones"
            )
        self.saved = self._group.saved(tx)
        if self.saved is not None:
            self.position = self._group.place(self.saved)
        # Its first pointer goes with the row, whatever checkpoints follow.
        self._tx = tx

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns a key only if the group moved: a poll in vain disturbs nobody."""
        return [self._group.change_key(topic) for topic in self._moves]

    def commit_cargo(self, coordinator: Coordinator) -> CargoCounted | None:
        """Returns the row for the commit to carry; None if it goes before it."""
        group, tx, carrier = self._group, self._tx, self._group.service.carrier
        if tx is None or carrier is None:
            return None
        cargoes: list[CargoCounted] = []
        moves: Mapping[str, MessageId | None] = self._moves or {group.topic: None}
        for topic, place in moves.items():
            cargo = carrier.position_cargo(coordinator, tx, group.name, topic, place)
            if cargo is None:
                return None
            cargoes += (cargo,)
        self._cargo = cargoes[0] if len(cargoes) == 1 else PositionsCargo(cargoes)
        return self._cargo

    def commit_tx(self) -> bool:
        """Writes the row, which nobody sees before the commit."""
        tx, moves = self._tx, self._moves
        if moves and tx is not None:
            self._write.do(lambda: self._group.save(moves, tx))
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
        none = dict.fromkeys(self._moves)
        return tx is None or self._write.undo(lambda: self._group.save(none, tx))


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
        self, cursor: "GroupCursor", saved: Position | None, place: Position | None
    ) -> None:
        self.saved = saved
        self.position = place
        self._cursor = cursor

    def move(self, position: Position) -> None:
        """Goes on from a position, for this consumer only, until it commits."""
        self.position = position
        self._cursor.ahead = self


@attrs.frozen
class Saving:
    """A position that goes with the commit of a transaction open elsewhere."""

    attempt: TransactionAttempt
    position: Position | None


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
        saved = self._group.saved()
        return Ahead(self, saved, self._group.place(saved))

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
        return self._group.start is None or bool(self._group.saved())

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
        self, start: Position | None, *, name: str, clock_s: Callable[[], float]
    ) -> None:
        self.position = start
        self._name = name
        self._clock_s = clock_s
        self._moving: OwnPosition | None = None

    def move(self, position: Position) -> None:
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

    def move(self, position: Position) -> None:
        """Goes on from a position, if the transaction commits."""
        self.position = position

    def post_tx_commit(self) -> None:
        """Moves the consumer."""
        self._cursor.ended(self, committed=True)

    def rollback_tx(self) -> bool:
        """Leaves the consumer where it was."""
        self._cursor.ended(self, committed=False)
        return True
