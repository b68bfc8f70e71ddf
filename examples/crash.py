"""A program is killed between its write and its commit: nobody ever sees the write.

A child writes lines to a file of its own, each marked with the pointer of its
transaction. It is killed after the second line is in the file and before that
transaction commits. Whoever reads later asks the coordinator which lines count.

Prints:
the child wrote 2 lines, and was killed in the middle of the second transaction
in the file:     paid ann, paid bob
what counts:     paid ann
after a restart: paid ann, paid cid
"""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from coordinator import EmbeddedCoordinator, Transaction, transaction


class Lines:
    """A file that takes part in transactions: it only grows, and marks every line."""

    transaction_aware_name = "lines"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: list[str] = []

    def start_tx(self, tx: Transaction) -> None:
        self._tx, self._new = tx, []

    def update_tx(self, tx: Transaction) -> None:
        self._tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return []

    def commit_tx(self) -> bool:
        with self._path.open("a") as file:
            for line in self._new:
                file.write(f"{self._tx.write_pointer} {line}\n")
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        """A line cannot be taken back, so the transaction has to become invalid."""
        return not self._new

    def write(self, line: str) -> None:
        self._new.append(line)

    def read(self, snapshot: Transaction | None = None) -> str:
        """The lines that a snapshot may see, or all of them."""
        rows = [row.split(" ", 1) for row in self._path.read_text().splitlines()]
        lines = [
            line for at, line in rows if not snapshot or snapshot.is_visible(int(at))
        ]
        return ", ".join(lines)


class KilledAfter(Lines):
    """Stops the process for good once its line is in the file."""

    def commit_tx(self) -> bool:
        super().commit_tx()
        if self._new == ["paid bob"]:
            signal.raise_signal(signal.SIGKILL)
        return True


def child(directory: Path) -> None:
    lines = KilledAfter(directory / "lines")
    with EmbeddedCoordinator.open(directory) as coordinator:
        for name in ("ann", "bob"):
            with transaction(coordinator, lines):
                lines.write(f"paid {name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        dead = subprocess.run([sys.executable, __file__, name], check=False)
        if dead.returncode != -signal.SIGKILL:
            raise SystemExit(f"the child ended with {dead.returncode}")
        lines = Lines(directory / "lines")
        print(
            "the child wrote 2 lines, and was killed in the middle of the second "
            "transaction"
        )
        print(f"in the file:     {lines.read()}")
        with EmbeddedCoordinator.open(directory) as coordinator:
            print(f"what counts:     {lines.read(coordinator.snapshot())}")
            with transaction(coordinator, lines):
                lines.write("paid cid")
        with EmbeddedCoordinator.open(directory) as coordinator:
            print(f"after a restart: {lines.read(coordinator.snapshot())}")


if __name__ == "__main__":
    child(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
