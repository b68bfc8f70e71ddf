"""Finds the first row of a range that a snapshot cannot decide; expands nothing."""

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.interfaces import OrderedTable
from txaware.keys import MESSAGE, row_key
from txaware.messages import MessageId
from txaware.service.visibility import STOP, Visibility
from txaware.store.columns import pointer_of

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
    since_ms = max(0, snapshot.in_progress[0] // POINTERS_PER_MS - CLOCKS_DIFFER_MS)
    first = max(start.row_key, row_key(since_ms))
    last = stop.row_key + b"\0" if any(stop.payload_key) else stop.row_key
    judge = Visibility(snapshot)
    while rows := table.scan(
        MESSAGE + prefix, start=first, stop=last, limit=ROWS, max_bytes=ROWS_BYTES
    ):
        for key, value in rows:
            if judge.verdict(pointer_of(value)) == STOP:
                return min(stop, max(start, MessageId.of_row(key)))
        first = rows[-1][0] + b"\0"
    return stop
