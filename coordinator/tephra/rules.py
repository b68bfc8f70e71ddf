"""Tephra's calls as a `Coordinator` that is safe where Tephra is not."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Self

import attrs

from coordinator.errors import (
    BadRequest,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from coordinator.outcome import Outcome, checked_written
from coordinator.pointers import NO_POINTERS, Pointers
from coordinator.tephra.calls import TephraCalls, stripped
from coordinator.threads import SharedCall
from coordinator.transaction import POINTERS_PER_MS, Transaction, checked_timeout_s

LOOK_FOR_ENDED_AT = 1000


class Unfinished:
    """Refusals, lost answers and checkpoints, by transaction id, until its end.

    Any number of threads may call; each transaction is one thread's at a time.
    """

    def __init__(self) -> None:
        self._refused: dict[int, tuple[type[TransactionRefused], str]] = {}
        self._unknown: dict[int, str] = {}
        self._checkpoints: dict[int, Pointers] = {}
        self._look_at = LOOK_FOR_ENDED_AT

    def refuse(
        self,
        transaction_id: int,
        why: str,
        kind: type[TransactionRefused] = TransactionRefused,
    ) -> None:
        """Makes `check` refuse the transaction from now on, with that error."""
        self._refused[transaction_id] = kind, why

    def accept(self, transaction_id: int) -> None:
        """Ends the refusal of the transaction."""
        self._refused.pop(transaction_id, None)

    def lost(self, transaction_id: int, error: BaseException) -> None:
        """Notes that the answer to its commit was lost."""
        self._unknown[transaction_id] = f"{error}"

    def check(self, transaction_id: int) -> None:
        """Raises when a commit must not be sent."""
        if transaction_id in self._refused:
            kind, why = self._refused[transaction_id]
            raise kind(f"transaction {transaction_id} cannot commit: {why}")
        if transaction_id in self._unknown:
            raise TransactionOutcomeUnknown(
                f"transaction {transaction_id} may be committed already: the answer to "
                f"its commit was lost ({self._unknown[transaction_id]}); invalidate it "
                f"to find out"
            )

    def checkpointed(self, tx: Transaction) -> None:
        """Remembers its checkpoints."""
        self._checkpoints[tx.transaction_id] = tx.checkpoint_write_pointers

    def checkpoints(self, tx: Transaction) -> Pointers:
        """Returns all of its checkpoints, also those that `tx` is too old to list."""
        known = self._checkpoints.get(tx.transaction_id, NO_POINTERS)
        return tx.checkpoint_write_pointers.added(known)

    def forget(self, transaction_id: int) -> None:
        """Forgets a transaction that has ended."""
        for noted in (self._refused, self._unknown, self._checkpoints):
            noted.pop(transaction_id, None)

    def forget_ended(self, snapshot: Transaction) -> None:
        """Forgets transactions that nobody ended here and `snapshot` shows as over.

        It looks only when there are many, and next when there are twice as many.
        """
        if len(self) < self._look_at:
            return
        noted = {*self._refused, *self._unknown, *self._checkpoints}
        for transaction_id in noted:
            if (
                transaction_id < snapshot.transaction_id
                and transaction_id not in snapshot.in_progress
            ):
                self.forget(transaction_id)
        self._look_at = max(LOOK_FOR_ENDED_AT, 2 * len(self))

    def __len__(self) -> int:
        return len(self._refused) + len(self._unknown) + len(self._checkpoints)


PRUNE_GRACE_S = 86_400.0
REMEMBERED_ABORTS = 10_000


def _nothing() -> None:
    """Does nothing, since a Tephra that runs elsewhere looks after its own log."""


class TephraRules:
    """A `Coordinator` over `TephraCalls`.

    Tephra commits what it refused before, leaves the checkpoints of an aborted
    transaction in progress when it is not told of them, and answers before the first
    edit of a log file is flushed. Here a refused transaction cannot commit, abort
    knows all checkpoints, and `on_disk` is called before a decision is answered.
    """

    settle_grace_s = PRUNE_GRACE_S

    def __init__(
        self, calls: TephraCalls, *, on_disk: Callable[[], None] = _nothing
    ) -> None:
        self._calls = calls
        self._on_disk = on_disk
        self._unfinished = Unfinished()
        self._shared_snapshot = SharedCall(self._take_snapshot)
        self._aborted: deque[int] = deque(maxlen=REMEMBERED_ABORTS)
        self._aborting = threading.Lock()
        self._forgotten = 0

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        """Begins a transaction whose changes are checked for conflicts.

        Tephra counts whole seconds, so the time-out is rounded up. It always outlives
        this process.
        """
        tx = self._calls.start_short(
            None if timeout_s is None else math.ceil(checked_timeout_s(timeout_s))
        )
        self._unfinished.forget_ended(tx)
        return tx

    def start_long(self, *, outlives_process: bool = False) -> Transaction:
        """Begins a transaction that may run for a day."""
        return self._calls.start_long()

    def can_commit(self, tx: Transaction, changes: Iterable[bytes]) -> None:
        """Checks the changed keys, and remembers them for `commit`."""
        keys = _checked_keys(changes)
        # Refused until there is a yes: a lost answer is a no as well.
        self._unfinished.refuse(
            tx.transaction_id, "its changes were refused, and not checked again since"
        )
        self._calls.can_commit(tx.transaction_id, keys)
        self._unfinished.accept(tx.transaction_id)

    def persist(self, tx: Transaction) -> None:
        """Returns when a crash cannot forget that `tx` and its checkpoints exist."""
        self._on_disk()

    def commit(self, tx: Transaction) -> None:
        """Makes the writes of `tx` visible to all that begin from now on.

        Tephra believes whatever write pointer it is told, so it gets the first one,
        and takes the last checkpoint itself where there is one.
        """
        transaction_id = tx.transaction_id
        self._unfinished.check(transaction_id)
        try:
            self._calls.commit(transaction_id)
            self._on_disk()
        except TransactionRefused as refusal:
            why, kind = "its commit was refused before", type(refusal)
            self._unfinished.refuse(transaction_id, why, kind)
            raise
        except BaseException as error:
            self._unfinished.lost(transaction_id, error)
            raise
        self._unfinished.forget(transaction_id)

    def abort(self, tx: Transaction) -> None:
        """Ends a transaction whose holder has undone everything it wrote."""
        checkpoints = self._unfinished.checkpoints(tx)
        self._calls.abort(
            attrs.evolve(stripped(tx), checkpoint_write_pointers=checkpoints)
        )
        self._unfinished.forget(tx.transaction_id)
        with self._aborting:
            self._aborted.extend((tx.transaction_id, *checkpoints))

    def invalidate(self, tx: Transaction | int) -> bool:
        """Ends a transaction so that nobody ever sees what it wrote."""
        transaction_id = tx if isinstance(tx, int) else tx.transaction_id
        invalidated = self._calls.invalidate(transaction_id)
        self._on_disk()
        self._unfinished.forget(transaction_id)
        return invalidated

    def checkpoint(self, tx: Transaction) -> Transaction:
        """Returns the same transaction with a new write pointer."""
        answer = self._calls.checkpoint(stripped(tx))
        self._unfinished.checkpointed(answer)
        self._on_disk()
        return attrs.evolve(
            tx,
            write_pointer=answer.write_pointer,
            checkpoint_write_pointers=answer.checkpoint_write_pointers,
        )

    def snapshot(self) -> Transaction:
        """Returns a read-only transaction, shared by all that asked before it began."""
        return self._shared_snapshot()

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        try:
            return self._calls.status()
        except Unavailable as error:
            return str(error)

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        """Forgets these invalid pointers; True if any was forgotten."""
        pointers = list(pointers)
        truncated = self._calls.truncate_invalid_tx(pointers)
        self._forgotten = max([self._forgotten, *pointers])
        self._on_disk()
        return truncated

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        """Forgets the invalid pointers of transactions begun before that time."""
        truncated = self._calls.truncate_invalid_tx_before(time_ms)
        self._forgotten = max(self._forgotten, time_ms * POINTERS_PER_MS)
        self._on_disk()
        return truncated

    def invalid_size(self) -> int:
        """Counts the invalid pointers."""
        return self._calls.invalid_size()

    def outcome(self, tx: Transaction | int) -> Outcome:
        """Tells the outcome of the writes made with a pointer, by a fresh snapshot.

        Tephra keeps no outcomes. A transaction that another process aborted looks
        committed; nothing of it is left, or it was to be invalidated. A pointer older
        than `settle_grace_s` may have been pruned: it is `FORGOTTEN`, unless
        it is still invalid.
        """
        pointer = checked_written(tx)
        now = self.snapshot()
        if now.is_in_progress(pointer):
            return Outcome.IN_PROGRESS
        with self._aborting:
            is_aborted = pointer in self._aborted
        if is_aborted or pointer in now.invalids:
            return Outcome.ROLLED_BACK
        age_s = (now.transaction_id - pointer) / POINTERS_PER_MS / 1000
        is_old = age_s >= self.settle_grace_s or pointer <= self._forgotten
        # Its own id is visible to it, and was given out for nobody's writes.
        is_new = pointer >= now.transaction_id
        if is_old or is_new or not now.is_visible(pointer):
            return Outcome.FORGOTTEN
        return Outcome.COMMITTED

    def close(self) -> None:
        """Gives back what the coordinator holds; a second close does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _take_snapshot(self) -> Transaction:
        tx = self._calls.start_short(None)
        self._calls.abort(stripped(tx))
        self._unfinished.forget_ended(tx)
        return tx


def _checked_keys(changes: Iterable[bytes]) -> frozenset[bytes]:
    keys = frozenset(changes)
    for key in keys:
        if not isinstance(key, bytes):
            raise BadRequest(f"a change key is bytes, and {key!r} is not")
    return keys
