"""Changes a group in one transaction, together with the positions that it concerns."""

from collections.abc import Callable, Iterable
from functools import partial

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator, Participant
from coordinator.participants import TrackedWrite
from coordinator.transaction import Transaction
from txaware.errors import TransactionConflict
from txaware.model.groups import GroupName, position_change_key
from txaware.model.interfaces import Write
from txaware.model.messages import MessageId
from txaware.model.topics import TopicName
from txaware.service.store_context import StoreContext, carrying
from txaware.service.write.message_cargo import RowCargo
from txaware.store.group_table import GroupRow
from txaware.store.journaled_table import keep_earlier_versions_away
from txaware.store.kinds import GROUPS, POSITIONS
from txaware.store.versioned_rows import VersionedRows, without_pointer

# A member that commits all the time is in the way of a move for a moment only.
MOST_TRIES = 100

# Returns where a partition stands after the change, as a transaction sees it now.
NewPosition = Callable[[Transaction], MessageId]


@attrs.frozen
class Moves:
    """The rows that a change writes: of the group, and of positions by their topics.

    Without a row it is deleted; without a `group` only positions move.
    """

    group: GroupName | None
    row: Callable[[Transaction], GroupRow | None]
    positions: tuple[tuple[TopicName, NewPosition], ...]


class GroupChanges:
    """Writes changes of groups, one transaction each."""

    def __init__(self, store_context: StoreContext) -> None:
        self._store_context = store_context
        self._coordinator = store_context.coordinator

    def write(self, name: GroupName, moves: Moves) -> "GroupWrite":
        """Returns once a change is on disk and visible, with what it wrote.

        A commit of a member that moved a position meanwhile comes first: then it is
        tried again, from that position.
        """
        keep_earlier_versions_away(self._store_context.table)
        for _ in range(MOST_TRIES - 1):
            try:
                return self._try(name, moves)
            except TransactionConflict:
                continue
        return self._try(name, moves)

    def _try(self, name: GroupName, moves: Moves) -> "GroupWrite":
        written = GroupWrite(self._store_context, name, moves)
        context = TransactionContext(self._coordinator, written)
        context.start()
        context.finish()
        return written


class GroupWrite(Participant):
    """The participant that writes a change of a group with its positions."""

    flushes_last = True
    # The pointer that it was written with.
    pointer = 0

    def __init__(
        self, store_context: StoreContext, name: GroupName, moves: Moves
    ) -> None:
        self.shares_journal = store_context.barrier is not None
        self.transaction_aware_name = f"group {name}"
        self.row: GroupRow | None = None
        self._store_context = store_context
        self._name = name
        self._moves = moves
        self._tx: Transaction | None = None
        self._writes: list[Write] = []
        self._write = TrackedWrite()

    def start_tx(self, tx: Transaction) -> None:
        """Reads where partitions stand."""
        self._tx = tx
        pointer = self.pointer = tx.transaction_id
        if self._moves.group is not None:
            self.row = self._moves.row(tx)
            self._writes.append(GROUPS.write(self._name, pointer, self.row))
        for topic, position in self._moves.positions:
            place = self._name.name, topic
            self._writes.append(POSITIONS.write(place, pointer, position(tx)))

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns the key of the group, and those of all positions that it concerns."""
        if self._moves.group is not None:
            yield b"group:" + self._name.key
        for topic, _ in self._moves.positions:
            yield position_change_key(self._name.name, topic)

    def commit_cargo(self, coordinator: Coordinator) -> RowCargo | None:
        """Returns the rows for the commit to carry; None if they go before it."""
        store_context = self._store_context
        size_bytes = sum(len(key) + len(value or b"") for key, value in self._writes)
        fits = size_bytes <= store_context.settings.sync_limit_bytes
        if coordinator is not carrying(store_context) or not fits:
            return None
        return RowCargo(self._writes)

    def commit_tx(self) -> bool:
        """Writes the rows, which nobody sees before the commit."""
        tx = self._tx
        if tx is not None:
            writes = self._store_context.writes
            self._write.do(lambda: writes.write(tx, self._writes))
        return True

    def post_tx_commit(self) -> None:
        """Has versions that nobody reads any more removed now and then."""
        wrote = self._store_context.versions.wrote
        for kind in (GROUPS, POSITIONS):
            keys = [key for key, _ in self._writes if key.startswith(kind.prefix)]
            wrote(kind, [*map(without_pointer, keys)])

    def rollback_tx(self) -> bool:
        """Takes the rows back; False where nobody knows whether they were written."""
        tx = self._tx
        return tx is None or self._write.undo(partial(self._take_back, tx))

    def _take_back(self, tx: Transaction) -> None:
        with self._store_context.writes.undoing(tx.transaction_id):
            rows = VersionedRows(self._store_context.table)
            rows.take_back([key for key, _ in self._writes])
