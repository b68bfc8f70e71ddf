"""A coordinator inside this process: a ledger and a journal, joined by a lock."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs

from coordinator.embedded.commit_log import CommitLog, Reserve, Wait
from coordinator.embedded.file_journal import FileJournal
from coordinator.embedded.history import outcome_records
from coordinator.embedded.invalid_pointers import Ended
from coordinator.embedded.journal import Journal, MemoryJournal
from coordinator.embedded.ledger import ChangeLimits
from coordinator.embedded.lives import NAMELESS, decided, life_named, name_of, new_salt
from coordinator.embedded.open_transactions import HELD_ABOVE_S, OPEN, OpenTransaction
from coordinator.embedded.records import (
    Aborted,
    Checkpointed,
    Closed,
    Lost,
    Record,
    Started,
    Truncated,
)
from coordinator.embedded.recovery import recover
from coordinator.embedded.two_phase_commit import TwoPhaseCommit
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.errors import (
    TransactionNotInProgress,
    TransactionPrepared,
    TransactionRefused,
    Unavailable,
    closed,
)
from coordinator.fork_guard import guard
from coordinator.interfaces import Cargo, OnBatchEnd, OnWritten, load
from coordinator.outcome import Outcome, checked_written
from coordinator.threads import Condition
from coordinator.transaction import (
    LONG,
    POINTERS_PER_MS,
    SHORT,
    ClockMs,
    Transaction,
    TransactionType,
    checked_pointer,
    checked_pointers,
    checked_timeout_s,
    elapsed_of,
    system_clock_ms,
)

DAY_S = 86_400
# A caller that asks now is served within this time, so the reserve must reach so far.
SOON_MS = 1000
# The name for a participant that writes elsewhere and did not give one.
UNNAMED = "(unnamed)"


class EmbeddedCoordinator(TwoPhaseCommit):
    """A coordinator that decides as Tephra's TransactionManager does, but more safely.

    `EmbeddedCoordinator()` lives in memory and ends with its process. `open(directory)`
    survives crashes: a commit that returned is on disk. `barrier` is for a store that
    keeps its rows in the same journal.

    `clock_ms` gives ids. Time-outs count `elapsed_ms`, which goes on evenly when the
    clock is set. Without it, `elapsed_of(clock_ms)` counts. Once it is closed, errors
    name it as it is `called`.
    """

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        clock_ms: ClockMs = system_clock_ms,
        elapsed_ms: ClockMs | None = None,
        timeout_s: float = 30,
        long_timeout_s: float = DAY_S,
        settle_grace_s: float = DAY_S,
        limits: ChangeLimits | None = None,
        called: str = "the coordinator",
    ) -> None:
        self.settle_grace_s = settle_grace_s
        self._called = called
        self._journal = MemoryJournal() if journal is None else journal
        self._clock_ms = clock_ms
        self._timeout_s = checked_timeout_s(timeout_s)
        self._long_timeout_s = long_timeout_s
        self._lock = Condition()  # guards the ledger; never held over the disk
        self._closed = self._has_ended = False
        self._reserve = Reserve()
        self._ledger = recover(
            self._journal,
            self._reserve,
            limits or ChangeLimits(),
            clock_ms(),
            elapsed_of(clock_ms) if elapsed_ms is None else elapsed_ms,
            salt=None if journal is None else new_salt(),
        )
        self._ends = CommitLog(self._ledger, self._journal, self._reserve, self._lock)
        self.barrier = WriteBarrier(self._ledger, self._lock, clock_ms)
        self._writers: dict[int, tuple[str, ...]] = {}
        guard(self)

    @classmethod
    def open(cls, directory: str | Path, **settings: Any) -> Self:
        """Opens a durable coordinator, the only one on its directory."""
        journal = FileJournal.open(Path(directory))
        try:
            return cls(journal, **settings)
        except BaseException:
            journal.close()
            raise

    def start_short(
        self, timeout_s: float | None = None, *, outlives_process: bool = False
    ) -> Transaction:
        """Begins a transaction whose changes are checked for conflicts."""
        if timeout_s is None:
            timeout_s = self._timeout_s
        else:
            checked_timeout_s(timeout_s)
        return self._start(SHORT, timeout_s, outlives_process=outlives_process)

    def start_long(self, *, outlives_process: bool = False) -> Transaction:
        """Begins a transaction that may run for a day."""
        return self._start(
            LONG,
            self._long_timeout_s,
            outlives_process=outlives_process,
        )

    def can_commit(self, tx: Transaction, changes: Iterable[bytes]) -> None:
        """Checks the changed keys, and remembers them for `commit`."""
        self._tidy_if_due()
        with self._lock:
            entry = self._require(tx.transaction_id)
            self._ledger.check_changes(entry, changes)

    def persist(self, tx: Transaction) -> None:
        """Returns when a crash cannot forget that `tx` and its checkpoints exist.

        Refuses a transaction that is not in progress: a crash may have forgotten it.
        """
        names = self._writers.pop(tx.transaction_id, (UNNAMED,))
        with self._lock:
            self._require(tx.transaction_id)
        if names:
            self.barrier.write_elsewhere(tx.transaction_id, names)
        self._journal.sync(tx.transaction_id)

    def note_writers(self, tx: Transaction, names: Sequence[str]) -> None:
        """Notes the participants that the next `persist` of `tx` is for, if any."""
        self._writers[tx.transaction_id] = tuple(names)

    def commit(self, tx: Transaction) -> None:
        """Makes the writes of `tx` visible to all that begin from now on."""
        self._tidy_if_due()
        with self._lock:
            entry = self._require(tx.transaction_id)
            self.barrier.drain(entry)
            self._ledger.check_commit(entry)
            wait = self._ends.commit(entry, self._now_ms())
        wait()

    def commit_with(self, tx: Transaction, cargo: Cargo) -> None:
        """Commits as `commit` does, and writes the cargo with it: both or neither."""
        entry: OpenTransaction | None = None
        try:
            while (wait := load(cargo, partial(self._submit_with, tx))) is None:
                self._tidy_if_due()  # no lock of the rows is held while this waits
                with self._lock:
                    entry = self._require(tx.transaction_id)
                    self.barrier.drain(entry)
                    entry.end_asked = True  # until it is loaded again
        finally:
            if entry is not None:
                entry.end_asked = False
        wait()

    def commit_soon(
        self,
        tx: Transaction,
        cargo: Cargo | None,
        on_written: OnWritten,
        *,
        changes: Iterable[bytes] | None = None,
    ) -> bool:
        """Commits and does not wait; another thread calls `on_written` at the end.

        It serves an event loop. Returns False, and has done nothing, where it would
        have to wait for others. `changes` are checked as `can_commit` does.
        """
        is_late = self._ledger.elapsed_ms() > self._ledger.open.next_expiry_ms
        if self._ends.undecided or is_late:
            return False
        with self._lock:  # what is refused here takes no ids of messages
            if self._ledger.unfinished_step is not None:
                self._ledger.finish_step()
            entry = self._ledger.require(tx.transaction_id)
            if entry.stage is not OPEN:
                return False
            if changes is not None:
                self._ledger.check_changes(entry, changes)
        submit = partial(self._submit_with, tx, on_written=on_written)
        wait = submit((), None) if cargo is None else load(cargo, submit)
        if wait is not None:
            wait()
        return wait is not None

    def _submit_with(
        self,
        tx: Transaction,
        rows: Sequence[Any],
        on_batch_end: OnBatchEnd | None,
        *,
        on_written: OnWritten | None = None,
    ) -> Wait | None:
        """Submits a commit and its rows; None if it would have to wait for others."""
        with self._lock:
            if self._ledger.unfinished_step is not None:
                self._ledger.finish_step()
            entry = self._ledger.require(tx.transaction_id)
            barrier = self.barrier
            may_wait = barrier.inside or barrier.awaited  # nearly always empty
            if entry.stage is not OPEN or (may_wait and barrier.is_busy(entry)):
                return None
            if self._closed or self._ledger.elapsed_ms() > entry.due_ms:
                self._check_open(entry)
            self._ledger.check_commit(entry)
            # The time of the last start is enough here, and takes no look at a clock.
            now_ms = self._ledger.latest_ms
            return self._ends.commit(
                entry,
                now_ms,
                rows=rows,
                on_batch_end=on_batch_end,
                on_written=on_written,
            )

    def abort(self, tx: Transaction) -> None:
        """Ends a transaction whose holder has undone everything it wrote."""
        self._tidy_if_due()
        with self._lock:
            entry = self._settled(tx.transaction_id)
            self._now_ms()
            if entry is None:
                return
            self.barrier.drain(entry)
            if entry.type is SHORT:
                self._ledger.run_step(partial(self._undone, entry))
                return
        self.invalidate(tx)

    def invalidate(self, tx: Transaction | int) -> bool:
        """Ends a transaction so that nobody ever sees what it wrote.

        Refuses a pointer that this coordinator never gave out: it cannot know the
        outcome.
        """
        transaction_id = checked_pointer(tx)
        self._tidy_if_due()
        with self._lock:
            entry, now_ms = self._settled(transaction_id), self._now_ms()
            if entry is None:
                return self._ledger.was_lost(transaction_id)
            wait = self._ends.invalidate(entry, now_ms)
        wait()
        return True

    def checkpoint(self, tx: Transaction) -> Transaction:
        """Returns the same transaction with a new write pointer."""

        def checkpoint(pointer: int, _: int, __: int) -> Transaction:
            entry = self._ledger.require(tx.transaction_id)
            self._ledger.run_step(partial(self._checkpointed, entry, pointer))
            found = attrs.evolve(
                tx, write_pointer=pointer, checkpoint_write_pointers=entry.checkpoints
            )
            return found if entry.holder is None else self._ledger.open.hold(found)

        return self._with_pointer(checkpoint, transaction_id=tx.transaction_id)

    def snapshot(self) -> Transaction:
        """Returns a read-only transaction; its id is used up but never in progress."""
        return self._with_pointer(lambda pointer, *_: self._ledger.take(pointer))

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return "closed" if self._closed else self._journal.status()

    def truncate_invalid_tx(self, pointers: Iterable[int]) -> bool:
        """Forgets these invalid pointers, but not within `settle_grace_s` of their end.

        A caller that lost the answer to a commit has that long to find out about it.
        """
        pointers = checked_pointers(pointers)
        self._tidy_if_due()
        with self._lock:
            grace_ms, now_ms = int(self.settle_grace_s * 1000), self._now_ms()
            latest = Ended(now_ms - grace_ms, self._ledger.elapsed_ms() - grace_ms)
            forgotten = self._ledger.invalid.ended_by(latest, pointers)
        if not forgotten:
            return False
        self._journal.append(Truncated(forgotten))
        with self._lock:
            self._ledger.invalid.forget(forgotten)
            self._ledger.aborts.forget(forgotten[-1])
        return True

    def truncate_invalid_tx_before(self, time_ms: int) -> bool:
        """Forgets the invalid pointers of transactions begun before that time."""
        checked_pointers([time_ms])
        self._tidy_if_due()
        with self._lock:
            self._now_ms()
            pointers = self._ledger.invalid_before(time_ms * POINTERS_PER_MS)
        return self.truncate_invalid_tx(pointers)

    def invalid_size(self) -> int:
        """Counts the invalid pointers."""
        self._tidy_if_due()
        with self._lock:
            self._now_ms()
            return len(self._ledger.invalid.pointers)

    def outcome(self, tx: Transaction | int, *, life: str | None = None) -> Outcome:
        """Tells the outcome of the writes that were made with a pointer.

        With a `life` that of its own only: see `life_of`.
        """
        pointer = checked_written(tx)
        named = None if life is None else life_named(life)
        self._tidy_if_due()
        with self._lock:
            self._now_ms()
            return self._ledger.outcome(pointer, life=named)

    def life_of(self, tx: Transaction | int) -> str:
        """Returns the id of the life that gave out a pointer; empty without one."""
        found = self._ledger.life_of(checked_written(tx))
        return "" if found is None else name_of(found.life)

    def decide(
        self, tx: Transaction | int, *, committed: bool, life: str | None = None
    ) -> None:
        """Writes down what counts as the outcome of a pointer that nobody knows.

        Refuses one whose outcome is known.
        """
        pointer = checked_written(tx)
        found = self.outcome(pointer, life=life)
        if found is not Outcome.FORGOTTEN:
            raise TransactionRefused(
                f"transaction {pointer} is {found.value}: only what nobody knows is "
                f"decided by hand"
            )
        with self._lock:
            known, current = self._ledger.life_of(pointer), self._ledger.lives.current
        named = NAMELESS if known is None else known.life
        named = named if life is None else life_named(life)
        if known is None and named == current.life:
            raise TransactionRefused(
                f"transaction {pointer} was not given out in the life {life}, which "
                f"goes on"
            )
        outcome = Outcome.COMMITTED if committed else Outcome.ROLLED_BACK
        record = decided(pointer, named, outcome)
        self._journal.append(record)
        with self._lock:
            self._ledger.decisions.add(record)

    def outcomes(self) -> list[Record]:
        """Returns the records that let a copy of this coordinator answer the same."""
        with self._lock:
            self._ledger.finish_step()
            ledger = self._ledger
            lost = [Lost(first, last) for first, last in ledger.invalid.lost]
            known = [*ledger.lives.ended(ledger.last), *ledger.decisions]
            return [*lost, *known, *outcome_records(ledger.aborts)]

    @property
    def first_pointer(self) -> int:
        """The first pointer that was ever given out."""
        return self._ledger.first

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns copies of the transactions in progress, in the order of beginning."""
        self._tidy_if_due()
        with self._lock:
            self._now_ms()
            entries = self._ledger.open.by_id.values()
            return [attrs.evolve(entry) for entry in entries]

    def may_wait(self) -> bool:
        """Tells whether the next start or snapshot may have to wait for the disk.

        An event loop asks this, and then has a thread wait.
        """
        now_ms, soon = self._clock_ms(), SOON_MS * POINTERS_PER_MS
        latest = max(now_ms * POINTERS_PER_MS, self._ledger.last)
        return (
            bool(self._ends.undecided)
            or self._ledger.elapsed_ms() > self._ledger.open.next_expiry_ms
            or latest + soon > self._reserve.limit
        )

    def close(self) -> None:
        """Notes the last pointer and releases the directory.

        If an interrupt ended it early, a second close finishes it.
        """
        with self._lock:
            if self._has_ended:
                return
            is_first, self._closed = not self._closed, True
        try:
            with nullcontext() if is_first else suppress(Unavailable):
                self._journal.append(Closed(self._ledger.last))
        finally:
            self._journal.close()
        self._has_ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _checkpointed(self, entry: OpenTransaction, pointer: int) -> None:
        self._ledger.checkpoint(entry, pointer)
        checkpointed = Checkpointed(entry.transaction_id, pointer)
        self._journal.note(entry.transaction_id, checkpointed)

    def _undone(self, entry: OpenTransaction) -> None:
        self._ledger.abort(entry)
        for pointer in entry.pointers:
            self._journal.note(entry.transaction_id, Aborted(pointer))

    def _now_ms(self) -> int:
        """Returns the time for ids; called under the lock, before any decision."""
        if self._ledger.unfinished_step is not None:
            self._ledger.finish_step()
        if self._closed:
            raise closed(self._called)
        return self._ledger.now_ms(self._clock_ms())

    def _tidy_if_due(self) -> int:
        """Settles and times out what is due; mostly nothing is, without a lock.

        Returns the elapsed time at which it looked.
        """
        next_expiry_ms = self._ledger.open.next_expiry_ms
        elapsed_ms = self._ledger.elapsed_ms()
        if self._ends.undecided or elapsed_ms > next_expiry_ms:
            with suppress(Unavailable):  # status() says so, and it is tried again
                self._ends.decide()
            with self._lock:
                waits = self._ends.time_out(self._now_ms())
            for wait in waits:
                with suppress(Unavailable):
                    wait()
        return elapsed_ms

    def _start(
        self, kind: TransactionType, timeout_s: float, *, outlives_process: bool
    ) -> Transaction:
        begun: list[OpenTransaction] = []

        def start(pointer: int, now_ms: int, elapsed_ms: int) -> Transaction:
            timeout_ms = int(timeout_s * 1000)
            expires_ms, due_ms = now_ms + timeout_ms, elapsed_ms + timeout_ms
            entry = OpenTransaction(
                pointer, kind, expires_ms, outlives_process, due_ms=due_ms
            )
            begun.append(entry)
            self._ledger.unfinished_step = partial(self._undone, entry)
            tx = self._ledger.start(entry)
            long = kind is LONG
            started = Started(pointer, expires_ms, long, outlives_process)
            self._journal.note(pointer, started)
            if entry.transaction_id in self._ledger.open.outliving:
                self._ends.note_unseen(pointer)
            if not outlives_process and (long or timeout_s > HELD_ABOVE_S):
                self._ledger.open.hold(tx)
            self._ledger.unfinished_step = None
            return tx

        try:
            return self._with_pointer(start)
        except BaseException:  # an interrupt: nobody was told of it
            with self._lock:
                self._ledger.finish_step()
                for entry in begun:
                    self._ledger.run_step(partial(self._undone, entry))
            raise

    def _with_pointer(
        self,
        use: Callable[[int, int, int], Transaction],
        *,
        transaction_id: int | None = None,
    ) -> Transaction:
        """Gives out the next pointer, once the disk knows that it may be given out.

        `use` gets it with the time for ids, and with the elapsed time.
        """
        while True:
            elapsed_ms = self._tidy_if_due()
            with self._lock:
                if transaction_id is not None:
                    self._require(transaction_id)
                now_ms = self._now_ms()
                pointer = self._ledger.next_pointer(now_ms)
                if pointer <= self._reserve.limit:
                    return use(pointer, now_ms, elapsed_ms)
                reserved = self._reserve.due(now_ms, pointer=pointer)
            self._journal.append(*reserved)
            with self._lock:
                self._reserve.extend(reserved)

    def _settled(self, transaction_id: int) -> OpenTransaction | None:
        """Returns the open transaction once nobody ends it; None if it has ended.

        Refuses one that only its name ends.
        """
        entry = self._ends.settled(transaction_id)
        if entry is not None and entry.prepared is not None:
            raise TransactionPrepared(
                f"transaction {transaction_id} is prepared as {entry.name!r}: it is "
                f"committed or rolled back by that name only"
            )
        return entry

    def _require(self, transaction_id: int) -> OpenTransaction:
        """Returns the open transaction once nobody else ends it; refuses if ended."""
        entry = self._settled(transaction_id) or self._ledger.require(transaction_id)
        self._check_open(entry)
        return entry

    def _check_open(self, entry: OpenTransaction) -> None:
        """Raises if the coordinator is closed, or if the transaction timed out."""
        if self._closed:
            raise closed(self._called)
        if self._ledger.elapsed_ms() > entry.due_ms:
            raise TransactionNotInProgress(
                f"transaction {entry.transaction_id} is not in progress: it timed out"
            )
