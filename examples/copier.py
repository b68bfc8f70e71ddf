"""A topic is copied to another, each message once, by a loop that is started twice.

The second loop fences the first in the middle of a batch, and goes on behind its last
commit. What the first had published in that batch is seen by nobody.

Prints:
the first loop copied 4, then a newer instance of it took over
the second loop copied the rest
1 2 3 4 5 6 7 8 9 10
"""

import txaware
from txaware import Message, ProducerFenced


def main() -> None:
    """Copies ten numbers."""
    with txaware.connect("memory:") as messaging:
        for topic in ("numbers", "copies"):
            messaging.create_topic(topic)
        messaging.publish("numbers", [b"%d" % number for number in range(1, 11)])

        def copy(message: Message) -> bytes:
            return message.payload

        def copy_until_replaced(message: Message) -> bytes:
            if message.payload == b"6":
                messaging.producer("copier")  # as a second process would open it
            return message.payload

        first = messaging.process(
            *("numbers", "copies", copy_until_replaced),
            group="copier",
            producer="copier",
            messages_per_transaction=4,
        )
        try:
            first.run()
        except ProducerFenced:
            copied = len(messaging.poll("copies", isolation="committed"))
            print(
                f"the first loop copied {copied}, then a newer instance of it took over"
            )

        second = messaging.process(
            "numbers", "copies", copy, group="copier", producer="copier"
        )
        while second.run_once():
            pass
        print("the second loop copied the rest")
        found = messaging.poll("copies", isolation="committed")
        print(*(message.payload.decode() for message in found))


if __name__ == "__main__":
    main()
