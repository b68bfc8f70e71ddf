"""Builds the state of a queue from its rows, and its rows after a failed write."""

from collections.abc import Iterator

import attrs

from txaware.interfaces import OrderedTable, Write
from txaware.keys import LEASE, MARK, MESSAGE, PAYLOAD
from txaware.messages import MessageId
from txaware.queues import PipeName, QueueDescriptor, pipe_prefix
from txaware.service.queue.lease import Lease, LeaseRun, LeaseState
from txaware.service.queue.pipe import Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader, deletion
from txaware.service.queue.popping import Popping
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.step_batch import Batch
from txaware.service.visibility import DELIVER, SKIP
from txaware.store.queue_table import (
    NOT_FINAL,
    TOTALS,
    LeaseRow,
    PipeKind,
    PipeRow,
    lease_key,
    lease_rows,
    pipe_rows,
    pipe_write,
)
from txaware.store.ranges import pieces

# Leases in these states have a row.
_WRITTEN = (LeaseState.IN_WORK, LeaseState.WAITING, LeaseState.DYING)


class Loading:
    """The first look at a queue: nobody uses it meanwhile."""

    def __init__(self, table: OrderedTable, state: QueueState, judge: Judge) -> None:
        self._table = table
        self._state = state
        self._judge = judge
        self._reader = PipeReader(table)
        self._popping = Popping(self._reader, state)

    def run(self, now_ms: int) -> list[Write]:
        """Reads pipes and leases; returns what has changed since they were written."""
        batch = Batch()
        for number, row in pipe_rows(self._table, self._state.prefix):
            if number == TOTALS:
                self._state.totals = row.counts
                self._state.pushed_before = row.pushed
            else:
                self._pipe(number, row)
        runs: list[tuple[int, MessageId, LeaseRow]] = []
        for number, item, lease_row in list(
            lease_rows(self._table, self._state.prefix)
        ):
            if lease_row.items:
                runs.append((number, item, lease_row))
            else:
                self._lease(number, item, lease_row, now_ms, batch)
        for number, _, lease_row in runs:  # behind those that have rows of their own
            self._run(number, lease_row, now_ms, batch)
        batch.writes += [(run.key, None) for run in self._state.runs_over]
        self._state.runs_over.clear()
        return batch.take()

    def _run(self, number: int, row: LeaseRow, now_ms: int, batch: Batch) -> None:
        """Takes in those items of a run that are not gone, and have no other row."""
        if (pipe := self._state.pipes.get(number)) is None:
            return
        run = LeaseRun(
            pipe,
            list(row.items),
            row.token,
            row.until_ms,
            row.pointer,
            row.popper,
            row.is_local,
            row.has_inbox,
            now_ms,
        )
        run.left = 1  # until all were looked for
        for token, item in enumerate(row.items, row.token):
            if (number, item) not in self._state.looked_at:
                one = attrs.evolve(row, token=token)
                self._lease(number, item, one, now_ms, batch, run)
        self._state.leave_run(run)

    def _pipe(self, number: int, row: PipeRow) -> None:
        name, generation = self._state.name, self._state.descriptor.generation
        pipe = Pipe(
            number,
            PipeName(name.name, name.namespace, generation, number),
            row.kind,
            row.priority,
            row.created_ms,
            row.due_ms,
            row.pusher,
            counts=row.counts,
            head=row.head,
            read=row.head,
        )
        pipe.is_final = row.pushed != NOT_FINAL
        pipe.pushed = row.pushed
        if not pipe.is_final:
            waiting, pipe.undecided = self._reader.count(pipe, self._judge)
            pipe.pushed = pipe.counts.removed + waiting
            for pointer in pipe.undecided:
                self._state.watched.setdefault(pointer, set()).add(pipe)
        # Whoever pushed to it begins another one; only an order goes on in its pipe.
        pipe.is_open = pipe.kind is PipeKind.ORDERED
        if pipe.is_open:
            self._state.pushers["", pipe.priority] = pipe
        self._state.put(pipe)

    def _lease(
        self,
        number: int,
        item: MessageId,
        row: LeaseRow,
        now_ms: int,
        batch: Batch,
        run: LeaseRun | None = None,
    ) -> None:
        pipe = self._state.pipes.get(number)
        found = pipe and self._reader.look(pipe.prefix, item)
        if pipe is None or not found:
            return
        lease = Lease(
            pipe,
            item,
            found.key,
            found.stored_by,
            deliveries=row.deliveries,
            token=row.token,
            until_ms=row.until_ms,
            popper=row.popper,
            error=row.error,
            is_local=row.is_local,
            has_inbox=row.has_inbox,
            popped_ms=now_ms,  # the row does not say it
            run=run,
            has_row=run is None,
        )
        if run is not None:
            run.left += 1
        self._state.add_lease(lease)
        if found.key is not None and self._state.descriptor.order == "key":
            self._state.busy[found.key] = lease
        if not row.token:
            self._back(lease, row.due_ms)
            return
        lease.transaction = row.pointer
        self._state.begin_work(lease)
        self._ended(lease, row, now_ms, batch)

    def _back(self, lease: Lease, due_ms: int) -> None:
        if not lease.has_inbox and self._popping.is_last_delivery(lease):
            lease.state, lease.due_ms = LeaseState.DYING, due_ms
            self._state.dying.append(lease)
        else:
            self._state.wait_again(lease, due_ms)

    def _ended(self, lease: Lease, row: LeaseRow, now_ms: int, batch: Batch) -> None:
        """Ends a lease whose transaction is over, or whose owner died with us."""
        if row.pointer is None:
            if row.is_local or row.until_ms <= now_ms:
                self._give_back(lease, now_ms, batch)
            return
        verdict = self._judge.verdict(row.pointer)
        if verdict == DELIVER:
            self._popping.finish(lease, now_ms, batch)
        elif verdict == SKIP:
            self._give_back(lease, now_ms, batch)

    def _give_back(self, lease: Lease, now_ms: int, batch: Batch) -> None:
        lease.pipe.counts.expired_leases += 1
        said = lease.error or f"{lease.popper} ended without a commit"
        self._popping.lose(lease, now_ms, batch, said)


def loaded(
    table: OrderedTable, descriptor: QueueDescriptor, judge: Judge, now_ms: int
) -> QueueState:
    """Returns a queue as its rows say it is; what has ended meanwhile is written."""
    state = QueueState(descriptor)
    writes = Loading(table, state, judge).run(now_ms)
    if writes:
        table.submit(writes)()
    return state


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
