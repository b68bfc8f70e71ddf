"""The two sides of a commit, who decides it and who takes part, and what it carries."""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Protocol, Self

from coordinator.errors import Unavailable
from coordinator.outcome import Outcome
from coordinator.transaction import Transaction


class Coordinator(Protocol):
    """Gives out transactions and decides which of them commit.

    Any number of threads may call. A call that raises `TransactionRefused` is a
    definite no. Any other exception leaves open what happened: see
    `TransactionContext` for how the outcome of a commit is then settled.

    The order for one transaction: `start_short` or `start_long`, `can_commit`, then its
    participants write, then `commit`. Instead of `commit`, a holder that has undone
    everything calls `abort`. Anybody may call `invalidate`.

    What only some coordinators can do is a port of its own, which nobody has to offer:
    `InProcess`, `TellsOutcomes` and `KnowsLives` (`optional_ports.py`),
    `TellsStandings`, and `TwoPhases` (`prepared_transactions.py`). One that asks the
    coordinator of a server says `is_at_server = True`.
    """

    @property
    def settle_grace_s(self) -> float:
        """The time after its end for which an invalid pointer is surely remembered."""

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        """Begins a transaction whose changes are checked for conflicts.

        `outlives_process` says that its holder would survive this process, because it
        calls over a network for example. The transaction then survives a restart.
        """

    def start_long(self, *, outlives_process: bool = False) -> Transaction:
        """Begins a transaction that may run for a day.

        Conflicts between two long transactions may go unseen. An abort of a long
        transaction invalidates it.
        """

    def can_commit(self, tx: Transaction, changes: Iterable[bytes]) -> None:
        """Checks the keys that `tx` changed, and remembers them for `commit`.

        Raises `TransactionConflict` when another transaction that was not visible to
        this one committed a change of the same key. It may also raise
        `TransactionTooLarge` or `TransactionNotInProgress`. After any of these,
        `commit` refuses too.
        """

    def persist(self, tx: Transaction) -> None:
        """Returns when a crash cannot forget that `tx` and its checkpoints exist.

        Called before a participant writes to a store of its own: after a crash its
        rows could otherwise be taken for committed. Raises `TransactionNotInProgress`
        when the coordinator knows that `tx` is not in progress. A coordinator that has
        `note_writers(tx, names)` is told the names of those participants first.
        """

    def commit(self, tx: Transaction) -> None:
        """Makes the writes of `tx` visible to all that begin from now on.

        When it returns, the decision is on disk. Raises `TransactionConflict` or
        `TransactionNotInProgress` when it refuses.
        """

    def abort(self, tx: Transaction) -> None:
        """Ends a transaction whose holder has undone everything it wrote.

        Anything that was not undone would become visible. When in doubt, call
        `invalidate` instead.
        """

    def invalidate(self, tx: Transaction | int) -> bool:
        """Ends a transaction so that nobody ever sees what it wrote.

        Returns True when it had not committed and now never will. Returns False when
        it had already ended, one way or the other.
        """

    def checkpoint(self, tx: Transaction) -> Transaction:
        """Returns the same transaction with a new write pointer.

        With `SNAPSHOT_EXCLUDE_CURRENT` it sees what it wrote before the checkpoint.
        """

    def snapshot(self) -> Transaction:
        """Returns a read-only transaction, which needs no end."""

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        """Forgets these invalid pointers; True if any was forgotten.

        Rows written with them become visible unless they were removed or marked before.
        """

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        """Forgets all invalid pointers of transactions begun before that time.

        Raises `TruncateRefused` while such a transaction is still open.
        """

    def invalid_size(self) -> int:
        """Counts the invalid pointers."""

    def outcome(self, tx: Transaction | int) -> Outcome:
        """Tells the outcome of the writes that were made with a pointer.

        As long as a registered keeper still names the pointer, the answer is surely
        right. Later it is `FORGOTTEN`, as it is for a pointer that was never given out.
        """

    def close(self) -> None:
        """Gives back what the coordinator holds; a second close does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...


# Called when the batch of a commit has ended, with its error or None, while nobody can
# begin a transaction. Returns what to call after that; None for nothing.
OnBatchEnd = Callable[[Unavailable | None], Callable[[], object] | None]


# Called when a batch has ended, with its error, or None when the records are on disk.
OnWritten = Callable[[Unavailable | None], None]


# Hands rows to a commit, with what is told its end. Returns a function that waits for
# it; None where the rows cannot go now.
SubmitRows = Callable[[Sequence[Any], OnBatchEnd], Callable[[], None] | None]
Loading = Generator[tuple[Sequence[Any], OnBatchEnd], bool, None]


class Cargo(Protocol):
    """The rows of participants that go to disk in one batch with their commit.

    Nobody can read them before the commit is on disk. So a commit that is refused or
    not written leaves nothing to undo.
    """

    def loading(self) -> Loading:
        """Yields the rows and what is told their end, under the locks they need.

        Sent True it lets go of the locks: the rows are submitted. Sent False it drops
        the rows as well, and may be called again. Closed in between, by an interrupt,
        it finds out later which of the two happened.
        """


class TransactionAware(Protocol):
    """A participant of transactions: a table, a publisher, anything that can undo.

    The context calls, in this order and from one thread at a time:

    1. `start_tx`, at the start or on joining later. A participant that raises here has
       not joined and must have left nothing behind.
    2. `get_tx_changes` of all participants. Until here nothing durable may be written.
    3. `commit_tx` of all, in the order of joining. Participants with
       `flushes_last = True` come after all others. An answer other than True, or
       raising, refuses the transaction.
    4. the coordinator commits, and then `post_tx_commit` of all. Raising here changes
       nothing: the transaction stays committed and the others still get their call.

    After a refusal in 1 to 4, or an error in the body, every participant that started
    gets `rollback_tx`, also when its `commit_tx` was never called or raised. True means
    that nothing of the transaction is left. Any other answer, or raising, means that
    something may be left: the transaction is then invalidated and not aborted.

    `checkpoint` writes the changes made so far: it calls `commit_tx` of all but those
    that flush last, and then `update_tx` of all with the new pointer.

    All else that it may have is optional; `Participant` has all of it.

    A participant that keeps rows of its own, and judges them by their pointers, has to
    have `smallest_pointer()`, the least pointer that its rows may still hold (None for
    none). It has to be registered: `messaging.register_keeper(participant)`. A process
    that dies in `commit_tx` leaves such rows, and they count as committed once the
    coordinator has forgotten that their transaction is invalid. The coordinator forgets
    nothing from that pointer on. `coordinator.outcome(pointer)` tells the outcome of a
    row.
    """

    @property
    def transaction_aware_name(self) -> str:
        """The name of the participant in error messages."""

    def start_tx(self, tx: Transaction) -> None:
        """Remembers a transaction that begins, for reading and writing."""

    def update_tx(self, tx: Transaction) -> None:
        """Takes the same transaction with a new write pointer, and keeps all state."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns the keys changed so far; two transactions that share one conflict."""

    def commit_tx(self) -> bool:
        """Writes all changes; returns True when all of them are written."""

    def post_tx_commit(self) -> None:
        """Learns that the transaction is committed."""

    def rollback_tx(self) -> bool:
        """Undoes all writes; returns True when nothing of them is left."""


class Participant:
    """A `TransactionAware` that does nothing: inherit it, and write what yours does.

    A class of it has a `transaction_aware_name`, and with a `commit_tx` of its own also
    a `rollback_tx`. It says as attributes what else it is:

    - `flushes_last`: its `commit_tx` comes after all others, and not at a checkpoint.
      It is for messages, whose readers wait from the flush to the commit.
    - `shares_journal`: its rows go into the same synced batch as the coordinator's own
      records, so the context need not `persist` the transaction before `commit_tx`.
    - `decides`: it can only commit at once, and decides the block. It flushes last, and
      its `commit_tx` comes in place of the coordinator's commit: True means that the
      block has committed, raising that nothing has. Where it cannot know it raises
      `TransactionOutcomeUnknown`, and nobody is told anything then. The block is
      refused before, if another participant names changed keys or prepares.
    - `prepares`: it changes something in each block, whatever keys it names.
    - `waits_for_commit`: it needs nothing of its transaction before the commit, which
      may then begin with that.
    - `is_closed`: it was closed or lost, and the worker that made it makes another one.
    """

    transaction_aware_name: str
    flushes_last: bool = False
    shares_journal: bool = False
    decides: bool = False
    prepares: bool = False
    waits_for_commit: bool = False
    is_closed: bool = False

    # Returns a `Cargo` that this coordinator takes in its `commit_with(tx, cargo)`, or
    # None. A participant whose cargo the commit carries does not get `commit_tx`. The
    # context asks the last ones to flush for it.
    commit_cargo: Callable[[Coordinator], Cargo | None] | None = None

    # Is called instead of `post_tx_commit` once the transaction is prepared: others end
    # it, perhaps in another process, and the participant forgets it. Without it no
    # transaction of the participant can be prepared.
    post_tx_prepare: Callable[[], object] | None = None

    def require_coordinator(self, coordinator: Coordinator) -> None:
        """Takes a block of any coordinator; raising refuses to join."""

    def take_block(self, context: Any) -> None:
        """Learns the block that it decides; raising ends the block."""

    def start_tx(self, tx: Transaction) -> None:
        """Does nothing, like all that follow."""

    def update_tx(self, tx: Transaction) -> None:
        """Keeps the first pointer."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns no keys: it conflicts with nobody."""
        return ()

    def commit_tx(self) -> bool:
        """Returns True: there is nothing to write."""
        return True

    def flush_early(self, context: Any) -> None:
        """Has nothing to write that others may read before the commit.

        Who writes asks `context.require_writable(self)` first.
        """

    def post_tx_commit(self) -> None:
        """Has nothing left to do."""

    def rollback_tx(self) -> bool:
        """Returns True: there is nothing to undo."""
        return True

    def close(self) -> None:
        """Has nothing to give back; a worker calls it for what it has made."""


# Made once: the types of a function within another one are made at each call.
Loaded = Callable[[], None] | None
Wake = Callable[[], object]
Away = Unavailable | None


def load(cargo: Cargo, submit: SubmitRows) -> Loaded:
    """Submits the rows of a cargo under its locks; returns what `submit` returned."""
    loading = cargo.loading()
    try:
        rows, on_batch_end = next(loading)
        wait = submit(rows, on_batch_end)
        try:
            loading.send(wait is not None)
        except StopIteration:
            return wait
        raise AssertionError(f"{cargo!r:.200} yields rows once")
    except Exception:
        _end(loading, is_submitted=False)
        raise
    except BaseException:
        loading.close()
        raise


def _end(loading: Loading, *, is_submitted: bool) -> None:
    # As `suppress` does, in a third of the time: a commit may have many.
    try:  # noqa: SIM105
        loading.send(is_submitted)
    except StopIteration:
        pass


class JoinedCargo:
    """Several cargoes that one commit carries, in one piece.

    Their locks are taken one after the other and held together.
    """

    def __init__(self, cargoes: Sequence[Cargo] = ()) -> None:
        self._cargoes = cargoes

    def loading(self) -> Loading:
        """Yields the rows of all; all of them are told how it ended."""
        rows: list[Any] = []
        listeners: list[OnBatchEnd] = []
        begun: list[Loading] = []
        try:
            for cargo in self._cargoes:
                begun.append(cargo.loading())
                more, on_batch_end = next(begun[-1])
                rows += more
                listeners.append(on_batch_end)
            is_submitted = yield rows, _notify_all(listeners)
            _end_all(begun, is_submitted=is_submitted)
        except Exception:
            _end_all(begun, is_submitted=False)
            raise
        finally:
            for loading in reversed(begun):
                loading.close()


def _end_all(begun: list[Loading], *, is_submitted: bool) -> None:
    for loading in reversed(begun):
        _end(loading, is_submitted=is_submitted)


def joined(cargoes: Sequence[Cargo]) -> Cargo:
    """Returns one or several cargoes as one; a single one as it is."""
    first, *others = cargoes
    return JoinedCargo(cargoes) if others else first


def empty_cargo(coordinator: Coordinator) -> Cargo | None:
    """Returns the cargo of a participant that has nothing to write at the commit.

    Returns None for a coordinator whose commits carry nothing.
    """
    return JoinedCargo() if hasattr(type(coordinator), "commit_with") else None


def _notify_all(listeners: Sequence[OnBatchEnd]) -> OnBatchEnd:
    """Returns a listener that tells each of the given ones, and then wakes for all."""

    def notify(error: Away) -> Wake:
        wakes = [wake for listen in listeners if (wake := listen(error)) is not None]

        def wake_all() -> None:
            for wake in wakes:
                wake()

        return wake_all

    return notify
