"""The slots of a client: each is for one commit at a time that begins itself."""

import os
from collections import deque
from itertools import count
from typing import Any

import attrs


@attrs.define(eq=False)
class Slot:
    """A slot of a client: its number, and that of its last commit."""

    client: str
    number: int
    last_commit: int = 0

    def __str__(self) -> str:
        return (
            f"number {self.last_commit} in slot {self.number} of client {self.client}"
        )

    def fields(self) -> dict[str, Any]:
        """Returns what names its last commit."""
        return {
            "client": self.client,
            "slot": self.number,
            "number": self.last_commit,
        }


class Slots:
    """As many slots as commits were ever under way at once; for any number of threads.

    A commit whose outcome nobody knows keeps its slot for ever.
    """

    def __init__(self) -> None:
        self._client = os.urandom(16).hex()
        self._free: deque[Slot] = deque()
        self._numbers = count()

    def take(self) -> Slot:
        """Returns a slot for the next commit."""
        try:
            slot = self._free.pop()
        except IndexError:
            slot = Slot(self._client, next(self._numbers))
        slot.last_commit += 1
        return slot

    def give_back(self, slot: Slot) -> None:
        """Takes a slot whose commit has an end."""
        self._free.append(slot)
