"""The status of transactions: open, invalid, ended, or never given out here."""

from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

import attrs

from coordinator.embedded.open_transactions import OpenTransaction, Stage
from coordinator.interfaces import Coordinator
from coordinator.optional_ports import InProcess, in_process
from coordinator.transaction import POINTERS_PER_MS, Transaction, TransactionType

OPEN, INVALID, ENDED, NEVER = "open", "invalid", "ended", "never given out"
STATES = (OPEN, INVALID)
# The address of a transaction that was begun in the coordinator's own process.
HERE = "this process"


@attrs.frozen
class Standing:
    """The state of a transaction, as far as its coordinator knows it.

    `pointers` are all pointers that it wrote with. `principal` and `address`
    (HOST:PORT, or `HERE`) name the client that began it, where that is known. That it
    `is_held` means that this client surely still has it, and `heard_ms` is when it last
    used it, where that is known. Only the embedded coordinator tells more than that a
    transaction is open or invalid.
    """

    transaction_id: int
    state: str
    pointers: tuple[int, ...]
    type: str | None = None
    stage: str | None = None
    expires_ms: int | None = None
    changes: int | None = None
    principal: str | None = None
    address: str | None = None
    is_held: bool = False
    heard_ms: int | None = None

    @property
    def began_ms(self) -> int:
        """The time when it began, in ms since the epoch; the id contains it."""
        return self.transaction_id // POINTERS_PER_MS

    def fields(self) -> dict[str, Any]:
        """Returns the fields of its JSON form."""
        return {
            "transactionId": self.transaction_id,
            "state": self.state,
            "pointers": list(self.pointers),
            "type": self.type,
            "stage": self.stage,
            "expiresMs": self.expires_ms,
            "changes": self.changes,
            "beganMs": self.began_ms,
            "principal": self.principal,
            "address": self.address,
            "isHeld": self.is_held,
            "heardMs": self.heard_ms,
        }

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Reads its JSON form."""
        return cls(
            fields["transactionId"],
            fields["state"],
            tuple(fields["pointers"]),
            fields["type"],
            fields["stage"],
            fields["expiresMs"],
            fields["changes"],
            fields.get("principal"),  # an older server tells neither
            fields.get("address"),
            fields.get("isHeld", False),
            fields.get("heardMs"),
        )

    def is_hanging(self, *, before_ms: int) -> bool:
        """Tells whether it is open since before that time, and nobody has it any more.

        One whose end was asked for does not hang, and neither does a prepared one.
        """
        heard_ms = self.began_ms if self.heard_ms is None else self.heard_ms
        is_open = self.state == OPEN and self.stage in (None, Stage.OPEN.value)
        return is_open and not self.is_held and max(self.began_ms, heard_ms) < before_ms


@attrs.frozen
class TransactionCounts:
    """The transactions of a coordinator in numbers, and whether it is well.

    `oldest_ms` is when the oldest open one began.
    """

    status: str
    open: int
    oldest_ms: int | None
    invalid: int

    def fields(self) -> dict[str, Any]:
        """Returns it as JSON has it."""
        return {
            "status": self.status,
            "open": self.open,
            "oldestMs": self.oldest_ms,
            "invalid": self.invalid,
        }


@runtime_checkable
class TellsStandings(Protocol):
    """A coordinator elsewhere that can tell more than its snapshot shows."""

    def standings(self, state: str) -> list[Standing]:
        """Returns all that are `open` or `invalid`, the oldest first."""

    def standing(self, pointer: int) -> Standing:
        """Returns the transaction that writes, or wrote, with that pointer."""


def counts(coordinator: Coordinator) -> TransactionCounts:
    """Counts the transactions of a coordinator."""
    found = standings(coordinator, OPEN)
    return TransactionCounts(
        coordinator.status(),
        len(found),
        found[0].began_ms if found else None,
        coordinator.invalid_size(),
    )


def standings(coordinator: Coordinator, state: str) -> list[Standing]:
    """Returns all that are `open` or `invalid`, the oldest first."""
    if isinstance(coordinator, TellsStandings):
        return coordinator.standings(state)
    here = in_process(coordinator)
    if state == OPEN and here is not None:
        return [_of(entry, here) for entry in here.open_transactions()]
    snapshot = coordinator.snapshot()
    pointers = snapshot.in_progress if state == OPEN else snapshot.invalids
    return [Standing(pointer, state, (pointer,)) for pointer in pointers]


def standing(coordinator: Coordinator, pointer: int) -> Standing:
    """Returns the transaction that writes, or wrote, with that pointer."""
    if isinstance(coordinator, TellsStandings):
        return coordinator.standing(pointer)
    for found in standings(coordinator, OPEN):
        if pointer in found.pointers:
            return found
    past = _past(coordinator, coordinator.snapshot(), pointer)
    return Standing(pointer, past, (pointer,))


def _of(entry: OpenTransaction, coordinator: InProcess) -> Standing:
    barrier = coordinator.barrier
    # A shared coordinator also gives pointers to other processes. All of those
    # transactions may outlive it.
    is_here = not (barrier.is_shared and entry.outlives_process) and barrier.began_here(
        entry.transaction_id
    )
    return Standing(
        entry.transaction_id,
        OPEN,
        entry.pointers,
        TransactionType(entry.type).name.lower(),
        entry.stage.value,
        entry.expires_ms if entry.prepared is None else None,
        len(entry.changes),
        address=HERE if is_here else None,
        is_held=entry.is_held,
    )


def _past(coordinator: Coordinator, snapshot: Transaction, pointer: int) -> str:
    if pointer in snapshot.invalids:
        return INVALID
    here = in_process(coordinator)
    if here is not None:
        return ENDED if here.barrier.gave_out(pointer) else NEVER
    return ENDED if snapshot.is_visible(pointer) else NEVER
