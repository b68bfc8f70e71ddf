"""Money moves between two accounts, and both balances change or neither.

Shows what a participant is (a table that keeps a version of each balance for every
transaction that wrote it), a reader that still sees the state from before, a transfer
that fails half-way and leaves nothing behind, and two that meet and are run again.

Prints:
ann 30, bob 0
while 4 are on their way, a reader sees: ann 30, bob 0
afterwards: ann 26, bob 4
ann cannot pay 100, and nothing changed: ann 26, bob 4
20 transfers from 4 threads, each run again on a conflict: ann 6, bob 24
"""

import threading

import txaware
from coordinator import Transaction, retry_on_conflict


class Accounts:
    """A table of balances that takes part in transactions."""

    transaction_aware_name = "accounts"

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[int, int]]] = {}
        self._here = threading.local()

    def start_tx(self, tx: Transaction) -> None:
        self._here.tx, self._here.balances = tx, {}

    def update_tx(self, tx: Transaction) -> None:
        self._here.tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return [name.encode() for name in self._here.balances]

    def commit_tx(self) -> bool:
        for name, balance in self._here.balances.items():
            version = (self._here.tx.write_pointer, balance)
            self._versions.setdefault(name, []).append(version)
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        mine = self._here.tx.pointers
        for name in self._here.balances:
            versions = self._versions.get(name, [])
            versions[:] = [one for one in versions if one[0] not in mine]
        return True

    def balance(self, name: str) -> int:
        """What this transaction wrote, or else the last version that it may see."""
        if name in self._here.balances:
            return int(self._here.balances[name])
        seen = (one for one in self._versions.get(name, ()) if self._sees(one[0]))
        return max(seen, default=(0, 0))[1]

    def add(self, name: str, amount: int) -> None:
        self._here.balances[name] = self.balance(name) + amount

    def _sees(self, pointer: int) -> bool:
        return bool(self._here.tx.is_visible(pointer))


def main() -> None:
    accounts = Accounts()
    with txaware.connect("memory:") as messaging:

        @retry_on_conflict
        def transfer(amount: int, source: str, target: str) -> None:
            with messaging.transaction(accounts):
                accounts.add(source, -amount)
                accounts.add(target, amount)
                if accounts.balance(source) < 0:
                    raise ValueError(f"{source} cannot pay {amount}")

        def balances() -> str:
            with messaging.transaction(accounts):
                both = [f"{name} {accounts.balance(name)}" for name in ("ann", "bob")]
            return ", ".join(both)

        def in_another_thread() -> None:
            print(f"while 4 are on their way, a reader sees: {balances()}")

        with messaging.transaction(accounts):
            accounts.add("ann", 30)
        print(balances())

        with messaging.transaction(accounts):
            accounts.add("ann", -4)
            accounts.add("bob", 4)
            reader = threading.Thread(target=in_another_thread)
            reader.start()
            reader.join()
        print(f"afterwards: {balances()}")

        try:
            transfer(100, "ann", "bob")
        except ValueError as error:
            print(f"{error}, and nothing changed: {balances()}")

        def five() -> None:
            for _ in range(5):
                transfer(1, "ann", "bob")

        threads = [threading.Thread(target=five) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(
            f"20 transfers from 4 threads, each run again on a conflict: {balances()}"
        )


if __name__ == "__main__":
    main()
