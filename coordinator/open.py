"""The transactions that are open, and the pointers that are in progress for that."""

import enum
from collections.abc import Iterable

import attrs

from coordinator.pointers import NO_POINTERS, Pointers
from coordinator.transaction import NO_POINTER, TransactionType


class Stage(enum.Enum):
    """Where an open transaction stands."""

    OPEN = "open"
    ENDING = "its end is being written down"
    UNDECIDED = "its commit may or may not be on disk"


@attrs.define(eq=False)
class OpenTransaction:
    """What the coordinator keeps of a transaction until its end."""

    transaction_id: int
    type: TransactionType
    expires_ms: int
    outlives_process: bool = False
    checkpoints: Pointers = NO_POINTERS
    changes: frozenset[bytes] = frozenset()
    refusal: str | None = None
    stage: Stage = Stage.OPEN

    @property
    def pointers(self) -> tuple[int, ...]:
        """All that it may have written with."""
        return (self.transaction_id, *self.checkpoints)


class OpenTransactions:
    """Open transactions by id. `in_progress` is shared by snapshots until it changes.

    None of them expires before `next_expiry_ms`.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, OpenTransaction] = {}
        self.in_progress = NO_POINTERS
        self.outliving: set[int] = set()
        self.next_expiry_ms = NO_POINTER
        self._long: set[int] = set()

    def add(self, entry: OpenTransaction) -> None:
        """Adds one whose id is the greatest so far."""
        transaction_id = entry.transaction_id
        self.by_id[transaction_id] = entry
        self.in_progress = self.in_progress.appended(transaction_id)
        if entry.type is TransactionType.LONG:
            self._long.add(transaction_id)
        if entry.outlives_process:
            self.outliving.add(transaction_id)
        self.expect_expiry(entry)

    def add_checkpoints(self, entry: OpenTransaction, pointers: Iterable[int]) -> None:
        """Adds pointers that end with the transaction."""
        entry.checkpoints = entry.checkpoints.added(pointers)
        self.in_progress = self.in_progress.added(entry.checkpoints)

    def remove(self, entry: OpenTransaction) -> None:
        """Removes one, and its checkpoints."""
        self._forget(entry)
        self.in_progress = self.in_progress.removed(entry.transaction_id)
        if entry.checkpoints:
            self.in_progress = self.in_progress.without(entry.checkpoints)

    def remove_all(self, entries: Iterable[OpenTransaction]) -> Pointers:
        """Removes many at once, and answers their pointers."""
        gone: list[int] = []
        for entry in entries:
            self._forget(entry)
            gone.extend(entry.pointers)
        self.in_progress = self.in_progress.without(gone)
        return Pointers(gone)

    def first_short(self) -> int:
        """The lowest pointer in progress that is not a long transaction's first."""
        if not self.in_progress:
            return NO_POINTER
        if not self._long:
            return self.in_progress[0]
        return next((p for p in self.in_progress if p not in self._long), NO_POINTER)

    def expect_expiry(self, entry: OpenTransaction) -> None:
        """This one may be the next to expire."""
        self.next_expiry_ms = min(self.next_expiry_ms, entry.expires_ms)

    def expired(self, now_ms: int) -> list[OpenTransaction]:
        """Those that are open longer than they may be, and not ending just now."""
        entries = self.by_id.values()
        self.next_expiry_ms = min(
            (e.expires_ms for e in entries if now_ms <= e.expires_ms),
            default=NO_POINTER,
        )
        return [e for e in entries if now_ms > e.expires_ms and e.stage is Stage.OPEN]

    def _forget(self, entry: OpenTransaction) -> None:
        del self.by_id[entry.transaction_id]
        self._long.discard(entry.transaction_id)
        self.outliving.discard(entry.transaction_id)
