"""The bank of `txaware demo`: balances in a file, which take part in transactions."""

import json
import os
import signal
from pathlib import Path

from coordinator import Participant, Transaction

TRANSFERS = "transfers"


class Accounts(Participant):
    """A file of balances: each line is a version, with the pointer that wrote it.

    A transaction sees a version if it sees its pointer, so a crash needs no undo.
    """

    transaction_aware_name = "accounts"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[str, int] = {}
        path.touch()

    def start_tx(self, tx: Transaction) -> None:
        """Makes `balance` see the snapshot of `tx`."""
        self._tx, self._new = tx, {}

    def update_tx(self, tx: Transaction) -> None:
        """Goes on with a new pointer."""
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        """Returns the accounts; two transactions that change one account conflict."""
        return [name.encode() for name in self._new]

    def commit_tx(self) -> bool:
        """Writes the new versions; they are on disk when it returns."""
        with self._path.open("a") as file:
            for name, balance in self._new.items():
                print(json.dumps([self._tx.write_pointer, name, balance]), file=file)
            file.flush()
            os.fsync(file.fileno())
        return True

    def rollback_tx(self) -> bool:
        """Takes the versions of this transaction out of the file again."""
        mine = self._tx.pointers
        kept = [json.dumps(row) for row in self.rows() if row[0] not in mine]
        new = self._path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in kept))
        new.replace(self._path)
        return True

    def move(self, amount: int, source: str, target: str) -> None:
        """Moves money; raises if there is not enough."""
        if self.balance(source) < amount:
            raise ValueError(f"{source} has no {amount}")
        self._new[source] = self.balance(source) - amount
        self._new[target] = self.balance(target) + amount

    def open_account(self, name: str, balance: int) -> None:
        """Opens an account with a balance."""
        self._new[name] = balance

    def balance(self, name: str) -> int:
        """Returns what this transaction wrote, or else the last version it may see."""
        if name in self._new:
            return self._new[name]
        seen = [
            (pointer, balance)
            for pointer, owner, balance in self.rows()
            if owner == name and self._tx.is_visible(pointer)
        ]
        return max(seen, default=(0, 0))[1]

    def rows(self) -> list[tuple[int, str, int]]:
        """Returns every version in the file, whoever may see it."""
        return [tuple(json.loads(line)) for line in self._path.read_text().splitlines()]


class Last(Participant):
    """A participant that comes after the messages, when nothing but the commit is left.

    It does something terrible there.
    """

    flushes_last = True
    transaction_aware_name = "the last one"

    def commit_tx(self) -> bool:
        """Returns False, which refuses the whole transaction."""
        return False

    def rollback_tx(self) -> bool:
        """Returns True, as it wrote nothing."""
        return True


class Killer(Last):
    """A participant that kills this process, as a power cut would."""

    def commit_tx(self) -> bool:
        """Kills the process, and does not return."""
        os.kill(os.getpid(), signal.SIGKILL)
        return False
