"""Ends of transactions, which are written first and applied when they are on disk."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from coordinator.embedded.group_commit import End
from coordinator.embedded.journal import Journal
from coordinator.embedded.ledger import Ledger
from coordinator.embedded.open_transactions import ENDING, UNDECIDED, OpenTransaction
from coordinator.embedded.records import (
    Checkpointed,
    Committed,
    Invalidated,
    Prepared,
    Record,
    Reserved,
    Seen,
)
from coordinator.errors import NotWritten, Unavailable
from coordinator.interfaces import OnBatchEnd, OnWritten
from coordinator.threads import Condition
from coordinator.transaction import POINTERS_PER_MS

# Pointers are reserved so far ahead that one sync serves many starts. After a crash,
# pointers go on above the reserved ones, so they may be ahead of the clock for so long.
AHEAD_MS = 10_000


class Reserve:
    """The highest pointer that the disk allows to give out, its `limit`.

    No crash has a pointer up to there given out twice.
    """

    def __init__(self) -> None:
        self.limit = 0

    def due(self, now_ms: int, *, pointer: int = 0) -> tuple[Reserved, ...]:
        """Returns a record for the next batch, if little is left or `pointer` is above.

        If pointers are ahead of the clock already, the reserve grows no further than it
        has to. Otherwise crash after crash would add up.
        """
        enough = (now_ms + AHEAD_MS // 2) * POINTERS_PER_MS
        if self.limit >= enough and self.limit >= pointer:
            return ()
        ahead = (now_ms + AHEAD_MS) * POINTERS_PER_MS
        return (Reserved(max(ahead, pointer + POINTERS_PER_MS)),)

    def extend(self, written: tuple[Reserved, ...]) -> None:
        """Extends the reserve by records that are on disk."""
        for reserved in written:
            self.limit = max(self.limit, reserved.limit)


Wait = Callable[[], None]


class CommitLog:
    """The commits and invalidations that are on their way to the disk.

    All methods but `decide` are called under the lock. `commit` and `invalidate` return
    a function that waits for the end; it is called outside the lock. The thread that
    wrote an end applies it to the ledger, so an interrupt of the waiting thread does no
    harm.
    """

    def __init__(
        self, ledger: Ledger, journal: Journal, reserve: Reserve, lock: Condition
    ) -> None:
        # The commits, and the prepared ones, that may or may not be on disk.
        self.undecided: dict[int, Prepared | None] = {}
        self._ledger = ledger
        self._journal = journal
        self._reserve = reserve
        self._lock = lock

    def commit(
        self,
        entry: OpenTransaction,
        now_ms: int,
        *,
        rows: Sequence[Any] = (),
        on_batch_end: OnBatchEnd | None = None,
        on_written: OnWritten | None = None,
    ) -> Wait:
        """Commits a transaction that was checked just now, with rows in its batch.

        `on_batch_end` is told the result under the lock, in one step with what follows
        from it: readers of several topics see the commit in all of them at once. With
        `on_written`, which is called outside of it at the end, another thread writes.
        """
        # After a restart only transactions that outlive it can still meet a conflict.
        # Keys that nobody can need are left out (a tenth of the time of a commit).
        keys = entry.changes if self._ledger.open.outliving else frozenset()
        reserved = self._reserve.due(now_ms)
        return self._submit(
            entry,
            partial(self._commit_written, entry, bool(keys), reserved, on_batch_end),
            Committed(entry.transaction_id, keys),
            *reserved,
            reserve=entry.changes,
            rows=rows,
            on_written=on_written,
        )

    def prepare(self, entry: OpenTransaction, prepared: Prepared) -> Wait:
        """Prepares a transaction that was checked just now."""
        return self._submit(
            entry,
            partial(self._prepare_written, entry, prepared),
            prepared,
            begin=partial(self._ledger.begin_prepare, entry, prepared),
            rows=self._journal.newest_format(),
        )

    def invalidate(
        self, entry: OpenTransaction, now_ms: int, *, timed_out: bool = False
    ) -> Wait:
        """Ends a transaction so that nobody ever sees what it wrote."""
        return self._submit(
            entry,
            partial(self._invalidation_written, entry, now_ms, timed_out),
            Invalidated(now_ms, entry.pointers),
        )

    def time_out(self, now_ms: int) -> list[Wait]:
        """Times out transactions that are open too long; returns functions that wait.

        A transaction that outlives the process counts as timed out only when that is on
        disk: after a restart it would be open again, and readers have passed its rows.
        When the disk fails it stays in progress, and is tried again later.
        """
        elapsed_ms = self._ledger.elapsed_ms()
        due = self._ledger.open.expired(elapsed_ms)
        local = [entry for entry in due if not entry.outlives_process]
        self._ledger.run_step(partial(self._time_out_local, local, now_ms))
        waits = [
            self.invalidate(entry, now_ms, timed_out=True)
            for entry in due
            if entry.outlives_process
        ]
        self._ledger.open.look_away(elapsed_ms)
        return waits

    def _time_out_local(self, entries: list[OpenTransaction], now_ms: int) -> None:
        self._ledger.time_out(entries, now_ms)
        for entry in entries:
            ended = Invalidated(now_ms, entry.pointers)
            self._journal.note(entry.transaction_id, ended)

    def note_unseen(self, pointer: int) -> None:
        """Notes the commits under way, which one that outlives us did not see.

        They were written down without their keys if nobody needed them before.
        """
        for keys in self._ledger.being_committed():
            self._journal.note(pointer, Committed(0, keys))
            self._journal.note(pointer, Seen(0, pointer + 1))

    def settled(self, transaction_id: int) -> OpenTransaction | None:
        """Returns the open transaction once nobody is ending it; None if it has ended.

        Releases the lock while it waits for that.
        """
        if self._ledger.unfinished_step is not None:
            self._ledger.finish_step()
        entries = self._ledger.open.by_id
        while (entry := entries.get(transaction_id)) and entry.stage is ENDING:
            # Its end is in this batch or an earlier one, and perhaps nobody waits for
            # that batch.
            with suppress(Unavailable):
                self._lock.outside(self._journal.append)
            self._ledger.finish_step()
        if entry is not None and entry.stage is UNDECIDED:
            raise Unavailable(f"{transaction_id}: {entry.stage.value}; ask again")
        return entry

    def decide(self) -> None:
        """Asks the disk about the commits whose outcome a failure left open.

        Raises `Unavailable` as long as the outcome cannot be told.
        """
        for transaction_id, prepared in list(self.undecided.items()):
            if prepared is None:
                is_written = self._journal.holds_commit(transaction_id)
            else:
                is_written = self._journal.holds_prepared(transaction_id)
            with self._lock:
                self._ledger.finish_step()
                entry = self._ledger.open.by_id.get(transaction_id)
                if entry is not None and transaction_id in self.undecided:
                    decided = partial(self._decided, entry, prepared, is_written)
                    self._ledger.run_step(decided)

    def _decided(
        self, entry: OpenTransaction, prepared: Prepared | None, is_written: bool
    ) -> None:
        if not is_written:
            self._ledger.give_back(entry)
        elif prepared is None:
            self._apply_commit(entry, True)
        else:
            self._ledger.open.prepare(entry, prepared)
        self.undecided.pop(entry.transaction_id, None)

    def _submit(
        self,
        entry: OpenTransaction,
        apply: Callable[[End, Unavailable | None], None],
        *records: Record,
        reserve: frozenset[bytes] = frozenset(),
        begin: Callable[[], None] | None = None,
        rows: Sequence[Any] = (),
        on_written: OnWritten | None = None,
    ) -> Wait:
        """Marks an end as under way and hands it to the journal: both or neither."""
        end = End(_notify_nobody)
        end.on_written = partial(apply, end)
        if on_written is not None:
            end.on_written = partial(_both, end.on_written, on_written)
        self._ledger.unfinished_step = partial(self._take_back, entry, end)
        try:
            entry.end = end
            if begin is not None:
                begin()
            else:
                self._ledger.begin_end(entry, reserve=reserve)
            if on_written is not None:
                wait: Wait = self._journal.hand_over(rows, end, records)
            elif rows:  # of a store, which also keeps the journal
                journal: Any = self._journal
                wait = journal.submit(*records, end=end, rows=rows)
            else:
                wait = self._journal.submit(*records, end=end)
        except BaseException:
            self._ledger.finish_step()
            raise
        self._ledger.unfinished_step = None
        return wait

    def _take_back(self, entry: OpenTransaction, end: End) -> None:
        if not end.submitted:
            self._ledger.give_back(entry)

    def _commit_written(
        self,
        entry: OpenTransaction,
        seen: bool,
        reserved: tuple[Reserved, ...],
        on_batch_end: OnBatchEnd | None,
        end: End,
        error: Unavailable | None,
    ) -> None:
        wake: Callable[[], object] | None = None
        with self._lock:
            if self._ledger.unfinished_step is not None:
                self._ledger.finish_step()
            if not _awaits(entry, end):
                return
            if on_batch_end is not None and error is not None:
                wake = on_batch_end(error)  # before anybody may decide it after all
            if error is None:
                if reserved:
                    self._reserve.extend(reserved)
                self._ledger.run_step(partial(self._apply_commit, entry, seen))
                if on_batch_end is not None:
                    wake = on_batch_end(None)  # nobody begins between the two
            elif isinstance(error, NotWritten):
                self._ledger.refuse(entry)
            else:
                self.undecided[entry.transaction_id] = None
                entry.stage = UNDECIDED
        if wake is not None:
            wake()

    def _prepare_written(
        self,
        entry: OpenTransaction,
        prepared: Prepared,
        end: End,
        error: Unavailable | None,
    ) -> None:
        with self._lock:
            self._ledger.finish_step()
            if not _awaits(entry, end):
                return
            if error is None:
                prepare = partial(self._ledger.open.prepare, entry, prepared)
                self._ledger.run_step(prepare)
            elif isinstance(error, NotWritten):
                self._ledger.refuse(entry)
            else:
                self.undecided[entry.transaction_id] = prepared
                entry.stage = UNDECIDED

    def _apply_commit(self, entry: OpenTransaction, seen: bool) -> None:
        commit_pointer = self._ledger.commit(entry)
        if seen:
            self._journal.note(
                entry.transaction_id, Seen(entry.transaction_id, commit_pointer)
            )

    def _invalidation_written(
        self,
        entry: OpenTransaction,
        now_ms: int,
        timed_out: bool,
        end: End,
        error: Unavailable | None,
    ) -> None:
        with self._lock:
            self._ledger.finish_step()
            if not _awaits(entry, end):
                return
            if error is not None:
                self._ledger.give_back(entry)
                # The disk may have it: a commit then takes back all that it names.
                for pointer in entry.checkpoints:
                    again = Checkpointed(entry.transaction_id, pointer)
                    self._journal.note(entry.transaction_id, again)
            elif timed_out:
                self._ledger.run_step(partial(self._ledger.time_out, [entry], now_ms))
            else:
                self._ledger.run_step(partial(self._ledger.invalidate, entry, now_ms))


def _awaits(entry: OpenTransaction, end: End) -> bool:
    """Tells whether a transaction waits for this end.

    An interrupt may have an end told twice, and by then a prepared one has another.
    """
    return entry.stage is ENDING and entry.end is end


def _both(first: OnWritten, second: OnWritten, error: Unavailable | None) -> None:
    """Tells one after the other."""
    try:
        first(error)
    finally:
        second(error)


def _notify_nobody(_: Unavailable | None) -> None:
    """Does nothing, until an end knows what it is the end of."""
