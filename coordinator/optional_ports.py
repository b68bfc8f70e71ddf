"""The ports that only some coordinators offer, and nobody has to."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from coordinator.embedded.open_transactions import OpenTransaction
from coordinator.embedded.records import Record
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator


@runtime_checkable
class InProcess(Protocol):
    """The part of a coordinator in this process that answers from memory. Optional."""

    @property
    def gate(self) -> WriteBarrier:
        """The gate for writes of a store beside it, which also knows its pointers."""

    def may_wait(self) -> bool:
        """Tells whether the next start or snapshot may have to wait for the disk."""

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns copies of the transactions in progress, in the order of beginning."""


def in_process(coordinator: Coordinator) -> InProcess | None:
    """Returns the coordinator if it lives in this process; None if it is elsewhere.

    Its class says so: one that passes on all calls to another object counts as
    elsewhere, as nobody knows what it does in between.
    """
    if not hasattr(type(coordinator), "open_transactions"):
        return None
    return coordinator if isinstance(coordinator, InProcess) else None


@runtime_checkable
class TellsOutcomes(Protocol):
    """The part of a coordinator that lets a copy of it answer the same. Optional."""

    @property
    def first_pointer(self) -> int:
        """The first pointer that was ever given out."""

    def outcomes(self) -> Sequence[Record]:
        """Returns the records of all outcomes that it knows."""
