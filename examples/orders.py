"""An order service: orders in a SQLite file, messages about them, in one transaction.

`place_order` is all that it takes: a row and a message, both or neither. A relay in the
background carries the messages over to the topic, each once. Payments come in the other
direction: the rows that they change and the place up to which they were handled commit
together, so that each counts once.

Prints:
ann ordered 3 pears
eve cannot order 100 pears: the shop has 7
messages: ann ordered 3 pears
paid: ann, and a second look at the payments finds none
after a restart: 1 order, 1 message
"""

import sqlite3
import tempfile
from pathlib import Path

import txaware
from txaware import participants
from txaware.messaging import Messaging


class Shop:
    """The service: ten lines beside its SQL."""

    def __init__(self, messaging: Messaging, path: Path) -> None:
        self.messaging = messaging
        self.rows = sqlite3.connect(path)
        self.rows.execute("CREATE TABLE IF NOT EXISTS orders (who, pears, paid)")
        self.database = participants.sqlite(messaging, self.rows)
        self.payments = self.database.consumer("payments", group="shop")

    def place_order(self, who: str, pears: int) -> None:
        with self.messaging.transaction(self.database):
            self.rows.execute("INSERT INTO orders VALUES (?, ?, 0)", (who, pears))
            text = f"{who} ordered {pears} pears"
            self.messaging.publisher("orders").publish(text.encode())
            [sold] = self.rows.execute("SELECT sum(pears) FROM orders").fetchone()
            if sold > 10:  # undoes the row and the message
                raise ValueError(f"the shop has {10 + pears - sold}")

    def take_payments(self) -> list[str]:
        with self.messaging.transaction(self.database):
            names = [message.payload.decode() for message in self.payments.poll()]
            for who in names:
                self.rows.execute("UPDATE orders SET paid = 1 WHERE who = ?", (who,))
        return names

    def close(self) -> None:
        self.rows.close()


def main(place: Path) -> None:
    with txaware.connect(f"leveldb:{place / 'data'}") as messaging:
        messaging.create_topic("orders")
        messaging.create_topic("payments")
        shop = Shop(messaging, place / "shop.db")
        shop.place_order("ann", 3)
        print("ann ordered 3 pears")
        try:
            shop.place_order("eve", 100)
        except ValueError as error:
            print(f"eve cannot order 100 pears: {error}")

        messaging.wait("orders", start=None, timeout_s=30)  # for the relay
        told = [message.payload.decode() for message in messaging.poll("orders")]
        print(f"messages: {', '.join(told)}")

        messaging.publish("payments", [b"ann"])
        paid = shop.take_payments()
        assert shop.take_payments() == []
        print(f"paid: {', '.join(paid)}, and a second look at the payments finds none")
        shop.close()

    with txaware.connect(f"leveldb:{place / 'data'}") as messaging:
        shop = Shop(messaging, place / "shop.db")
        [orders] = shop.rows.execute("SELECT count(*) FROM orders").fetchone()
        messages = len(messaging.poll("orders"))
        assert (orders, messages) == (1, 1)
        print(f"after a restart: {orders} order, {messages} message")
        shop.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
