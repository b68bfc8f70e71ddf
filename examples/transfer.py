"""Money moves between two accounts, and a message tells of it: all of it or nothing.

Shows a table whose rows commit with the messages that tell of them, a reader that
still sees the state from before, a transfer that fails half-way and leaves nothing
behind, and two that meet and are run again. At the end an auditor, who reads only the
messages, comes to the same balances.

Prints:
ann 30, bob 0; payments told: 0
while ann pays 4, a reader sees: ann 30, bob 0; payments told: 0
afterwards: ann 26, bob 4; payments told: 1
ann cannot pay 100, and nothing changed: ann 26, bob 4; payments told: 1
20 more from 4 threads, run again on a conflict: ann 6, bob 24; payments told: 21
an auditor who knows only what was told: ann 6, bob 24
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import txaware
from txaware import retry_on_conflict


def main() -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("payments")
        payments = messaging.publisher("payments")
        accounts = messaging.table(
            "accounts", encode=lambda amount: b"%d" % amount, decode=int
        )

        def balance(name: str) -> int:
            return accounts.get(name.encode()) or 0

        def add(name: str, amount: int) -> None:
            accounts.put(name.encode(), balance(name) + amount)

        @retry_on_conflict
        def transfer(amount: int, source: str, target: str) -> None:
            with messaging.transaction():
                payments.publish(f"{source} paid {target} {amount}".encode())
                add(source, -amount)
                add(target, amount)
                if balance(source) < 0:
                    raise ValueError(f"{source} cannot pay {amount}")

        def told() -> list[str]:
            """What a consumer reads from the beginning, in the open transaction."""
            page = messaging.consumer("payments").poll(1000)
            return [message.payload.decode() for message in page]

        def state() -> str:
            """The balances and the messages in one snapshot: they always agree."""
            with messaging.transaction():
                found = {name: balance(name) for name in ("ann", "bob")}
                lines = told()
            assert audit(lines) == found, f"{lines} make {audit(lines)}, not {found}"
            return f"{show(found)}; payments told: {len(lines)}"

        with messaging.transaction():
            add("ann", 30)
        print(state())

        with messaging.transaction():
            add("ann", -4)
            add("bob", 4)
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
