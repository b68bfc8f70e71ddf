"""A packer packs orders, and shares them with every other packer that is started.

In one terminal, with a server beside it (`txaware serve --data ./data`):

    python examples/group/packer.py http://127.0.0.1:11015 --orders 200

It makes a topic of six partitions, publishes 200 orders, and packs them in a loop. In a
second terminal, meanwhile, and in a third:

    python examples/group/packer.py http://127.0.0.1:11015

Each has its share of the partitions. Kill one of them, however hard: the others have
its partitions about a second later, and each order is packed once.

Without an address there are two packers in this process, one after the other.

Prints:
packer-1 has packed 20 orders
packer-2 has packed 4 orders
24 parcels for 24 orders
"""

import argparse
import time

import txaware
from txaware import Message, Messaging, Subscriber

PARTITIONS = 6


def publish(messaging: Messaging, orders: int) -> None:
    """Makes the topics, and publishes orders of customers."""
    messaging.create_topic("orders", partitions=PARTITIONS, exist_ok=True)
    messaging.create_topic("parcels", exist_ok=True)
    publisher = messaging.publisher("orders")
    for number in range(orders):
        customer = b"customer-%d" % (number % 50)
        publisher.publish(b"%f %d" % (time.time(), number), key=customer)


def packer(messaging: Messaging, *, pause_s: float = 0.0) -> Subscriber:
    """Returns a loop that packs its share of the orders."""

    def pack(order: Message) -> None:
        time.sleep(pause_s)
        # The parcel and the place in the orders are one transaction.
        messaging.publisher("parcels").publish(b"parcel of " + order.payload)

    return messaging.subscribe(
        "orders",
        pack,
        group="packing",
        start="first",
        messages_per_transaction=10,
        tries=3,
    )


def main() -> None:
    """Runs a packer at a server, or two here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url", nargs="?")
    parser.add_argument("--orders", type=int, default=0)
    options = parser.parse_args()
    if options.url is not None:
        with txaware.connect(options.url) as messaging:
            publish(messaging, options.orders)
            packer(messaging, pause_s=0.1).run()
        return
    with txaware.connect("memory:") as messaging:
        for number, orders in ((1, 20), (2, 4)):
            publish(messaging, orders)
            loop = packer(messaging)
            while loop.run_once():
                pass
            loop.close()
            print(f"packer-{number} has packed {loop.metrics().processed} orders")
        parcels = [one.payload for one in messaging.poll("parcels", limit=100)]
        print(f"{len(parcels)} parcels for {len(set(parcels))} orders")


if __name__ == "__main__":
    main()
