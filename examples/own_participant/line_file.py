"""A participant of your own: a file of lines, each with the pointer that wrote it."""

import json
import os
from pathlib import Path

from coordinator import Coordinator, Outcome, Transaction

# Lines whose transaction is known to have committed; every snapshot sees them.
SETTLED = 0

Line = tuple[int, str, str]


class LineFile:
    """Keys and values in a file, which change in the transaction that joins it.

    One block at a time uses it. What a crash left in the file is hidden by its pointer,
    until `settle` asks what became of it.
    """

    def __init__(self, path: Path) -> None:
        self.transaction_aware_name = f"lines of {path}"
        self._path = path
        self._lines: list[Line] = []
        if path.exists():
            read = (json.loads(line) for line in path.read_text().splitlines())
            self._lines = [(pointer, key, value) for pointer, key, value in read]
        self._new: list[Line] = []
        self._tx: Transaction | None = None

    def put(self, key: str, value: str) -> None:
        """Sets a value, in the open block."""
        self._new.append((self.tx.write_pointer, key, value))

    def get(self, key: str) -> str | None:
        """Returns the value that the open block sees, its own included."""
        seen = [
            value
            for pointer, name, value in [*self._lines, *self._new]
            if name == key and (pointer == SETTLED or self.tx.is_visible(pointer))
        ]
        return seen[-1] if seen else None

    @property
    def tx(self) -> Transaction:
        """The open block's transaction."""
        if self._tx is None:
            raise RuntimeError(f"{self.transaction_aware_name}: no block is open")
        return self._tx

    def start_tx(self, tx: Transaction) -> None:
        """Begins with nothing changed."""
        self._tx, self._new = tx, []

    def update_tx(self, tx: Transaction) -> None:
        """Goes on with the pointer that follows a checkpoint."""
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        """Returns a key for each value that changed, with the name in front."""
        changed = {key for _, key, _ in self._written()}
        return [f"{self.transaction_aware_name}:{key}".encode() for key in changed]

    def commit_tx(self) -> bool:
        """Writes the changes, on disk when this returns; others judge them."""
        if self._new:
            self._lines += self._new
            self._new = []
            self._save()
        return True

    def post_tx_commit(self) -> None:
        """Lets go of the transaction."""
        self._tx = None

    def post_tx_prepare(self) -> None:
        """Lets go of a transaction that others end."""
        self._tx = None

    def rollback_tx(self) -> bool:
        """Removes what was written; True, as nothing is left."""
        own = self._written()
        if own:
            self._lines = [line for line in self._lines if line not in own]
            self._save()
        self._tx, self._new = None, []
        return True

    def smallest_pointer(self) -> int | None:
        """Returns the least pointer in the file, from which on nothing is forgotten."""
        return min((line[0] for line in self._lines if line[0]), default=None)

    def settle(self, coordinator: Coordinator) -> None:
        """Writes down what became of each line; call it at the start, now and then."""
        kept: list[Line] = []
        for pointer, key, value in self._lines:
            outcome = pointer and coordinator.outcome(pointer)
            if outcome is Outcome.FORGOTTEN:
                raise RuntimeError(f"nobody knows whether {pointer} has committed")
            if outcome is Outcome.IN_PROGRESS:
                kept.append((pointer, key, value))
            elif outcome is not Outcome.ROLLED_BACK:
                kept.append((SETTLED, key, value))
        if kept != self._lines:
            self._lines = kept
            self._save()

    def _written(self) -> list[Line]:
        own = () if self._tx is None else self._tx.pointers
        return [line for line in [*self._lines, *self._new] if line[0] in own]

    def _save(self) -> None:
        aside = self._path.with_suffix(".new")
        with aside.open("w") as file:
            file.writelines(json.dumps(line) + "\n" for line in self._lines)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)
