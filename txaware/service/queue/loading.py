"""Builds the state of a queue from its rows, and its rows after a failed write."""

from collections.abc import Callable, Container, Iterator

import attrs

from coordinator.transaction import Transaction
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.messages import MessageId
from txaware.model.queues import PIPE_BYTES, PipeName, QueueDescriptor, pipe_prefix
from txaware.service.queue.lease import Lease, LeaseRun, LeaseState
from txaware.service.queue.pipe import Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader, deletion
from txaware.service.queue.popping import Popping
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.resting_pipes import PipeRange
from txaware.service.queue.step_batch import StepBatch
from txaware.service.visibility import DELIVER, SKIP, STOP, Visibility
from txaware.store.columns import is_reference, pointer_of
from txaware.store.interfaces import pieces
from txaware.store.keys import LEASE, MARK, MESSAGE, PAYLOAD, PIPE
from txaware.store.queue_table import (
    NOT_FINAL,
    TOTALS,
    LeaseRow,
    PipeKind,
    PipeOutline,
    lease_key,
    lease_rows,
    pipe_rows,
    pipe_write,
)

_OF_ITEMS = (MESSAGE, PAYLOAD, MARK, LEASE)
# Leases in these states have a row.
_WRITTEN = (LeaseState.IN_WORK, LeaseState.WAITING, LeaseState.DYING)
# A start reads so many rows of pipes, and each step after it a piece of the others: so
# a first use takes as long with any number of pipes.
FIRST_ROWS, PIECE_ROWS = 2_000, 1_000
# So many rows of items, or so many bytes, are counted in one step.
COUNTED_ROWS, COUNTED_BYTES = 5_000, 16 << 20


class Loading:
    """The rows of a queue that are not in memory: read piece by piece, or when needed.

    All is called under the lock of the queue, but for the first `run`, when nobody uses
    it yet.
    """

    def __init__(
        self,
        table: OrderedTable,
        state: QueueState,
        make_judge: Callable[[Transaction | None], Visibility],
    ) -> None:
        self._table = table
        self._state = state
        self._make_judge = make_judge
        self._judge = Judge(make_judge)
        self._reader = PipeReader(table)
        self._popping = Popping(self._reader, state)
        self._to_count: list[int] = []
        self._last = TOTALS
        state.source = self

    def run(self, now_ms: int) -> list[Write]:
        """Reads leases and the first pipes; returns what has changed since then."""
        state, batch = self._state, StepBatch()
        last = self._table.scan(PIPE + state.prefix, limit=1, reverse=True)
        if last:
            state.last_pipe = self._last = int.from_bytes(last[0][0], "big")
            state.unread = TOTALS
        runs: list[tuple[int, LeaseRow]] = []
        have_own = set[tuple[int, MessageId]]()
        for number, item, lease_row in list(lease_rows(self._table, state.prefix)):
            if lease_row.items:
                runs.append((number, lease_row))
            else:
                have_own.add((number, item))
                self._lease(number, item, lease_row, now_ms, batch)
        for number, lease_row in runs:
            self._run(number, lease_row, have_own, now_ms, batch)
        batch.writes += [(run.key, None) for run in state.runs_over]
        state.runs_over.clear()
        self.read_piece(FIRST_ROWS)
        while state.descriptor.is_ordered and self.read_piece():
            pass  # an order is one over all pipes
        return batch.take()

    @property
    def is_unfinished(self) -> bool:
        """True while pipes have to be read, or empty ones have to go."""
        return self._state.unread is not None or bool(self._state.resting.empty)

    def read_piece(self, limit: int | None = None) -> bool:
        """Reads some more pipes of those from before; False once all were read."""
        state = self._state
        if state.unread is None:
            return False
        limit = PIECE_ROWS if limit is None else limit
        rows = self._rows(PipeRange(state.unread, self._last + 1), limit)
        for key, value in rows:
            self._found(int.from_bytes(key, "big"), PipeOutline.of(value))
        if len(rows) < limit:
            state.unread = None
            state.gone_unread.clear()
        else:
            state.unread = int.from_bytes(rows[-1][0], "big") + 1
        return True

    def _rows(self, pipes: PipeRange, limit: int) -> list[Row]:
        return self._table.scan(
            PIPE + self._state.prefix,
            start=_key(pipes.first),
            stop=_key(pipes.stop),
            limit=limit,
        )

    def _found(self, number: int, row: PipeOutline) -> None:
        state = self._state
        if number == TOTALS:
            state.totals, state.pushed_before = row.counts, row.pushed
            return
        if number in state.gone_unread:
            return
        state.place(number, row.kind, row.priority, row.due_ms, row.pusher)
        if number not in state.pipes:
            state.resting.found(number, row)
        # Whoever pushed to it begins another one; only an order goes on in its pipe.
        if row.kind == PipeKind.ORDERED and (pipe := state.pipe(number)) is not None:
            pipe.is_open = True
            state.pushers["", pipe.priority] = pipe

    def wake(self, number: int) -> Pipe | None:
        """Brings a pipe into memory; None where there is none of that id."""
        state = self._state
        prefix = pipe_prefix(state.name, state.descriptor.generation, number)
        value = state.resting.rows.get(number) or self._table.get(PIPE + prefix)
        return None if value is None else self._woken(number, PipeOutline.of(value))

    def _woken(self, number: int, row: PipeOutline) -> Pipe:
        state, resting = self._state, self._state.resting
        pipe = self._made(number, row)
        if not row.is_final:
            waiting, undecided = self._reader.count(pipe, Judge(self._make_judge))
            pipe.pushed += waiting
            for pointer, items in undecided.items():
                pipe.hold(pointer, items)
        if number in resting:
            resting.forget(number, row, pipe.pushed)
            state.line_up_again(pipe, self._table.clock.now_ms())
        for pointer in pipe.undecided:
            state.watched.setdefault(pointer, set()).add(pipe)
        state.pipes[number] = pipe
        return pipe

    def _made(self, number: int, row: PipeOutline) -> Pipe:
        state, head = self._state, MessageId(row.head)
        name, generation = state.name, state.descriptor.generation
        pipe = Pipe(
            number,
            PipeName(name.name, name.namespace, generation, number),
            PipeKind(row.kind),
            row.priority,
            row.created_ms,
            row.due_ms,
            row.pusher,
            counts=row.counts,
            head=head,
            read=head,
        )
        pipe.is_open = False
        pipe.is_final = row.is_final
        pipe.pushed = row.pushed if row.is_final else row.removed
        pipe.is_plain = (
            number in state.resting.rows and number not in state.resting.unsure
        )
        return pipe

    def next_with_items(self, number: int) -> int | None:
        """Returns the first pipe from that id on in which any item is."""
        rows = self._table.scan(
            MESSAGE + self._state.prefix, start=_key(number), limit=1
        )
        return int.from_bytes(rows[0][0][:PIPE_BYTES], "big") if rows else None

    def more(self, now_ms: int, batch: StepBatch) -> bool:
        """Reads some more pipes, or has some empty ones go; False if that is all."""
        if not self.is_unfinished:
            return False
        batch.wait_here()
        return self.read_piece() or self._sweep(now_ms, batch)

    def _sweep(self, now_ms: int, batch: StepBatch) -> bool:
        """Has some pipes go that rest, and in which nothing is."""
        state, resting = self._state, self._state.resting
        if not resting.empty:
            return False
        pipes = resting.empty.popleft()
        rows = self._rows(pipes, PIECE_ROWS)
        if len(rows) == PIECE_ROWS:
            first = int.from_bytes(rows[-1][0], "big") + 1
            resting.empty.appendleft(PipeRange(first, pipes.stop))
            pipes = PipeRange(pipes.first, first)
        has_left, gone = self._has_left(pipes), False
        for key, value in rows:
            number, row = int.from_bytes(key, "big"), PipeOutline.of(value)
            if number == TOTALS or number not in resting or number in resting.rows:
                continue
            if row.kind == PipeKind.DELAYED and row.due_ms > now_ms:
                continue
            if row.pusher and state.first.get((row.pusher, row.priority)) != number:
                continue  # others of its pusher come first
            prefix = pipe_prefix(state.name, state.descriptor.generation, number)
            if has_left and self._table.scan(MESSAGE + prefix, limit=1):
                # Its row says less than is there: what waits is counted anew.
                resting.doubt(number)
                self._woken(number, row._replace(pushed=NOT_FINAL))
                continue
            state.leave_lane(number, row.priority, row.pusher)
            resting.forget(number, row, row.pushed if row.is_final else row.removed)
            if has_left:
                batch.writes += leftovers(self._table, prefix)
            batch.writes.append(pipe_write(prefix, None))
            state.totals.add(row.counts)
            state.pushed_before += row.removed
            gone = True
        if gone:
            batch.writes.append(state.totals_write())
        return True

    def _has_left(self, pipes: PipeRange) -> bool:
        """Tells whether pipes have any row left: nearly always none."""
        return any(
            self._table.scan(
                kind + self._state.prefix,
                start=_key(pipes.first),
                stop=_key(pipes.stop),
                limit=1,
            )
            for kind in _OF_ITEMS
        )

    def count_some(self) -> bool:
        """Counts what waits in some pipes that rest; False once all are counted."""
        resting = self._state.resting
        if not resting.uncounted:
            return False
        while self._to_count and self._to_count[-1] not in resting.uncounted:
            self._to_count.pop()
        if not self._to_count:
            self._to_count = sorted(resting.uncounted, reverse=True)
        judge, first = Judge(self._make_judge), self._to_count[-1]
        rows = self._items_from(first)
        if any(pointer_of(value) is not None for _, value in rows):
            judge.verdict(1)  # a snapshot from before the rows are read
            rows = self._items_from(first)
        # The last pipe may go on behind these rows.
        stop = int.from_bytes(rows[-1][0][:PIPE_BYTES], "big") if rows else None
        if stop == first:
            self._state.pipe(first)
            return True
        waiting, is_odd = dict[int, int](), set[int]()
        for key, value in rows:
            number = int.from_bytes(key[:PIPE_BYTES], "big")
            verdict = judge.verdict(pointer_of(value))
            if verdict == STOP or is_reference(value):
                is_odd.add(number)
            elif verdict == DELIVER:
                waiting[number] = waiting.get(number, 0) + 1
        while self._to_count and (stop is None or self._to_count[-1] < stop):
            number = self._to_count.pop()
            if number in is_odd:
                self._state.pipe(number)
            elif number in resting.uncounted:
                resting.count(number, waiting.get(number, 0))
        return True

    def _items_from(self, number: int) -> list[Row]:
        return self._table.scan(
            MESSAGE + self._state.prefix,
            start=_key(number),
            limit=COUNTED_ROWS,
            max_bytes=COUNTED_BYTES,
        )

    def _run(
        self,
        number: int,
        row: LeaseRow,
        have_own: Container[tuple[int, MessageId]],
        now_ms: int,
        batch: StepBatch,
    ) -> None:
        """Takes in those items of a run that are not gone, and have no other row.

        Of those that `have_own` rows, one that has just ended is on disk until then.
        """
        if (pipe := self._state.pipe(number)) is None:
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
            if (number, item) not in have_own:
                one = attrs.evolve(row, token=token)
                self._lease(number, item, one, now_ms, batch, run)
        self._state.leave_run(run)

    def _lease(
        self,
        number: int,
        item: MessageId,
        row: LeaseRow,
        now_ms: int,
        batch: StepBatch,
        run: LeaseRun | None = None,
    ) -> None:
        pipe = self._state.pipe(number)
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

    def _ended(
        self, lease: Lease, row: LeaseRow, now_ms: int, batch: StepBatch
    ) -> None:
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

    def _give_back(self, lease: Lease, now_ms: int, batch: StepBatch) -> None:
        lease.pipe.counts.expired_leases += 1
        said = lease.error or f"{lease.popper} ended without a commit"
        self._popping.lose(lease, now_ms, batch, said)


def loaded(
    table: OrderedTable,
    descriptor: QueueDescriptor,
    make_judge: Callable[[Transaction | None], Visibility],
    now_ms: int,
) -> QueueState:
    """Returns a queue as its rows say it is; what has ended meanwhile is written."""
    state = QueueState(descriptor)
    loading = Loading(table, state, make_judge)
    writes = loading.run(now_ms)
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
        if number != TOTALS and not state.has(number):
            prefix = pipe_prefix(state.name, state.descriptor.generation, number)
            writes += leftovers(table, prefix)
            writes.append(pipe_write(prefix, None))
    leases = state.leases
    for number, key, row in lease_rows(table, state.prefix):
        if (pipe := state.pipes.get(number)) is None:
            continue  # one at rest has none
        items = row.items or [key]
        over = [item for item in items if (number, item) not in leases]
        for item in over:
            if (found := reader.look(pipe.prefix, item)) is not None:
                writes.append(deletion(pipe.prefix, item, found.stored_by))
        if len(over) == len(items):
            writes.append((lease_key(pipe.prefix, key), None))
    writes += (one.write() for one in leases.values() if one.state in _WRITTEN)
    writes += (pipe.write() for pipe in state.pipes.values())
    writes += state.resting.writes(state.prefix)
    writes.append(state.totals_write())
    return writes


def leftovers(table: OrderedTable, prefix: bytes) -> Iterator[Write]:
    """Yields deletions of what is left: references, and what was rolled back."""
    for kind in _OF_ITEMS:
        for rows in pieces(table, kind + prefix):
            for key, _ in rows:
                yield kind + prefix + key, None


def _key(pipe: int) -> bytes:
    return pipe.to_bytes(PIPE_BYTES, "big")
