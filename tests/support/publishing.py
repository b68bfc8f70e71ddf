"""What tests of publishers share: a coordinator, a service, and bodies that fail."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from coordinator.context import TransactionContext, current_transaction
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import TransactionAware
from tests.support.doubles import Watched
from tests.support.fake_service import FakeService
from txaware.publish.outbox import TransactionPublisher
from txaware.publish.publisher import OVERHEAD_BYTES, Publisher

ROOM_BYTES = 10 + OVERHEAD_BYTES  # of one message of ten bytes

Step = Callable[[], object]


def fail() -> None:
    raise ZeroDivisionError


def run(steps: Iterable[Step]) -> None:
    for step in steps:
        step()


class Setting:
    """A watched coordinator and a fake service, with topics a, b and c."""

    def __init__(self) -> None:
        self.embedded = EmbeddedCoordinator()
        self.coordinator: Any = Watched(self.embedded)
        self.service: Any = FakeService("a", "b", "c", "ns:a")
        self.caught = BaseException()
        self.held_bytes = 0

    def publisher(self, topic: str = "a", **options: Any) -> Publisher:
        options.setdefault("buffer_limit_bytes", 1 << 20)
        options.setdefault("message_limit_bytes", 1 << 16)
        options.setdefault("shares_journal", True)
        return Publisher(self.service, self.coordinator, topic, **options)

    def transaction(
        self, *participants: Any, timeout_s: float | None = None
    ) -> TransactionContext:
        return TransactionContext(self.coordinator, *participants, timeout_s=timeout_s)

    def writes(self) -> list[str]:
        return [name for name in self.service.names() if not name.startswith("topic")]

    def publish(self, *topics: str) -> Step:
        """Publishes a message to each of these topics."""

        def step() -> None:
            for topic in topics:
                self.publisher(topic).publish(topic.encode())

        return step

    def join(self, participant: TransactionAware) -> Step:
        """Adds a participant to the open transaction."""
        return lambda: self.open_transaction().join(participant)

    def failed(
        self,
        error: type[BaseException],
        *steps: Step,
        participants: Iterable[TransactionAware] = (),
    ) -> TransactionContext:
        """The transaction that ran these steps and raised, as it had to."""
        tx = self.transaction(*participants)
        with pytest.raises(error) as caught, tx:
            run(steps)
        self.caught = caught.value
        return tx

    def open_transaction(self) -> TransactionContext:
        found = current_transaction(self.coordinator)
        assert found is not None
        return found

    def measure(self, tx: TransactionContext) -> None:
        """Remembers the most that the publisher of a transaction held."""
        for participant in tx._participants.in_commit_order():
            assert isinstance(participant, TransactionPublisher)
            outboxes = participant._outboxes.values()
            held_bytes = sum(outbox.buffer.size_bytes for outbox in outboxes)
            assert held_bytes == participant._held_bytes
            self.held_bytes = max(self.held_bytes, held_bytes)

    def is_invalid(self, context: TransactionContext) -> bool:
        invalids = self.embedded.snapshot().invalids
        return context.transaction.transaction_id in invalids
