"""The inbox of a database that decides a block: which items it has handled before."""

from collections.abc import Collection, Hashable
from typing import Protocol

from txaware.model.queue_service import QueueService


class HandledItems(Protocol):
    """Notes of handled items, in the transaction of the database that decides a block.

    A pop in the block notes its items before anybody sees them. All calls come in the
    thread of the block, while it is open; an error means that it can only be undone.
    """

    def note(self, queue: str, items: Collection[str]) -> set[str]:
        """Notes items with the block; returns those that were noted before it.

        Where another open block notes one of them, this waits for its end.
        """

    def noted(self, queue: str, items: Collection[str]) -> set[str]:
        """Returns those that are still noted: a savepoint may have taken some back."""

    def forget(self, queue: str, items: Collection[str]) -> None:
        """Takes back what the block has noted."""


def handled_key(queues: QueueService) -> Hashable:
    """Returns the key under which a block has the inbox for the items of a service."""
    return (HandledItems, id(queues))
