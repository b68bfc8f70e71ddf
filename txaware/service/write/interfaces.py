"""Ports of what writes messages to a topic."""

from typing import Any, Protocol

from coordinator.interfaces import OnWritten
from txaware.model.messages import PublishResponse, Receipt
from txaware.model.requests import Payloads


class PublishesTo(Protocol):
    """Writes messages to places of one kind: single partitions, or whole topics."""

    def plain(self, place: Any, payloads: Payloads) -> None:
        """Publishes without a transaction; on disk when it returns."""

    def plain_soon(self, place: Any, payloads: Payloads, on_written: OnWritten) -> None:
        """Publishes and does not wait; `on_written` is called in another thread."""

    def transactional(
        self, place: Any, payloads: Payloads, pointer: int
    ) -> PublishResponse:
        """Publishes in a transaction; returns what takes it back."""

    def reference(
        self, place: Any, pointer: int, receipts: list[Receipt] | None
    ) -> PublishResponse:
        """Publishes payloads that were stored before; all of them without receipts."""

    def store(
        self, place: Any, payloads: Payloads, pointer: int, attempt: bytes
    ) -> Receipt:
        """Stores payloads ahead of the commit."""

    def roll_back(self, place: Any, response: PublishResponse) -> None:
        """Hides the rows of a publish from all who poll in a transaction."""
