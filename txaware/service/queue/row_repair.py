"""Makes the rows of a queue what memory says, after a write that failed."""

from collections.abc import Iterator

from txaware.interfaces import OrderedTable, Write
from txaware.keys import LEASE, MARK, MESSAGE, PAYLOAD
from txaware.queues import pipe_prefix
from txaware.service.queue.lease import LeaseState
from txaware.service.queue.pipe_reader import PipeReader, deletion
from txaware.service.queue.queue_state import QueueState
from txaware.store.queue_table import (
    TOTALS,
    lease_key,
    lease_rows,
    pipe_rows,
    pipe_write,
)
from txaware.store.ranges import pieces

_WRITTEN = (LeaseState.IN_WORK, LeaseState.WAITING, LeaseState.DYING)


def repairs(table: OrderedTable, state: QueueState) -> list[Write]:
    """Returns the writes after which a start finds what memory has now.

    A queue decides in memory first. Where a batch failed that nobody waited for, its
    rows still have pipes and jobs that are over, and lack others. Nothing is in doubt
    about a job that is just ending: its rows stay as they are.
    """
    reader, writes = PipeReader(table), list[Write]()
    for number, _ in pipe_rows(table, state.prefix):
        if number != TOTALS and number not in state.pipes:
            prefix = pipe_prefix(state.name, state.descriptor.generation, number)
            writes += leftovers(table, prefix)
            writes.append(pipe_write(prefix, None))
    leases = state.leases
    for number, key, row in lease_rows(table, state.prefix):
        if (pipe := state.pipes.get(number)) is None:
            continue
        items = row.items or [key]
        over = [item for item in items if (number, item) not in leases]
        for item in over:
            if (found := reader.look(pipe.prefix, item)) is not None:
                writes.append(deletion(pipe.prefix, item, found.stored_by))
        if len(over) == len(items):
            writes.append((lease_key(pipe.prefix, key), None))
    writes += (one.write() for one in leases.values() if one.state in _WRITTEN)
    writes += (pipe.write() for pipe in state.pipes.values())
    writes.append(state.totals_write())
    return writes


def leftovers(table: OrderedTable, prefix: bytes) -> Iterator[Write]:
    """Yields deletions of what is left: references, and what was rolled back."""
    for kind in (MESSAGE, PAYLOAD, MARK, LEASE):
        for rows in pieces(table, kind + prefix):
            for key, _ in rows:
                yield kind + prefix + key, None
