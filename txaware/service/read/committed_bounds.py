"""Finds the ends of a topic for committed readers, without reading all of it."""

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import Bounds, MessageId
from txaware.service.visibility import DELIVER, STOP, ForeignPointers, Visibility
from txaware.store.columns import pointer_of
from txaware.store.keys import MESSAGE, row_key
from txaware.store.packed_rows import first_key

# Mostly the outermost row is the one; what was rolled back is passed over.
# A row may seem so much older than its transaction where clocks differ.
CLOCKS_DIFFER_MS = 60_000
FIRST_ROWS, MOST_ROWS, MOST_BYTES = 2, 1000, 1 << 20
# The topics whose progress is remembered.
MOST_KNOWN = 10_000


@attrs.frozen
class _Progress:
    """The rows of a topic, from `floor` on, that need no second look.

    Those before `decided` are decided for good: none of them is committed before
    `first`, nor behind `last`.
    """

    floor: bytes
    first: bytes
    last: bytes = b""
    decided: bytes = b""


class CommittedBounds:
    """Ends of topics by snapshots: the first and last committed row, and the stop.

    A row that was decided once stays so. Each look at a topic goes on from the last
    one, and the first begins where the oldest open transaction did. A row whose pointer
    nobody gave out is found where it was written, or where a reader met it, since the
    store was opened. Any number of threads may ask.
    """

    def __init__(self, table: OrderedTable, foreign_pointers: ForeignPointers) -> None:
        self._table = table
        self._foreign_pointers = foreign_pointers
        self._known: dict[bytes, _Progress] = {}

    def forget(self) -> None:
        """Looks at all rows anew, as another process had some."""
        self._known = {}

    def find(
        self,
        prefix: bytes,
        snapshot: Transaction,
        judge: Visibility,
        *,
        bound: bytes,
        start: bytes,
        stop: bytes,
    ) -> Bounds:
        """Returns the bounds of a topic whose rows lie from `bound` to before `stop`.

        `judge` judges by the snapshot; `next` is the first row that it cannot decide,
        or `stop`. The first and last committed row lie from `start` on.
        """
        newest = self._newest(prefix, bound, stop)
        if newest is None:
            return Bounds(None, None, MessageId.of_row(stop))
        known = self._known.get(prefix)
        if known is None or bound < known.floor:
            known = _Progress(bound, bound)
        stable = self._stable(
            prefix, known, snapshot, judge, newest=newest, bound=bound, stop=stop
        )
        last = self._last(prefix, known, judge, newest=newest, bound=bound, stop=stable)
        first = self._first(prefix, judge, max(bound, known.first), stable)
        found = _Progress(known.floor, first or stable, last or b"", stable)
        self._remember(prefix, found)
        if start > found.first:
            first = self._first(prefix, judge, start, stable)
        return Bounds(
            None if first is None else MessageId.of_row(first),
            None if first is None or last is None else MessageId.of_row(last),
            MessageId.of_row(stable),
        )

    def _stable(
        self,
        prefix: bytes,
        known: _Progress,
        snapshot: Transaction,
        judge: Visibility,
        *,
        newest: bytes,
        bound: bytes,
        stop: bytes,
    ) -> bytes:
        """Returns the key of the first undecided row, or `stop` where there is none."""
        oldest = min(snapshot.first_in_progress, snapshot.transaction_id)
        begin = max(bound, known.decided, decided_before(oldest))
        stranger = self._foreign_pointers.first(prefix)
        if stranger is not None:
            begin = min(begin, max(bound, stranger))
        if newest < begin:
            return stop
        key = first_stop(self._table, prefix, judge, start=begin, stop=stop)
        if stranger is not None:
            self._foreign_pointers.passed(prefix, stranger, key)
        return stop if key is None else key

    def _last(
        self,
        prefix: bytes,
        known: _Progress,
        judge: Visibility,
        *,
        newest: bytes,
        bound: bytes,
        stop: bytes,
    ) -> bytes | None:
        """Returns the last committed row; looks only at those that it did not know."""
        start, found = max(bound, known.decided), None
        if newest >= start:
            found = self._outermost(prefix, judge, start, stop, reverse=True)
        if found is not None or known.last < bound:
            return found
        return known.last

    def _first(
        self, prefix: bytes, judge: Visibility, start: bytes, stop: bytes
    ) -> bytes | None:
        return self._outermost(prefix, judge, start, stop, reverse=False)

    def _outermost(
        self,
        prefix: bytes,
        judge: Visibility,
        start: bytes,
        stop: bytes,
        *,
        reverse: bool,
    ) -> bytes | None:
        """Returns the key of the first committed message, from either end."""
        limit = FIRST_ROWS
        while start < stop:
            rows = self._table.scan(
                MESSAGE + prefix,
                start=start,
                stop=stop,
                limit=limit,
                max_bytes=MOST_BYTES,
                reverse=reverse,
            )
            for key, value in rows:
                if judge.verdict(pointer_of(value)) == DELIVER:
                    return key if reverse else max(start, first_key(key, value))
            if not rows:
                break
            if reverse:
                stop = rows[-1][0]
            else:
                start = rows[-1][0] + b"\0"
            limit = MOST_ROWS
        return None

    def _newest(self, prefix: bytes, start: bytes, stop: bytes) -> bytes | None:
        """Returns the key of the last row of a range, whatever became of it."""
        rows = self._table.scan(
            MESSAGE + prefix, start=start, stop=stop, limit=1, reverse=True
        )
        return rows[0][0] if rows else None

    def _remember(self, prefix: bytes, found: _Progress) -> None:
        before = self._known.get(prefix)
        if before is not None and before.floor <= found.floor:
            if found.decided < before.decided:
                return  # somebody else has come further meanwhile
        elif len(self._known) >= MOST_KNOWN:
            self._known = {}
        self._known[prefix] = found


def first_undecided(
    table: OrderedTable,
    prefix: bytes,
    *,
    start: MessageId,
    stop: MessageId,
    snapshot: Transaction,
) -> MessageId:
    """Returns the id of the first undecided row, or `stop` where there is none.

    `stop` must not be behind the snapshot. Rows of transactions in progress are not
    older than the first of these transactions, so the look begins there.
    """
    if not snapshot.in_progress:
        return stop
    first = max(start.row_key, decided_before(snapshot.in_progress[0]))
    last = stop.row_key + b"\0" if any(stop.payload_key) else stop.row_key
    key = first_stop(table, prefix, Visibility(snapshot), start=first, stop=last)
    return stop if key is None else min(stop, max(start, MessageId.of_row(key)))


def decided_before(pointer: int) -> bytes:
    """Returns a key that no row of this transaction, or a later one, lies before."""
    return row_key(max(0, pointer // POINTERS_PER_MS - CLOCKS_DIFFER_MS))


def first_stop(
    table: OrderedTable, prefix: bytes, judge: Visibility, *, start: bytes, stop: bytes
) -> bytes | None:
    """Returns the key of the first row that the judge stops at; reads up to it."""
    while rows := table.scan(
        MESSAGE + prefix, start=start, stop=stop, limit=MOST_ROWS, max_bytes=MOST_BYTES
    ):
        for key, value in rows:
            if judge.verdict(pointer_of(value)) == STOP:
                return key
        start = rows[-1][0] + b"\0"
    return None
