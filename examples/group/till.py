"""A till bills orders, and shares them with every other till that is started.

In one terminal, with a server beside it (`txaware serve --data ./data`):

    python examples/group/till.py http://127.0.0.1:11015 --orders 200

It makes a topic of six partitions, publishes 200 orders, and bills them. In a second
terminal, meanwhile:

    python examples/group/till.py http://127.0.0.1:11015

Both have three partitions then. Kill one of them, however hard: the other one has all
six about a second later, and goes on behind the last order that was billed. What a till
was killed in the midst of is billed once, by the other.

Without an address there are two tills in this process, one after the other.

Prints:
till-1 has partitions 0, 1, 2, 3, 4, 5 of orders
till-1 has billed 12 orders, and leaves
till-2 has partitions 0, 1, 2, 3, 4, 5 of orders
till-2 has billed 8 orders, and leaves
20 bills for 20 orders
"""

import argparse
import time

import txaware
from txaware import Messaging

PARTITIONS = 6


def prepare(messaging: Messaging, orders: int) -> None:
    """Makes the topics, and publishes orders of customers."""
    messaging.create_topic("orders", partitions=PARTITIONS, exist_ok=True)
    messaging.create_topic("bills", exist_ok=True)
    publisher = messaging.publisher("orders")
    for number in range(orders):
        customer = b"customer-%d" % (number % 50)
        publisher.publish(b"order %d" % number, key=customer)


def bill(
    messaging: Messaging,
    name: str,
    *,
    most: int | None = None,
    idle_s: float = 0.0,
    pause_s: float = 0.0,
) -> None:
    """Bills orders until there were no more for `idle_s`, or as many as `most`."""

    def assigned(got: dict[str, list[int]]) -> None:
        for topic, numbers in got.items():
            print(f"{name} has partitions {', '.join(map(str, numbers))} of {topic}")

    billed, idle_since = 0, time.monotonic()
    with messaging.member("billing", topics=["orders"], on_assigned=assigned) as member:
        while most is None or billed < most:
            member.wait(min(1.0, idle_s))
            limit = 10 if most is None else min(10, most - billed)
            # The bill and the place in the orders are one transaction.
            with messaging.transaction():
                orders = member.poll(limit=limit)
                for order in orders:
                    time.sleep(pause_s)
                    messaging.publisher("bills").publish(b"bill for " + order.payload)
            billed += len(orders)
            if orders:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > idle_s:
                break
    print(f"{name} has billed {billed} orders, and leaves")


def main() -> None:
    """Runs a till at a server, or two here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--orders", type=int, default=0)
    parser.add_argument("--name", default=f"till at {time.strftime('%H:%M:%S')}")
    options = parser.parse_args()
    if options.url is not None:
        with txaware.connect(options.url) as messaging:
            prepare(messaging, options.orders)
            bill(messaging, options.name, idle_s=60, pause_s=0.1)
        return
    with txaware.connect("memory:") as messaging:
        prepare(messaging, 20)
        bill(messaging, "till-1", most=12)
        bill(messaging, "till-2")
        bills = [one.payload for one in messaging.poll("bills", isolation="committed")]
        print(f"{len(bills)} bills for {len(set(bills))} orders")


if __name__ == "__main__":
    main()
