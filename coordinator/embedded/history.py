"""The sum of a journal's records: everything that a restart needs to know."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from coordinator.embedded.lives import MOST_LIVES, Decisions, with_life
from coordinator.embedded.records import (
    Aborted,
    Checkpointed,
    Closed,
    Committed,
    Decided,
    Invalidated,
    Lived,
    Lost,
    Prepared,
    Reached,
    Record,
    Reserved,
    Seen,
    Started,
    Truncated,
)
from coordinator.outcome import Aborts
from coordinator.pointers import Pointers, Ranges
from coordinator.transaction import NO_POINTER

# This is not a pointer. Among truncated pointers it says that the outcomes above them
# are known.
KNOWN_ABOVE = 0


class History:
    """The sum of records in the journal's order; `records()` says the same in few.

    `highest` is the highest pointer that has a record. Notes reach the journal in the
    order of their pointers, so at a crash the pointers between `highest` and `reserved`
    have no record at all.

    `knows_outcomes` says that `aborts` has every abort above its `forgotten`. A journal
    of an earlier version does not say so.
    """

    def __init__(self) -> None:
        self.first = 0
        self.highest = 0
        self.reserved = 0
        self.open: dict[int, Started] = {}
        self.checkpoints: dict[int, dict[int, None]] = {}
        self.prepared: dict[int, Prepared] = {}
        self.invalid: dict[int, int] = {}
        self.unseen: dict[int, tuple[bytes, ...]] = {}
        self.changes: deque[tuple[int, tuple[bytes, ...]]] = deque()
        self.lost: list[Lost] = []
        self.aborts = Aborts()
        self.knows_outcomes = False
        self.lives: list[Lived] = []
        self.decisions = Decisions()
        self._outliving: dict[int, None] = {}  # in the order of their ids
        self._apply: dict[type[Any], Callable[[Any], None]] = {
            Started: self._started,
            Checkpointed: self._checkpointed,
            Committed: self._committed,
            Seen: self._seen,
            Aborted: self._aborted,
            Invalidated: self._invalidated,
            Truncated: self._truncated,
            Prepared: self._prepared,
            Reserved: self._reserved,
            Reached: self._reached,
            Lost: self._lost,
            Closed: self._closed,
            Lived: self._lived,
            Decided: self.decisions.add,
        }

    def apply(self, record: Record) -> None:
        """Adds the next record."""
        self._apply[type(record)](record)

    def unrecorded(self) -> list[Lost]:
        """Returns the pointers that a crash now would leave without any record."""
        if self.highest < self.reserved:
            return [Lost(self.highest + 1, self.reserved)]
        return []

    def lost_pointers(self, *, crashed: bool) -> Ranges:
        """Returns pointers that crashes left unrecorded, also now if it `crashed`."""
        lost = [*self.lost, *(self.unrecorded() if crashed else ())]
        return Ranges((each.first, each.last) for each in lost)

    def _invalid_by_end(self) -> Iterator[tuple[Pointers, int]]:
        """Yields the invalid pointers, grouped by the time when they became invalid."""
        by_end = sorted(self.invalid.items(), key=itemgetter(1))
        for ended_ms, group in groupby(by_end, key=itemgetter(1)):
            yield Pointers(pointer for pointer, _ in group), ended_ms

    def records(self) -> Iterator[Record]:
        """Yields the shortest list of records that adds up to the same history."""
        yield Reached(self.first, self.highest)
        yield Reserved(self.reserved)
        yield from self.lost
        yield from self.lives
        yield from self.decisions
        if self.knows_outcomes:
            yield from outcome_records(self.aborts)
        for transaction_id, keys in self.unseen.items():
            yield Committed(transaction_id, keys)
        for pointers, ended_ms in self._invalid_by_end():
            yield Invalidated(ended_ms, pointers)
        for transaction_id, started in self.open.items():
            yield started
            for pointer in self.checkpoints.get(transaction_id, ()):
                yield Checkpointed(transaction_id, pointer)
            if transaction_id in self.prepared:
                yield self.prepared[transaction_id]
        for pointer, keys in self.changes:
            # Whose keys they are no longer matters, and 0 is no transaction's id.
            yield Committed(0, keys)
            yield Seen(0, pointer)

    def _started(self, record: Started) -> None:
        self._outliving.pop(record.transaction_id, None)
        self.open[record.transaction_id] = record
        # Conflicts of long transactions are not kept, and not while running either.
        if record.outlives_process and not record.long:
            self._outliving[record.transaction_id] = None
        self._mention(record.transaction_id)

    def _checkpointed(self, record: Checkpointed) -> None:
        # An interrupted record may come again, and counts once.
        self.checkpoints.setdefault(record.transaction_id, {})[record.pointer] = None
        self._mention(record.pointer)

    def _committed(self, record: Committed) -> None:
        checkpoints: Iterable[int] = ()
        if self.checkpoints:
            checkpoints = self.checkpoints.get(record.transaction_id, ())
        self._end(record.transaction_id)
        if self.invalid:
            # An earlier invalidation failed, or else it could not have committed.
            for pointer in (record.transaction_id, *checkpoints):
                self.invalid.pop(pointer, None)
        if record.keys:
            self.unseen[record.transaction_id] = tuple(record.keys)

    def _seen(self, record: Seen) -> None:
        keys = self.unseen.pop(record.transaction_id, ())
        # After a restart only transactions that outlive it can still meet a conflict.
        if keys and self._oldest() < record.commit_pointer:
            self.changes.append((record.commit_pointer, keys))

    def _aborted(self, record: Aborted) -> None:
        transaction_id = record.transaction_id
        if self.knows_outcomes:
            checkpoints = self.checkpoints.get(transaction_id, ())
            self.aborts.add((transaction_id, *checkpoints))
        self._end(transaction_id)

    def _invalidated(self, record: Invalidated) -> None:
        for pointer in record.pointers:
            self._end(pointer)
            self.invalid[pointer] = record.ended_ms

    def _truncated(self, record: Truncated) -> None:
        if KNOWN_ABOVE in record.pointers:
            self.knows_outcomes = True  # the bound beside it may well be invalid
        else:
            for pointer in record.pointers:
                self.invalid.pop(pointer, None)
        if self.knows_outcomes and record.pointers:
            self.aborts.forget(record.pointers[-1])

    def _prepared(self, record: Prepared) -> None:
        if record.transaction_id in self.open:
            self.prepared[record.transaction_id] = record
            self._no_longer_checked(record.transaction_id)

    def _reserved(self, record: Reserved) -> None:
        self.reserved = max(self.reserved, record.limit)

    def _reached(self, record: Reached) -> None:
        self.first = record.first
        self._mention(record.highest)

    def _lost(self, record: Lost) -> None:
        self.lost.append(record)
        self._mention(record.last)

    def _closed(self, record: Closed) -> None:
        self.reserved = record.last
        self._mention(record.last)

    def _lived(self, record: Lived) -> None:
        self.lives = with_life(self.lives, record, reserved=self.reserved)
        while len(self.lives) > MOST_LIVES:
            self.aborts.forget(self.lives.pop(0).last)

    def _mention(self, pointer: int) -> None:
        if pointer > self.highest:
            self.highest = pointer

    def _end(self, transaction_id: int) -> None:
        if transaction_id > self.highest:
            self.highest = transaction_id
        if self.open:
            self.open.pop(transaction_id, None)
        if self.checkpoints:
            self.checkpoints.pop(transaction_id, None)
        if self.prepared:
            self.prepared.pop(transaction_id, None)
        self._no_longer_checked(transaction_id)

    def _no_longer_checked(self, transaction_id: int) -> None:
        """Forgets the changes that only this transaction could still conflict with."""
        if transaction_id in self._outliving:
            del self._outliving[transaction_id]
            oldest = self._oldest()
            while self.changes and self.changes[0][0] <= oldest:
                self.changes.popleft()

    def _oldest(self) -> int:
        return next(iter(self._outliving), NO_POINTER)


def outcome_records(aborts: Aborts) -> Iterator[Record]:
    """Yields records that outcomes above the forgotten are known, and the aborts."""
    yield Truncated((KNOWN_ABOVE, aborts.forgotten))
    for pointer in aborts:
        yield Aborted(pointer)
