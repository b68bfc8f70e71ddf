"""A participant with a table of its own, which remembers who wrote each row."""

from collections.abc import Callable

from coordinator.transaction import Transaction
from txaware.messaging import Messaging

DAY_S = 86_400


class RowsElsewhere:
    """Keeps (pointer, row) and reads by `is_visible`, as the README's notes do.

    With `dies` it is as if its process was killed within `commit_tx`: the rows are
    written, nothing is undone, and its coordinator ends the transaction some day.
    """

    def __init__(self, name: str = "rows") -> None:
        self.transaction_aware_name = name
        self.rows: list[tuple[int, str]] = []
        self.new: list[str] = []
        self.dies = False
        self.ask: Callable[[], int | None] | None = None

    def start_tx(self, tx: Transaction) -> None:
        self.tx, self.new = tx, []

    def update_tx(self, tx: Transaction) -> None:
        self.tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return []

    def commit_tx(self) -> bool:
        self.rows += [(self.tx.write_pointer, row) for row in self.new]
        return not self.dies

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        return False

    def smallest_pointer(self) -> int | None:
        if self.ask is not None:
            return self.ask()
        return min((pointer for pointer, _ in self.rows), default=None)

    def seen_by(self, tx: Transaction) -> list[str]:
        return [row for pointer, row in self.rows if tx.is_visible(pointer)]


class NoKeeper(RowsElsewhere):
    """One that was written before there were keepers."""

    smallest_pointer = None  # type: ignore[assignment]


def write(messaging: Messaging, rows: RowsElsewhere, row: str) -> int:
    """Writes a row with a message beside it; answers its pointer."""
    try:
        with messaging.transaction(rows) as tx:
            messaging.publisher("t").publish(row.encode())
            rows.new.append(row)
    except Exception:
        if not rows.dies:
            raise
    return tx.transaction.transaction_id


def killed(messaging: Messaging, rows: RowsElsewhere, row: str = "never") -> int:
    """Writes a row and dies before the commit; answers its pointer."""
    rows.dies = True
    pointer = write(messaging, rows, row)
    rows.dies = False
    return pointer
