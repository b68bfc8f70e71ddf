"""The embedded coordinator's decisions: pure bookkeeping, without locks or disk."""

import enum
from collections.abc import Iterable
from itertools import chain

import attrs

from coordinator.conflicts import CommittedChanges
from coordinator.errors import (
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    TransactionTooLarge,
    TruncateRefused,
)
from coordinator.history import History
from coordinator.invalid import InvalidPointers
from coordinator.pointers import NO_POINTERS, Pointers
from coordinator.records import Invalidated
from coordinator.transaction import (
    NO_POINTER,
    POINTERS_PER_MS,
    Transaction,
    TransactionType,
)


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


@attrs.frozen
class Limits:
    """How much one transaction may change."""

    change_count: int = 2**31 - 1
    change_bytes: int = 2**63 - 1


class Ledger:
    """Who is open, who is invalid, what was committed: and what follows from that.

    Nothing here is undone: a caller that has to write something down first asks, writes
    and then applies. `last` is the last pointer given out.
    """

    def __init__(self, limits: Limits, last: int, first: int | None = None) -> None:
        self.first = last if first is None else first
        self.last = last
        self.read_pointer = last
        self.in_progress = NO_POINTERS
        self.invalid = InvalidPointers()
        self.open: dict[int, OpenTransaction] = {}
        self._limits = limits
        self.outliving: set[int] = set()
        self._long: set[int] = set()
        self._committed = CommittedChanges()
        self.next_expiry_ms = NO_POINTER

    def now_ms(self, clock_ms: int) -> int:
        """The time, which never goes back behind a pointer that was given out."""
        return max(clock_ms, self.last // POINTERS_PER_MS)

    def next_pointer(self, now_ms: int) -> int:
        """The pointer that would be given out next."""
        return max(self.last + 1, now_ms * POINTERS_PER_MS)

    def take(self, pointer: int) -> Transaction:
        """A snapshot whose id is used up and never in progress."""
        self.last = pointer
        return self._snapshot(pointer, TransactionType.SHORT)

    def start(
        self,
        pointer: int,
        kind: TransactionType,
        expires_ms: int,
        *,
        outlives_process: bool = False,
    ) -> Transaction:
        """Opens a transaction under the next pointer."""
        tx = self._snapshot(pointer, kind)
        self.last = pointer
        self._enter(OpenTransaction(pointer, kind, expires_ms, outlives_process))
        return tx

    def _snapshot(self, pointer: int, kind: TransactionType) -> Transaction:
        return Transaction(
            pointer,
            self.read_pointer,
            pointer,
            self.invalid.pointers,
            self.in_progress,
            self.first_short(),
            kind,
        )

    def _enter(self, entry: OpenTransaction) -> None:
        self.open[entry.transaction_id] = entry
        self.in_progress = self.in_progress.appended(entry.transaction_id)
        if entry.type is TransactionType.LONG:
            self._long.add(entry.transaction_id)
        if entry.outlives_process:
            self.outliving.add(entry.transaction_id)
        self.next_expiry_ms = min(self.next_expiry_ms, entry.expires_ms)

    def first_short(self) -> int:
        """The lowest pointer in progress that is not a long transaction's first."""
        if not self.in_progress:
            return NO_POINTER
        if not self._long:
            return self.in_progress[0]
        return next((p for p in self.in_progress if p not in self._long), NO_POINTER)

    def expired(self, now_ms: int) -> list[OpenTransaction]:
        """Those that are open longer than they may be; none before `next_expiry_ms`."""
        self.next_expiry_ms = min(
            (e.expires_ms for e in self.open.values() if now_ms <= e.expires_ms),
            default=NO_POINTER,
        )
        return [
            entry
            for entry in self.open.values()
            if now_ms > entry.expires_ms and entry.stage is Stage.OPEN
        ]

    def require(self, transaction_id: int) -> OpenTransaction:
        """The open transaction of that id."""
        entry = self.open.get(transaction_id)
        if entry is None:
            raise TransactionNotInProgress(
                f"transaction {transaction_id} is not in progress: it "
                f"{self._why_not(transaction_id)}"
            )
        return entry

    def _why_not(self, transaction_id: int) -> str:
        if transaction_id in self.invalid.pointers:
            return "timed out or was invalidated"
        if self.gave_out(transaction_id):
            return "has ended"
        return "was never begun here"

    def gave_out(self, pointer: int) -> bool:
        """Whether this coordinator may have given out that pointer."""
        return self.first <= pointer <= self.last

    def check_changes(self, entry: OpenTransaction, changes: Iterable[bytes]) -> None:
        """Remembers the changes for the commit, or why it must not take place."""
        listed = list(changes)
        keys = frozenset(listed)
        entry.changes = frozenset()
        entry.refusal = "its changes were refused, and not checked again since"
        self._check_size(entry, listed)
        key = self._committed.conflict(keys, entry.transaction_id)
        if key is not None:
            raise self._conflict(entry, key)
        entry.changes, entry.refusal = keys, None

    def _check_size(self, entry: OpenTransaction, changes: list[bytes]) -> None:
        limits, size = self._limits, sum(map(len, changes))
        if len(changes) > limits.change_count or size > limits.change_bytes:
            raise TransactionTooLarge(
                f"transaction {entry.transaction_id} changes {len(changes)} keys of "
                f"{size} bytes; at most {limits.change_count} keys of "
                f"{limits.change_bytes} bytes are accepted"
            )

    def _conflict(self, entry: OpenTransaction, key: bytes) -> TransactionConflict:
        return TransactionConflict(
            f"transaction {entry.transaction_id} and one that committed since it began "
            f"changed the same key {key!r}"
        )

    def begin_commit(self, entry: OpenTransaction) -> None:
        """Decides; from a yes until `commit` or `give_back` its keys are reserved."""
        if entry.refusal is not None:
            raise TransactionRefused(
                f"transaction {entry.transaction_id} cannot commit: {entry.refusal}"
            )
        key = self._committed.conflict(entry.changes, entry.transaction_id)
        if key is not None:
            entry.refusal = "another one committed a change of the same key first"
            raise self._conflict(entry, key)
        self._committed.reserve(entry.changes)
        entry.stage = Stage.ENDING

    def being_committed(self) -> list[frozenset[bytes]]:
        """The changes of those whose commit is on its way to the disk."""
        return [
            entry.changes
            for entry in self.open.values()
            if entry.stage is not Stage.OPEN and entry.changes
        ]

    def give_back(self, entry: OpenTransaction) -> None:
        """It did not end after all, and is open as before."""
        if entry.stage is not Stage.OPEN:
            self._committed.release(entry.changes)
            entry.stage = Stage.OPEN
            self.next_expiry_ms = min(self.next_expiry_ms, entry.expires_ms)

    def commit(self, entry: OpenTransaction) -> int:
        """Makes it visible to all that begin from now on; answers its commit pointer.

        That pointer is not used up: who begins with it saw the commit.
        """
        commit_pointer = self.last + 1
        self._remove(entry)
        self._committed.release(entry.changes)
        self._committed.add(commit_pointer, entry.changes)
        checkpoints = entry.checkpoints
        written_with = checkpoints[-1] if checkpoints else entry.transaction_id
        self.read_pointer = max(self.read_pointer, written_with)
        self._committed.forget_below(self.first_short())
        return commit_pointer

    def abort(self, entry: OpenTransaction) -> None:
        """Ends it; what it wrote is taken to be undone."""
        self._remove(entry)
        self.read_pointer = max(self.read_pointer, entry.transaction_id)

    def invalidate(self, entry: OpenTransaction, now_ms: int) -> Invalidated:
        """Ends it; nobody will see what it wrote."""
        record = self.time_out([entry], now_ms)
        if entry.type is TransactionType.SHORT:
            self.read_pointer = max(self.read_pointer, entry.transaction_id)
        return record

    def time_out(self, entries: list[OpenTransaction], now_ms: int) -> Invalidated:
        """As `invalidate`, for those that nobody ended."""
        pointers = Pointers(pointer for entry in entries for pointer in entry.pointers)
        for entry in entries:
            self._leave(entry)
        self.in_progress = self.in_progress.without(pointers)
        self.invalid.add(pointers, now_ms)
        return Invalidated(now_ms, pointers)

    def _leave(self, entry: OpenTransaction) -> None:
        del self.open[entry.transaction_id]
        self._long.discard(entry.transaction_id)
        self.outliving.discard(entry.transaction_id)

    def _remove(self, entry: OpenTransaction) -> None:
        self._leave(entry)
        self.in_progress = self.in_progress.removed(entry.transaction_id)
        if entry.checkpoints:
            self.in_progress = self.in_progress.without(entry.checkpoints)

    def checkpoint(self, entry: OpenTransaction, pointer: int) -> None:
        """It goes on with the next pointer."""
        self.last = pointer
        entry.checkpoints = entry.checkpoints.appended(pointer)
        self.in_progress = self.in_progress.appended(pointer)

    def invalid_before(self, bound: int) -> Pointers:
        """The invalid pointers below `bound`; refused while one is still open there."""
        if self.in_progress and self.in_progress[0] < bound:
            raise TruncateRefused(
                f"transaction {self.in_progress[0]} is still in progress, and began "
                f"before {bound}"
            )
        return Pointers(pointer for pointer in self.invalid.pointers if pointer < bound)

    def restore(self, history: History, now_ms: int) -> Invalidated:
        """Takes over what a restart finds; answers whom it had to end."""
        for pointers, ended_ms in history.invalid_by_end():
            self.invalid.add(pointers, ended_ms)
        for started in history.open.values():
            self._enter(
                OpenTransaction(
                    started.transaction_id,
                    TransactionType.LONG if started.long else TransactionType.SHORT,
                    started.expires_ms,
                    started.outlives_process,
                    Pointers(history.checkpoints.get(started.transaction_id, ())),
                    refusal="the coordinator was restarted since its changes were "
                    "checked, and they must be checked again",
                )
            )
        checkpoints = chain.from_iterable(history.checkpoints.values())
        self.in_progress = self.in_progress.added(checkpoints)
        for commit_pointer, keys in history.changes:
            self._committed.add(commit_pointer, frozenset(keys))
        return self.time_out(
            [
                entry
                for entry in self.open.values()
                if not entry.outlives_process or now_ms > entry.expires_ms
            ],
            now_ms,
        )

    def add_unseen(self, keys: Iterable[bytes]) -> int:
        """A commit that a crash kept from becoming visible: now it is, to later ones.

        Answers its commit pointer, which is above everyone who survived the crash.
        """
        self._committed.add(self.last + 1, frozenset(keys))
        return self.last + 1
