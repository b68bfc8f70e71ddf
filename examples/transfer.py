"""Money moves between two accounts, and a message tells of it: all of it or nothing.

Shows what a participant is (a table that keeps a version of each balance for every
transaction that wrote it, and says which of those nobody may forget yet), a message
that is published with the change it tells of, a reader that still sees the state from
before, a transfer that fails half-way and leaves nothing behind, and two that meet and
are run again. At the end an auditor, who reads nothing but the messages, comes to the
same balances.

Prints:
ann 30, bob 0; payments told: 0
while ann pays 4, a reader sees: ann 30, bob 0; payments told: 0
afterwards: ann 26, bob 4; payments told: 1
ann cannot pay 100, and nothing changed: ann 26, bob 4; payments told: 1
20 more from 4 threads, run again on a conflict: ann 6, bob 24; payments told: 21
an auditor who knows only what was told: ann 6, bob 24
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import txaware
from coordinator import Transaction, retry_on_conflict


class Accounts:
    """A table of balances that takes part in transactions."""

    transaction_aware_name = "accounts"

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()
        self._here = threading.local()

    def start_tx(self, tx: Transaction) -> None:
        self._here.tx, self._here.balances = tx, {}

    def update_tx(self, tx: Transaction) -> None:
        self._here.tx = tx

    def get_tx_changes(self) -> list[bytes]:
        return [name.encode() for name in self._here.balances]

    def commit_tx(self) -> bool:
        with self._lock:
            for name, balance in self._here.balances.items():
                version = (self._here.tx.write_pointer, balance)
                self._versions.setdefault(name, []).append(version)
        return True

    def post_tx_commit(self) -> None:
        pass

    def rollback_tx(self) -> bool:
        mine = self._here.tx.pointers
        with self._lock:
            for name in self._here.balances:
                versions = self._versions.get(name, [])
                versions[:] = [one for one in versions if one[0] not in mine]
        return True

    def smallest_pointer(self) -> int | None:
        """From here on nothing is forgotten: these versions are judged by pointers."""
        with self._lock:
            versions = [one for found in self._versions.values() for one in found]
        return min((pointer for pointer, _ in versions), default=None)

    def balance(self, name: str) -> int:
        """What this transaction wrote, or else the last version that it may see."""
        if name in self._here.balances:
            return int(self._here.balances[name])
        with self._lock:
            versions = list(self._versions.get(name, ()))
        return max((one for one in versions if self._sees(one[0])), default=(0, 0))[1]

    def add(self, name: str, amount: int) -> None:
        self._here.balances[name] = self.balance(name) + amount

    def _sees(self, pointer: int) -> bool:
        return bool(self._here.tx.is_visible(pointer))


def main() -> None:
    accounts = Accounts()
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("payments")
        messaging.register_keeper(accounts)
        payments = messaging.publisher("payments")

        @retry_on_conflict
        def transfer(amount: int, source: str, target: str) -> None:
            with messaging.transaction(accounts):
                payments.publish(f"{source} paid {target} {amount}".encode())
                accounts.add(source, -amount)
                accounts.add(target, amount)
                if accounts.balance(source) < 0:
                    raise ValueError(f"{source} cannot pay {amount}")

        def told() -> list[str]:
            """What a consumer reads from the beginning, in the open transaction."""
            page = messaging.consumer("payments").poll(1000)
            return [message.payload.decode() for message in page]

        def state() -> str:
            """The balances and the messages in one snapshot: they always agree."""
            with messaging.transaction(accounts):
                found = {name: accounts.balance(name) for name in ("ann", "bob")}
                lines = told()
            assert audit(lines) == found, f"{lines} make {audit(lines)}, not {found}"
            return f"{show(found)}; payments told: {len(lines)}"

        with messaging.transaction(accounts):
            accounts.add("ann", 30)
        print(state())

        with messaging.transaction(accounts):
            accounts.add("ann", -4)
            accounts.add("bob", 4)
            payments.publish(b"ann paid bob 4")
            in_another_thread(
                lambda: print(f"while ann pays 4, a reader sees: {state()}")
            )
        print(f"afterwards: {state()}")

        try:
            transfer(100, "ann", "bob")
        except ValueError as error:
            print(f"{error}, and nothing changed: {state()}")

        def five() -> None:
            for _ in range(5):
                transfer(1, "ann", "bob")

        in_another_thread(five, five, five, five)
        print(f"20 more from 4 threads, run again on a conflict: {state()}")

        with messaging.transaction():
            found = audit(told())
        assert found == {"ann": 6, "bob": 24}
        print(f"an auditor who knows only what was told: {show(found)}")


def audit(lines: list[str]) -> dict[str, int]:
    """The balances that follow from what was told, since ann began with 30."""
    found = {"ann": 30, "bob": 0}
    for line in lines:
        source, _, target, amount = line.split()
        found[source] -= int(amount)
        found[target] += int(amount)
    return found


def show(balances: dict[str, int]) -> str:
    return ", ".join(f"{name} {balance}" for name, balance in balances.items())


def in_another_thread(*functions: Callable[[], object]) -> None:
    """Runs each in a thread of its own, and raises what one of them raises."""
    with ThreadPoolExecutor(len(functions)) as threads:
        for done in [threads.submit(function) for function in functions]:
            done.result()


if __name__ == "__main__":
    main()
