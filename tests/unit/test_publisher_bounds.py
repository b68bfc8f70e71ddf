"""What a transaction holds in memory, whatever goes to which topic."""

from coordinator.transaction import Transaction
from txaware.interfaces import Payload
from txaware.messages import Receipt
from txaware.publish import TransactionPublisher


class Storing:
    """Takes what is stored."""

    def store(
        self, topic: str, messages: list[Payload], *, transaction: int, attempt: bytes
    ) -> Receipt:
        return Receipt(1, topic, attempt, len(messages))


def test_all_topics_together_stay_below_the_limit() -> None:
    service: object = Storing()
    publisher = TransactionPublisher(service, shares_journal=True)  # type: ignore[arg-type]
    publisher.start_tx(Transaction(1, 0))
    sizes = [("a", 100), ("b", 900), ("a", 950), *((f"c{i}", 10) for i in range(9))]
    for topic, size_bytes in [*sizes, ("d", 990)]:
        publisher.publish(topic, b"", size_bytes=size_bytes, limit_bytes=1000)
        assert publisher._held_bytes <= 1000
