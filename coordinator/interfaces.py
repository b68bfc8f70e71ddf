"""The two sides of a commit: who decides it, and who takes part in it."""

from collections.abc import Iterable
from typing import Protocol, Self

from coordinator.outcome import Outcome
from coordinator.transaction import Transaction


class Coordinator(Protocol):
    """Gives out transactions and decides which of them commit.

    Any number of threads may call. A call that raises `TransactionRefused` is a
    definite no. Any other exception leaves open what happened: see
    `TransactionContext` for how the outcome of a commit is then settled.

    One transaction: `start_short` or `start_long`, `can_commit`, then its participants
    write, then `commit`. Or `abort`, by whoever has undone everything. Or `invalidate`,
    by anybody.
    """

    @property
    def settle_grace_s(self) -> float:
        """For how long after its end an invalid pointer is surely not forgotten."""

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        """Begins a transaction whose changes are checked for conflicts.

        `outlives_process` says that it is begun for somebody who would survive this
        process, over a network for example: it then survives a restart.
        """

    def start_long(self, *, outlives_process: bool = False) -> Transaction:
        """Begins a transaction that may run for a day.

        Conflicts between two long ones may go unseen, and it is never aborted: an
        abort of it invalidates.
        """

    def can_commit(self, tx: Transaction, changes: Iterable[bytes]) -> None:
        """Checks the keys it changed, and remembers them for `commit`.

        Raises `TransactionConflict` when another transaction that was not visible to
        this one committed a change of the same key, `TransactionTooLarge` or
        `TransactionNotInProgress`. After a no, `commit` refuses too.
        """

    def persist(self, tx: Transaction) -> None:
        """Returns when a crash cannot forget that `tx` and its checkpoints exist.

        Called before a participant writes to a store of its own: what it wrote could
        otherwise be taken for committed after a crash. Where it is known that `tx` is
        not in progress, this raises `TransactionNotInProgress`. A coordinator that has
        `note_writers(tx, names)` is told first who those participants are.
        """

    def commit(self, tx: Transaction) -> None:
        """Makes the writes of `tx` visible to all that begin from now on.

        When it returns, the decision is on disk. Raises `TransactionConflict` or
        `TransactionNotInProgress` for a no.
        """

    def abort(self, tx: Transaction) -> None:
        """Ends a transaction whose holder has undone everything it wrote.

        What was not undone would become visible; `invalidate` instead, when in doubt.
        """

    def invalidate(self, tx: Transaction | int) -> bool:
        """Ends a transaction so that nobody ever sees what it wrote.

        True: it had not committed and now never will. False: it had already ended,
        one way or the other.
        """

    def checkpoint(self, tx: Transaction) -> Transaction:
        """The same transaction with a new write pointer.

        With `SNAPSHOT_EXCLUDE_CURRENT` it sees what it wrote before the checkpoint.
        """

    def snapshot(self) -> Transaction:
        """A read-only transaction, which needs no end."""

    def status(self) -> str:
        """`"OK"`, or a sentence about what is wrong."""

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        """Forgets these invalid pointers; True if any was forgotten.

        What they wrote becomes visible unless it was removed or marked before.
        """

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        """Forgets all invalid pointers of transactions begun before that time.

        Raises `TruncateRefused` while such a transaction is still open.
        """

    def invalid_size(self) -> int:
        """How many pointers are invalid."""

    def outcome(self, tx: Transaction | int) -> Outcome:
        """What became of what was written with a pointer.

        As long as a registered keeper still names the pointer, this is surely right.
        Later it is `FORGOTTEN`; so is a pointer that was never given out.
        """

    def close(self) -> None:
        """Gives back what the coordinator holds; a second close does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


class TransactionAware(Protocol):
    """Takes part in a transaction: a table, a publisher, anything that can undo.

    The context calls, in this order and from one thread at a time:

    1. `start_tx`, at the start or on joining later. What raises here has not joined
       and must have left nothing behind.
    2. `get_tx_changes` of all participants. Until here nothing durable may be written.
    3. `commit_tx` of all, in the order of joining; those that say
       `flushes_last = True` after all others. An answer other than True, or raising,
       refuses the transaction.
    4. the coordinator commits, and then `post_tx_commit` of all. Raising here changes
       nothing: the transaction stays committed and the others still get their call.

    After a no in 1 to 4, or an error in the body, every participant that started gets
    `rollback_tx`, also one whose `commit_tx` was never called or raised. True means
    that nothing of the transaction is left. Any other answer, or raising, means that
    something may be: the transaction is then invalidated and not aborted.

    `checkpoint` persists what was changed so far: `commit_tx` of all but those that
    flush last, then `update_tx` of all with the new pointer.

    Two attributes are optional. `flushes_last = True`: see 3; for messages, whose
    readers wait from the flush to the commit. `shares_journal = True`: its rows go
    into the same synced batch as the coordinator's own records, so the context need
    not `persist` the transaction before `commit_tx`.

    One that keeps rows of its own, and judges them by their pointers, has to answer
    `smallest_pointer()`, the least pointer that they may still hold (None for none),
    and be registered: `messaging.register_keeper(participant)`. A process that dies in
    `commit_tx` leaves such rows, and they count as committed when the coordinator has
    forgotten that their transaction is invalid. It forgets nothing from that pointer
    on. `coordinator.outcome(pointer)` says what became of a row.
    """

    @property
    def transaction_aware_name(self) -> str:
        """What error messages call it."""

    def start_tx(self, tx: Transaction) -> None:
        """A transaction begins; remember it for reading and writing."""

    def update_tx(self, tx: Transaction) -> None:
        """The same transaction goes on with a new write pointer; keep all state."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """The keys changed so far; two transactions that share one conflict."""

    def commit_tx(self) -> bool:
        """Writes what was changed; True when all of it is written."""

    def post_tx_commit(self) -> None:
        """The transaction is committed."""

    def rollback_tx(self) -> bool:
        """Undoes what was written; True when nothing of it is left."""
