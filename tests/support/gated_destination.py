"""A place for batches of a journal, whose writes wait, or fail when told to."""

import threading
from typing import Any

import attrs

from coordinator.embedded.history import History
from coordinator.embedded.records import Record
from coordinator.errors import Unavailable

PATIENCE_S = 60


@attrs.define(eq=False)
class GatedDestination:
    """Keeps the batches of rows; each write waits for `go_on`.

    `came` is set when a write has come, and `failure` is raised in its place.
    """

    name: str = "memory"
    history: History = attrs.field(factory=History)
    broken: bool = False
    kept: bool = False
    failure: Unavailable | None = None
    batches: list[list[Any]] = attrs.field(factory=list)
    go_on: threading.Event = attrs.field(factory=threading.Event)
    came: threading.Event = attrs.field(factory=threading.Event)

    def repair(self) -> None:
        """Has nothing to repair."""

    def take(self, records: list[Record]) -> None:
        """Takes nothing from elsewhere."""

    def write(self, records: list[Record], rows: list[Any], taken: Any) -> None:
        """Keeps a batch."""
        self.came.set()
        assert self.go_on.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        self.batches.append(list(rows))

    def fold(self, records: list[Record]) -> None:
        """Adds nothing to the history."""

    def status(self) -> str:
        """Returns that all is well."""
        return "OK"

    def close(self) -> None:
        """Has nothing to close."""


class Told:
    """The end of a batch, which may be waited for."""

    def __init__(self) -> None:
        self.errors: list[Unavailable | None] = []
        self.thread: threading.Thread | None = None
        self._is_told = threading.Event()

    def __call__(self, error: Unavailable | None) -> None:
        self.thread = threading.current_thread()
        self.errors.append(error)
        self._is_told.set()

    def wait(self) -> None:
        """Returns once it was told."""
        assert self._is_told.wait(PATIENCE_S)
