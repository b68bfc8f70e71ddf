"""The way of every write for a transaction: past the barrier, and on disk with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator, OnWritten
from coordinator.optional_ports import AdmitsWrites, EnteredWrite
from coordinator.transaction import Transaction
from txaware.errors import TransactionNotInProgress, Unavailable
from txaware.model.interfaces import OrderedTable, Write
from txaware.model.requests import Pointer, checked_pointer
from txaware.model.shards import HOME
from txaware.service.wakeups import Endings
from txaware.service.write.references import References
from txaware.store.interfaces import journaled

# At most so many transactions of a coordinator elsewhere are remembered as persisted.
REMEMBERED = 1000


class TransactionWrites:
    """Begins and ends the writes of transactions, for all parts of the service.

    A write of a transaction that ends with this process waits for its commit. Where
    rows do not lie beside the coordinator's journal, its `admission` lets writes in.
    One that has none is asked once to persist a transaction that writes.
    """

    def __init__(
        self,
        table: OrderedTable,
        coordinator: Coordinator,
        barrier: WriteBarrier | None,
        *,
        endings: Endings,
        references: References,
        admission: AdmitsWrites | None = None,
        accept_unknown_pointers: bool = False,
    ) -> None:
        self._table = table
        self._coordinator = coordinator
        self._barrier = barrier
        self._admission: AdmitsWrites | None = admission or barrier
        self.may_wait = self._admission is not barrier
        self._endings = endings
        self._references = references
        self._accepts_unknown = accept_unknown_pointers
        self._persisted: dict[int, None] = {}

    def write(
        self,
        transaction: Pointer,
        writes: Sequence[Write],
        *,
        before_end: Callable[[], object] | None = None,
    ) -> None:
        """Writes rows; returns when they are on disk, or held for the commit.

        `before_end` is called before the transaction can be known to have ended.
        """
        pointer = self.begun(transaction)
        entry = self.enter(pointer)
        try:
            if not (waits_for_commit(entry) and self._table.hold(pointer, writes)):
                self._table.submit(writes)()
            if before_end is not None:
                before_end()
        finally:
            self.leave(entry)

    def write_soon(
        self, pointer: int, writes: Sequence[Write], on_written: OnWritten
    ) -> bool:
        """Writes rows and does not wait: another thread calls `on_written` later.

        Returns False, and has done nothing, where a thread has to `write`: rows that
        wait for their commit, what another coordinator began, and what waits to enter.
        """
        if self.may_wait:
            return False
        write = object()
        entry = self.enter(pointer, write)
        if entry is None or waits_for_commit(entry):
            self.leave(entry, write)
            return False

        def written(error: Unavailable | None) -> None:
            self.leave(entry, write)
            on_written(error)

        try:
            self._table.hand_over(writes, written)
        except BaseException:
            self.leave(entry, write)
            raise
        return True

    def write_with_start(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Has rows go to disk as the start of a transaction does: with the next batch.

        Nobody waits for that, and until then nobody reads them. Returns False, and
        writes nothing, for a transaction that ends with this process.
        """
        entry = self.enter(pointer)
        try:
            outlives = not waits_for_commit(entry)
            if outlives:
                journal: Any = getattr(self._table, "journal")  # noqa: B009
                journal.put(writes)
        finally:
            self.leave(entry)
        return outlives

    def begun(self, transaction: Pointer) -> int:
        """Returns the pointer of a transaction, once its start is on disk.

        It asks a coordinator elsewhere, which admits no writes, to persist the start.
        Otherwise a row could outlive a crash that its transaction does not.
        """
        pointer = checked_pointer(transaction)
        elsewhere = self._admission is None and isinstance(transaction, Transaction)
        if elsewhere and pointer not in self._persisted:
            self._coordinator.persist(cast(Transaction, transaction))
            self._persisted[pointer] = None
            for oldest in list(self._persisted)[:-REMEMBERED]:
                self._persisted.pop(oldest, None)
        return pointer

    def enter(self, pointer: int, write: object = None) -> EnteredWrite | None:
        """Holds back the end of a transaction until `leave`; None if it is not ours.

        A write that ends in another thread has an object that stands for it.

        A pointer that the barrier does not own is one that our coordinator never gave
        out. It is refused like any other that is not in progress, unless writers have
        another coordinator.
        """
        if self._admission is None or self._is_unknown(pointer):
            return None
        return self._admission.enter(pointer, write)

    def require_start(self, entry: EnteredWrite | None, shard: int) -> None:
        """Returns once the start is on disk, before rows of another shard can be.

        Otherwise these could outlive a crash that their transaction does not. What an
        `admission` let in is there.
        """
        if (
            shard != HOME
            and entry is not None
            and not self.may_wait
            and (kept := journaled(self._table)) is not None
        ):
            kept.journal.sync(entry.transaction_id)

    def _is_unknown(self, pointer: int) -> bool:
        """Tells whether a pointer of another coordinator is taken as it comes."""
        barrier = self._barrier
        if not self._accepts_unknown:
            return False
        return barrier is None or not barrier.owns(pointer)

    def leave(self, entry: EnteredWrite | None, write: object = None) -> None:
        """Ends a write that `enter` began, whether it succeeded or failed."""
        admission = self._admission
        if entry is None or admission is None or admission.leave(entry, write):
            return
        # It ended meanwhile, and was forgotten before this write was noted.
        self._endings.ended((entry.transaction_id,))
        self._references.ended((entry.transaction_id,))

    @contextmanager
    def undoing(self, pointer: int) -> Iterator[None]:
        """Surrounds a rollback as `enter` and `leave` do; an invalid one may pass.

        So may a pointer that is not ours: its rows, which came with a copy or while
        unknown pointers were accepted, keep readers waiting until they are rolled back.
        """
        barrier, admission = self._barrier, self._admission
        is_ours = barrier is None or (
            barrier.owns(pointer) and not barrier.is_invalid(pointer)
        )
        if admission is None or not is_ours or self._is_unknown(pointer):
            yield
            return
        try:
            entry = admission.enter(pointer)
        except TransactionNotInProgress as error:
            if admission.is_invalid(pointer):
                yield
                return
            raise TransactionNotInProgress(
                f"what transaction {pointer} wrote stays: it has ended, and not by "
                f"being invalid"
            ) from error
        try:
            yield
        finally:
            admission.leave(entry)


def waits_for_commit(entry: EnteredWrite | None, shard: int = HOME) -> bool:
    """Tells whether rows may wait for the commit: the transaction ends with us.

    Those of another shard than the journal's never do.
    """
    return entry is not None and shard == HOME and not entry.outlives_process
