"""Admits the writes of a transaction, and has its end wait for those under way."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from coordinator.embedded.invalid_pointers import WatchesInvalid
from coordinator.embedded.ledger import Ledger
from coordinator.embedded.open_transactions import OPEN, OpenTransaction
from coordinator.errors import TransactionNotInProgress
from coordinator.pointers import Ranges
from coordinator.threads import Condition
from coordinator.transaction import POINTERS_PER_MS

# A pointer up to this far ahead of the clock is taken for one of ours that was never
# given out. A greater one must come from somewhere else.
AHEAD_MS = 86_400_000


class WriteBarrier:
    """A barrier that a store beside the coordinator passes for every write.

    The store keeps rows of the coordinator's transactions. Once a commit or an abort is
    asked for, `enter` refuses, and the end waits until all writes inside have left.
    Time-outs and invalidations do not wait.
    """

    def __init__(
        self, ledger: Ledger, lock: Condition, now_ms: Callable[[], int]
    ) -> None:
        self._ledger = ledger
        self._before = ledger.last
        self._now_ms = now_ms
        self._lock = lock
        self._notify_writers: Callable[[int, Sequence[str]], object] = _notify_nobody
        self._end_callbacks: tuple[Callable[[Iterable[int]], object], ...] = ()
        # True when tables elsewhere are written with this coordinator's pointers, too.
        self.is_shared = False
        # Writes are kept by thread, and not counted: an interrupt (Ctrl-C) may keep a
        # thread from leaving, but at its next call it is no longer in that write. Those
        # of an event loop, which are many at once, are kept by an object of each.
        self.inside: dict[object, OpenTransaction] = {}
        # The stores elsewhere that may still write what entered in an earlier life.
        self.awaited: set[object] = set()

    def owns(self, pointer: int) -> bool:
        """Tells whether only this coordinator can have given that pointer out."""
        ledger = self._ledger
        return (
            ledger.first
            <= pointer
            <= max(ledger.last, (self._now_ms() + AHEAD_MS) * POINTERS_PER_MS)
        )

    def gave_out(self, pointer: int) -> bool:
        """Tells whether the pointer was given out here, now or in an earlier life."""
        return self._ledger.gave_out(pointer)

    def reaches(self, pointer: int) -> bool:
        """Tells whether the pointer lies between the first and last one given out.

        Rows of the store with such a pointer are judged by snapshots: they came with
        the journal, if they were put back from a copy.
        """
        return self._ledger.first <= pointer <= self._ledger.last

    def is_open(self, pointer: int) -> bool:
        """Tells whether its transaction has not ended."""
        return pointer in self._ledger.open.in_progress

    def is_of_this_life(self, pointer: int) -> bool:
        """Tells whether it was given out since the coordinator was opened."""
        return self._before < pointer <= self._ledger.last

    def began_here(self, pointer: int) -> bool:
        """Tells whether this program, or a client of it, surely was given the pointer.

        Only pointers given out since the coordinator was opened count. If tables
        elsewhere share its pointers, only open transactions that do not outlive this
        process count.
        """
        if not self.is_shared:
            return self.is_of_this_life(pointer)
        if not self.is_open(pointer):
            return False
        with self._lock:
            self._ledger.finish_step()
            entries = self._ledger.open.by_id.values()
            return any(
                pointer in entry.pointers and not entry.outlives_process
                for entry in entries
            )

    def on_end(self, callback: Callable[[Iterable[int]], object]) -> None:
        """Has `callback` called with the pointers that have ended, under the lock.

        Each store beside the coordinator is told.
        """
        with self._lock:
            callbacks = self._end_callbacks = (*self._end_callbacks, callback)
            self._ledger.ended = (
                callback if len(callbacks) == 1 else partial(_call_all, callbacks)
            )

    def watch_invalid(self, watcher: WatchesInvalid) -> None:
        """Has a watcher told from now on which pointers are invalid."""
        with self._lock:
            self._ledger.invalid.watchers.add(watcher)

    def on_write_elsewhere(
        self, callback: Callable[[int, Sequence[str]], object]
    ) -> None:
        """Has `callback` called before participants write to stores of their own.

        It gets the transaction and their names, outside the lock. If it raises, they do
        not write.
        """
        self._notify_writers = callback

    def write_elsewhere(self, transaction_id: int, names: Sequence[str]) -> None:
        """Tells that participants of these names will write to stores of their own."""
        self._notify_writers(transaction_id, names)

    def is_invalid(self, pointer: int) -> bool:
        """Tells whether nobody will ever see the writes made with the pointer."""
        with self._lock:
            self._ledger.finish_step()
            return pointer in self._ledger.invalid.pointers

    @property
    def lost(self) -> Ranges:
        """The pointers whose transactions a crash lost, so that they never commit."""
        return self._ledger.invalid.lost

    def was_lost(self, pointer: int) -> bool:
        """Tells whether a pointer is one of `lost`."""
        return pointer in self._ledger.invalid.lost

    def enter(self, transaction_id: int, write: object = None) -> OpenTransaction:
        """Begins a write; refuses unless the transaction is open and not ending.

        A write that ends in another thread has an object that stands for it.
        """
        with self._lock:
            self._ledger.finish_step()
            entry = self._ledger.require(transaction_id)
            if entry.stage is not OPEN or entry.end_asked:
                why = "is ending" if entry.prepared is None else "is prepared"
                raise TransactionNotInProgress(
                    f"transaction {transaction_id} takes no more writes: it {why}"
                )
            if self._ledger.has_timed_out(entry):
                raise TransactionNotInProgress(
                    f"transaction {transaction_id} takes no more writes: it timed out"
                )
            self.inside[threading.get_ident() if write is None else write] = entry
            return entry

    def leave(self, entry: OpenTransaction, write: object = None) -> bool:
        """Ends a write, however it went; tells whether the transaction is open."""
        with self._lock:
            self._lock.notify_all()
            key = threading.get_ident() if write is None else write
            self.inside.pop(key, None)
            return entry.transaction_id in self._ledger.open.by_id

    def is_writing(self, transaction_id: int) -> bool:
        """Tells whether a write is under way, even after an invalidation."""
        with self._lock:
            inside = self.inside.values()
            return any(entry.transaction_id == transaction_id for entry in inside)

    def await_stores(self, stores: Iterable[object]) -> None:
        """Lets transactions of earlier lives end only once these stores have greeted.

        Until then they may write what entered before. An invalidation does not wait.
        """
        with self._lock:
            self.awaited = {*stores}

    def greet(self, stores: Iterable[object]) -> None:
        """Notes that of these stores nothing that entered before is under way."""
        with self._lock:
            self.awaited.difference_update(stores)
            self._lock.notify_all()

    def is_busy(self, entry: OpenTransaction) -> bool:
        """Tells whether the end of a transaction has to wait; called under the lock."""
        return bool(self._waits_for(entry))

    def _waits_for(self, entry: OpenTransaction) -> str:
        """Returns what the end of a transaction waits for; called under the lock."""
        if self.awaited and entry.transaction_id <= self._before:
            listed = ", ".join(sorted(map(str, self.awaited)))
            return f"what may be under way from before, of {listed}"
        writes = self._others_in(entry)
        return f"{writes} writes under way" if writes else ""

    def drain(self, entry: OpenTransaction) -> None:
        """Returns when no other thread writes; called under the lock, waits outside."""
        if not self._waits_for(entry):
            return
        try:
            while why := self._waits_for(entry):
                entry.end_asked = True  # again, as another one may have stopped waiting
                left_ms = entry.due_ms - self._ledger.elapsed_ms()
                if left_ms < 0 or entry.stage is not OPEN:
                    raise TransactionNotInProgress(
                        f"transaction {entry.transaction_id} ended while it was "
                        f"waiting for {why}"
                    )
                self._lock.wait(left_ms / 1000 + 0.001)
        finally:
            entry.end_asked = False
        self._ledger.require(entry.transaction_id)
        if entry.stage is not OPEN:
            raise TransactionNotInProgress(
                f"transaction {entry.transaction_id} was ended otherwise while it was "
                f"waiting for writes under way"
            )

    def _others_in(self, entry: OpenTransaction) -> int:
        me = threading.get_ident()
        return sum([e is entry and t != me for t, e in self.inside.items()])


def _notify_nobody(_: int, __: Sequence[str]) -> None:
    """Does nothing, until a store asks to be told who writes elsewhere."""


def _call_all(
    callbacks: Sequence[Callable[[Iterable[int]], object]], pointers: Iterable[int]
) -> None:
    for callback in callbacks:
        callback(pointers)
