"""Admits writes to stores whose rows do not lie beside the coordinator's journal."""

from collections.abc import Callable, Iterable

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.open_transactions import OpenTransaction
from coordinator.transaction import Transaction


@attrs.frozen(eq=False)
class EnteredElsewhere:
    """A write of rows that are on disk before it leaves."""

    inside: OpenTransaction
    outlives_process: bool = True

    @property
    def transaction_id(self) -> int:
        """The transaction that it is of."""
        return self.inside.transaction_id


class PersistingBarrier:
    """The barrier of a coordinator, for a store of which its journal knows nothing.

    A write enters once a crash cannot forget that its transaction began: its rows could
    outlive the crash, and nobody would know whose they are.
    """

    def __init__(self, coordinator: EmbeddedCoordinator) -> None:
        self._coordinator = coordinator
        self._barrier = coordinator.barrier

    def enter(self, transaction_id: int, write: object = None) -> EnteredElsewhere:
        """Begins a write once the start of its transaction is on disk."""
        tx = Transaction(transaction_id, 0, write_pointer=transaction_id)
        self._coordinator.note_writers(tx, ())
        self._coordinator.persist(tx)
        return EnteredElsewhere(self._barrier.enter(transaction_id, write))

    def leave(self, entry: EnteredElsewhere, write: object = None) -> bool:
        """Ends a write, however it went; tells whether the transaction is open."""
        return self._barrier.leave(entry.inside, write)

    def is_invalid(self, pointer: int) -> bool:
        """Tells whether nobody will ever see the writes made with the pointer."""
        return self._barrier.is_invalid(pointer)

    def on_end(self, tell: Callable[[Iterable[int]], object]) -> None:
        """Has `tell` called with the pointers that have ended, under the lock."""
        self._barrier.on_end(tell)
