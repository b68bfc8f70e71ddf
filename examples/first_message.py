"""The smallest program: publish, poll, a transaction, a rollback, a group's position.

Without an argument everything is in memory and ends with the process. With a directory
it is kept there: run it twice, and the second run finds the orders of the first.

    python examples/first_message.py ./orders

Prints:
orders from before: none
published at once: tea
inside the transaction, others still see: tea
after its commit: tea, cake, milk
after a rollback: tea, cake, milk
the kitchen takes: tea, cake
it drops them, and the rollback gives them back: tea, cake
it takes what is left: milk
"""

import sys
from collections.abc import Iterable

import txaware


def main(url: str) -> None:
    with txaware.connect(url) as messaging:
        messaging.create_topic("orders", exist_ok=True)
        earlier = messaging.consumer("orders")
        print(f"orders from before: {show(earlier.poll(10_000))}")

        def since() -> str:
            """What everybody sees by now: what is committed."""
            return show(
                messaging.poll(
                    "orders",
                    start=earlier.position,
                    inclusive=False,
                    isolation="committed",
                )
            )

        # Without a transaction a message is on disk, and seen, when publish returns.
        orders = messaging.publisher("orders")
        orders.publish(b"tea")
        expect(since(), "tea", label="published at once")

        # In a transaction all of them appear with its commit.
        with messaging.transaction():
            orders.publish(b"cake")
            orders.publish(b"milk")
            expect(since(), "tea", label="inside the transaction, others still see")
        expect(since(), "tea, cake, milk", label="after its commit")

        # Or none does, where the block raises.
        try:
            with messaging.transaction():
                orders.publish(b"soup")
                raise LookupError("no soup today")
        except LookupError:
            expect(since(), "tea, cake, milk", label="after a rollback")

        # A group has one position, which moves with the commit.
        kitchen = messaging.consumer("orders", group="kitchen")
        try:
            with messaging.transaction():
                expect(show(kitchen.poll(2)), "tea, cake", label="the kitchen takes")
                raise ArithmeticError("dropped")
        except ArithmeticError:
            with messaging.transaction():
                label = "it drops them, and the rollback gives them back"
                expect(show(kitchen.poll(2)), "tea, cake", label=label)
        with messaging.transaction():
            expect(show(kitchen.poll()), "milk", label="it takes what is left")


def show(messages: Iterable[txaware.Message]) -> str:
    return ", ".join(message.payload.decode() for message in messages) or "none"


def expect(found: str, promised: str, *, label: str) -> None:
    assert found == promised, f"{label}: {found}, and not {promised}"
    print(f"{label}: {found}")


if __name__ == "__main__":
    main(f"leveldb:{sys.argv[1]}" if len(sys.argv) > 1 else "memory:")
