"""Finds the first row of a range that a snapshot cannot decide; expands nothing."""

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import MessageId
from txaware.service.visibility import STOP, Visibility
from txaware.store.columns import pointer_of
from txaware.store.keys import MESSAGE, row_key

# A row may seem so much older than its transaction where clocks differ.
CLOCKS_DIFFER_MS = 60_000
# The limits of one look at the table.
ROWS, ROWS_BYTES = 1000, 1 << 20


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
        MESSAGE + prefix, start=start, stop=stop, limit=ROWS, max_bytes=ROWS_BYTES
    ):
        for key, value in rows:
            if judge.verdict(pointer_of(value)) == STOP:
                return key
        start = rows[-1][0] + b"\0"
    return None
