"""The changes that one transaction makes to tables: held, and written at its commit."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Literal

import attrs

from coordinator.interfaces import Coordinator, Participant
from coordinator.participants import TrackedWrite
from coordinator.transaction import Transaction, TransactionType, VisibilityLevel
from txaware.errors import MisusedTransaction, RequestTooLarge
from txaware.model.interfaces import CargoCounted
from txaware.model.rows import KeyRange, RowChange
from txaware.model.table_service import TableService

Conflicts = Literal["row", "none"]

# What a key takes in the request of its commit beside itself and its table's name.
_BESIDE_KEY = 16


@attrs.frozen
class HeldChange:
    """A change before its commit, with the pointer that was current as it was made."""

    change: RowChange
    pointer: int
    before: "HeldChange | None" = None


class TableChanges(Participant):
    """The participant that writes one table's changes with the commit.

    It holds them in memory, so that reads in its transaction see them, and nobody else
    does. They are written in as few pieces as the service takes. A change of a row
    conflicts with any other transaction that changed it meanwhile, unless `conflicts`
    is `"none"`: then the change of the later transaction counts.
    """

    def __init__(
        self,
        service: TableService,
        table: str,
        *,
        conflicts: Conflicts,
        shares_journal: bool,
        request_bytes: int | None = None,
    ) -> None:
        self.shares_journal = shares_journal
        self.transaction_aware_name = f"table {table}"
        self._service = service
        self._table = table
        self._conflicts = conflicts
        self._request_bytes = request_bytes if conflicts == "row" else None
        self._named_bytes = 0
        self._tx: Transaction | None = None
        self._held: dict[bytes, HeldChange] = {}
        # In the order of their coming, so that neighbours lie together in memory.
        self._unwritten: dict[bytes, None] = {}
        self._writes: list[tuple[TrackedWrite, list[bytes]]] = []
        self._cargo: CargoCounted | None = None

    def change(self, change: RowChange) -> None:
        """Holds a checked change of a row for the commit, if that can name it."""
        pointer = self._transaction.write_pointer
        held = self._held.get(change.key)
        if held is None and self._request_bytes is not None:
            self._name(change.key, self._request_bytes)
        if held is not None and held.pointer == pointer:
            held = held.before
        self._held[change.key] = HeldChange(change, pointer, held)
        self._unwritten[change.key] = None

    def _name(self, key: bytes, limit_bytes: int) -> None:
        """Counts a key among those that the commit names in one request."""
        size_bytes = (len(self._table) + len(key)) * 4 // 3 + _BESIDE_KEY
        if self._named_bytes + size_bytes > limit_bytes:
            raise RequestTooLarge(
                f"the keys of more than {len(self._held)} changed rows are above the "
                f"{limit_bytes} bytes of the request that commits them: change fewer "
                f"rows in a transaction, or use a table that was opened with "
                f'conflicts="none"'
            )
        self._named_bytes += size_bytes

    def seen(self, key: bytes) -> RowChange | None:
        """Returns the change of a row that its own transaction sees, if any."""
        return self._seen(self._held.get(key))

    def seen_within(self, keys: KeyRange) -> dict[bytes, RowChange]:
        """Returns the changes in a range that its own transaction sees."""
        return {
            key: change
            for key, held in self._held.items()
            if _within(keys, key) and (change := self._seen(held)) is not None
        }

    def _seen(self, held: HeldChange | None) -> RowChange | None:
        tx = self._transaction
        excluded = tx.visibility_level is VisibilityLevel.SNAPSHOT_EXCLUDE_CURRENT
        if excluded and held is not None and held.pointer == tx.write_pointer:
            held = held.before
        return None if held is None else held.change

    def start_tx(self, tx: Transaction) -> None:
        """Begins to hold changes for a transaction."""
        if tx.type is TransactionType.LONG and self._conflicts == "row":
            raise MisusedTransaction(
                f"{self.transaction_aware_name} cannot be changed in a long "
                f"transaction: two of them could change a row at once without a "
                f'conflict. Use short ones, or messaging.table(name, conflicts="none")'
            )
        self._tx = tx

    def update_tx(self, tx: Transaction) -> None:
        """Goes on with a new pointer, which tells later changes from earlier ones."""
        self._tx = tx

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns a key for each row that changed."""
        if self._conflicts == "none":
            return ()
        prefix = f"table:{self._table}:".encode("ascii")
        return [prefix + key for key in self._held]

    def commit_cargo(self, coordinator: Coordinator) -> CargoCounted | None:
        """Returns the changes for the commit to carry; None if they go before it."""
        carrier = self._service.carrier
        if carrier is None or self._writes:
            return None
        self._cargo = carrier.row_cargo(
            coordinator, self._transaction, [(self._table, list(self._changes()))]
        )
        return self._cargo

    def commit_tx(self) -> bool:
        """Writes the changes, which nobody sees before the commit.

        Rows carry the first pointer, whatever checkpoints follow: the last change of a
        row counts.
        """
        if not self._unwritten:
            return True
        for piece in self._service.cut_rows(self._changes()):
            write = TrackedWrite()
            self._writes.append((write, [change.key for change in piece]))
            write.do(partial(self._save, piece))
        self._unwritten.clear()
        return True

    def post_tx_commit(self) -> None:
        """Counts rows that the commit carried, and forgets all changes."""
        if self._cargo is not None:
            self._cargo.count()
        self._held = {}

    def post_tx_prepare(self) -> None:
        """Forgets all changes, which are written."""
        self._held = {}

    def rollback_tx(self) -> bool:
        """Takes back what was written; False where nobody knows whether it was."""
        undone = [
            write.undo(partial(self._take_back, keys)) for write, keys in self._writes
        ]
        return all(undone)

    def _changes(self) -> Iterator[RowChange]:
        return (self._held[key].change for key in self._unwritten)

    def _save(self, changes: list[RowChange]) -> None:
        self._service.save_rows(self._table, changes, transaction=self._transaction)

    def _take_back(self, keys: list[bytes]) -> None:
        self._service.take_back_rows(self._table, keys, transaction=self._transaction)

    @property
    def _transaction(self) -> Transaction:
        if self._tx is None:
            raise MisusedTransaction(
                f"{self.transaction_aware_name} takes part in no transaction"
            )
        return self._tx


def _within(keys: KeyRange, key: bytes) -> bool:
    return (
        key.startswith(keys.prefix)
        and (keys.start is None or keys.start <= key)
        and (keys.stop is None or key < keys.stop)
    )
