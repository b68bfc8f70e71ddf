"""The publisher of a block whose messages go to an outbox of a user's database."""

from collections.abc import Callable
from typing import NoReturn

from txaware.errors import MisusedTransaction
from txaware.interfaces import Payload


class OutboxPublisher:
    """Takes what is published in a block, in place of a `TransactionPublisher`.

    Each message is a row of the database's own transaction at once: so it is undone
    with that, and with a savepoint in it.
    """

    def __init__(self, name: str, insert: Callable[[str, Payload], None]) -> None:
        self.transaction_aware_name = name
        self._insert = insert

    def publish(
        self, topic: str, message: Payload, *, size_bytes: int, limit_bytes: int
    ) -> None:
        """Writes a checked message; its size is that of a row of the database."""
        self._insert(topic, message)

    def publish_stored(self, topic: str, receipts: object) -> NoReturn:
        """Refuses: what others stored is not in the database."""
        raise MisusedTransaction(
            f"what others stored for {topic} cannot be published in a block that "
            f"{self.transaction_aware_name} decides"
        )
