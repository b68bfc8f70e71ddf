"""One queue of this process: pops, and the ends of jobs."""

import heapq
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from coordinator.embedded.batch import Then
from coordinator.embedded.commit_log import Wait
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, LeaseLost, QueueNotFound, Unavailable
from txaware.model.interfaces import Write
from txaware.model.queues import Popped, QueueStats, Waiting
from txaware.model.requests import Payloads
from txaware.service.queue.lease import Lease, LeaseRun, LeaseState, Taken
from txaware.service.queue.loading import leftovers, repairs
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader
from txaware.service.queue.popping import Popper, Popping
from txaware.service.queue.pushing import Pushing
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.settling import MakeJudge, Settling
from txaware.service.queue.statistics import Statistics
from txaware.service.queue.step_batch import Batch, Step
from txaware.service.store_context import StoreContext
from txaware.service.write.publishing import Publishing

# A popper that waits looks again after this time at the latest.
LOOK_AGAIN_S = 1.0
# Steps of a queue look so often for pipes that their pushers left.
TIDY_EVERY_MS = 10_000


class WorkQueue:
    """One queue: decides under its lock, and waits for the disk outside of it."""

    def __init__(
        self,
        store_context: StoreContext,
        state: QueueState,
        pushing: Pushing,
        publishing: Publishing,
        make_judge: MakeJudge,
    ) -> None:
        self.state = state
        self.pushing = pushing
        self._table = store_context.table
        self._endings = store_context.endings
        self._publishing = publishing
        self._transaction_writes = store_context.writes
        self._make_judge = make_judge
        self._reader = PipeReader(store_context.table)
        self._popping = Popping(self._reader, state)
        self._settling = Settling(store_context, state, self._popping, make_judge)
        self.statistics = Statistics(state, self._reader)
        self._tidy_at_ms = 0
        pushing.make_room, pushing.settle = self._make_room, self._settle_known

    def now_ms(self) -> int:
        """Returns the time of the store, which never goes back."""
        return self._table.clock.now_ms()

    def pop(
        self, popper: Popper, tx: Transaction | None, *, limit: int
    ) -> list[Popped]:
        """Leases up to `limit` items; on disk when it returns.

        In a transaction, items are judged by its snapshot, and leased until its end.
        """
        entry = None
        if tx is not None:
            self._transaction_writes.begun(tx)
            entry = self._transaction_writes.enter(tx.transaction_id)
            self._endings.expect(tx.transaction_id, self.state.signal)
        try:
            with self.step() as (now_ms, batch):
                taken = self.take(popper, tx, now_ms, batch, limit=limit)
                wait = self._submit(batch)
            try:
                wait()
            except BaseException:
                self.failed([*taken.alone, *taken.runs])
                raise
        finally:
            self._transaction_writes.leave(entry)
        return taken.popped

    def take(
        self,
        popper: Popper,
        tx: Transaction | None,
        now_ms: int,
        batch: Batch,
        *,
        limit: int,
    ) -> Taken:
        """Leases up to `limit` items, as a part of a step."""
        if self.state.descriptor.is_paused:
            return Taken()
        judge = Judge(partial(self._settling.judge, batch), tx)
        return self._popping.pop(popper, judge, now_ms, limit, batch)

    def failed(self, leases: Iterable[Lease | LeaseRun]) -> None:
        """Has the next step take back pops, or ends of jobs, that failed."""
        self.state.failed_soon.extend(leases)
        self.state.is_in_doubt = True

    def pause_s(self) -> float:
        """Returns after what time a popper that waits has to look again."""
        with self.state.lock:
            next_ms = self.state.next_time_ms()
        if next_ms is None:
            return LOOK_AGAIN_S
        return min(max((next_ms - self.now_ms()) / 1000, 0.001), LOOK_AGAIN_S)

    def commit(self, item: str, token: str) -> None:
        """Has a job end for good; on disk when it returns.

        Raises `LeaseLost` when its lease is over, with who has it now.
        """
        with self.step() as (now_ms, batch):
            lease = self.end(item, token, now_ms, batch)
            wait = self._submit(batch)
        try:
            wait()
        except BaseException:
            self.failed([lease])
            raise
        self._forget(lease)

    def end(self, item: str, token: str, now_ms: int, batch: Batch) -> Lease:
        """Has a job end once its rows are gone, as a part of a step."""
        lease = self.state.held(item, token)
        if lease.transaction is not None:
            raise BadRequest(f"job {item} ends with transaction {lease.transaction}")
        if lease.key is not None and self.state.descriptor.order == "key":
            batch.wait_here()  # for the lock, once the next of its key is free
        lease.pipe.counts.committed += 1
        lease.pipe.leased -= 1
        lease.state = LeaseState.ENDING
        self._popping.count_end(lease, now_ms)
        self._popping.delete(lease, batch)
        return lease

    def _count_move(self, lease: Lease, by: int, *, is_dead: bool) -> None:
        if is_dead:
            lease.pipe.counts.dead += by
        else:
            lease.pipe.counts.committed += by
            lease.pipe.leased -= by

    def _forget(self, lease: Lease) -> None:
        """Drops an ended job from memory, and its pipe if that is over.

        Where nobody waits for it, that is left to the next step: with many threads a
        lock that is taken again costs more than all that is done under it.
        """
        if lease.key is None or self.state.descriptor.order != "key":
            self.state.gone_soon.append(lease)
            return
        with self.state.lock:
            batch = Batch()
            freed = self.state.remove(lease, self.now_ms())
            batch.drained.append(lease.pipe)
            self._hand_over(batch)
        if freed:
            self.state.signal.tell()

    def move(
        self, lease: Lease, state: LeaseState, target: "WorkQueue", payloads: Payloads
    ) -> bool:
        """Pushes an item to another queue and removes it here, in one batch.

        It has to be in that state, or nothing happens. It counts as a dead letter, or
        as committed where it was in work.
        """
        is_dead = state is LeaseState.DYING
        done: SimpleQueue[Unavailable | None] = SimpleQueue()
        with target.pushing.begun(self.state.descriptor.name) as pipe:
            handle = target.pushing.handle(pipe)
            rows = self._publishing.rows(handle, payloads)
            with self.state.lock:
                if lease.state is not state:
                    return False
                self._count_move(lease, 1, is_dead=is_dead)
                lease.state, batch = LeaseState.ENDING, Batch()
                self._popping.delete(lease, batch)
                also = batch.take()
                handle.writer.publish_soon(
                    len(payloads), lambda keys: [*rows(keys), *also], done.put
                )
            if (error := done.get()) is not None:
                with self.state.lock:
                    self._count_move(lease, -1, is_dead=is_dead)
                    lease.state = state
                    self.state.is_in_doubt = True
                raise error
            handle.counters.published(len(payloads), payloads.size_bytes, 0.0)
        self._forget(lease)
        return True

    def attach(
        self, item: str, token: str, tx: Transaction, *, has_inbox: bool = False
    ) -> None:
        """Has the end of a job come with the commit of a transaction."""
        self._transaction_writes.begun(tx)
        entry = self._transaction_writes.enter(tx.transaction_id)
        try:
            with self.step() as (_, batch):
                lease = self.state.held(item, token)
                if lease.transaction is not None:
                    return
                self.state.attach(lease, tx.transaction_id)
                lease.has_inbox = has_inbox
                batch.writes.append(lease.write())
                wait = self._submit(batch)
            self._endings.expect(tx.transaction_id, self.state.signal)
            self._written(wait)
        finally:
            self._transaction_writes.leave(entry)

    def give_back(self, item: str, token: str, *, delay_s: float, error: str) -> None:
        """Has a job wait again, after `delay_s`."""
        with self.step() as (now_ms, batch):
            self.wait_again(item, token, now_ms + int(delay_s * 1000), batch, error)
            wait = self._submit(batch)
        self._written(wait)
        self.state.signal.tell()

    def wait_again(
        self, item: str, token: str, due_ms: int, batch: Batch, error: str
    ) -> None:
        """Has a job wait again from a time on, as a part of a step."""
        lease = self.state.held(item, token)
        self._popping.give_back(lease, due_ms, batch, error=error)
        lease.pipe.counts.rolled_back += 1

    def put_back(self, item: str, token: str) -> None:
        """Has an item wait again as if it had not been popped."""
        with self.step() as (now_ms, batch):
            self._popping.put_back(self.state.held(item, token), now_ms, batch)
            wait = self._submit(batch)
        self._written(wait)

    def put_back_surely(self, item: str, token: str) -> None:
        """Has an item wait again; by the next step where that cannot be written now."""
        try:
            self.put_back(item, token)
        except LeaseLost:  # it waits again already
            return
        except Unavailable:
            with self.state.lock, suppress(LeaseLost):
                self.failed([self.state.held(item, token)])

    def look(self, lease: Lease) -> Item | None:
        """Reads the item of a lease; None if it is gone."""
        return self._reader.look(lease.pipe.prefix, lease.id)

    def extend(self, item: str, token: str, seconds: float) -> int:
        """Has a lease end `seconds` from now; returns that time in ms."""
        with self.step() as (now_ms, batch):
            until_ms = self.prolong(item, token, seconds, now_ms, batch)
            wait = self._submit(batch)
        self._written(wait)
        return until_ms

    def prolong(
        self, item: str, token: str, seconds: float, now_ms: int, batch: Batch
    ) -> int:
        """Has a lease end later, as a part of a step; returns that time in ms."""
        lease = self.state.held(item, token)
        if lease.transaction is not None:
            raise BadRequest(
                f"the lease of job {item} ends with transaction "
                f"{lease.transaction}, and cannot be extended"
            )
        lease.until_ms = now_ms + max(1, int(seconds * 1000))
        heapq.heappush(self.state.ends, (lease.until_ms, lease.token, lease))
        batch.writes.append(lease.write())
        return lease.until_ms

    def release(self, pointer: int) -> None:
        """Gives back what a transaction popped that is being rolled back."""
        with self.step() as (now_ms, batch):
            for lease in self.state.leases_of(pointer):
                lease.pipe.counts.rolled_back += 1
                said = lease.error or f"transaction {pointer} was rolled back"
                self._popping.give_back(lease, now_ms, batch, error=said)
            wait = self._submit(batch)
        self._written(wait)
        self.state.signal.tell()

    def end_handled(self, items: Iterable[str], pointer: int | None) -> list[str]:
        """Has items end that an inbox names; returns those that are still there.

        Those end that wait again, and those that a transaction has popped, whatever
        becomes of it. On disk when it returns.
        """
        left = []
        with self.step() as (now_ms, batch):
            for item in items:
                lease = self.state.lease_of(item)
                if lease is None:
                    if self._is_unread(item):
                        left.append(item)
                elif self._may_end(lease, pointer):
                    self._popping.finish(lease, now_ms, batch)
                elif lease.state is not LeaseState.GONE:
                    left.append(item)
            wait = self._submit(batch)
        self._written(wait)
        return left

    def _is_unread(self, item: str) -> bool:
        place = self.state.place_of(item)
        pipe = None if place is None else self.state.pipe(place[0])
        if pipe is None or place is None:
            return False
        if place[1] <= pipe.read:  # the row of one that ended may still be there
            return any(one.id == place[1] for one in pipe.buffer)
        if self.state.known(pipe, place[1]):
            return False
        return self._reader.look(pipe.prefix, place[1]) is not None

    def _may_end(self, lease: Lease, pointer: int | None) -> bool:
        if lease.state is LeaseState.IN_WORK:
            return pointer is not None and lease.transaction == pointer
        return lease.state in (LeaseState.WAITING, LeaseState.DYING)

    def settle(self) -> None:
        """Ends the jobs of transactions that are over, one way or the other."""
        with self.state.lock:
            self.state.settled_ms = 0  # now, also where another coordinator is asked
            with self.step():
                pass

    def _settle_known(self, *, may_wait: bool) -> None:
        """Ends the pushes of transactions that are over, where it asks nobody."""
        if self._settling.is_told:
            with self.step(may_wait=may_wait):
                pass

    def step(self, *, may_wait: bool = True) -> Step:
        """Holds the lock for one step, after all that ended by itself has ended.

        Without `may_wait` it raises `WouldWait` where it had to, also for the lock.
        What ended by itself has ended, whatever comes of the rest.
        """
        batch = Batch(may_wait)
        return Step(self.state.lock, self._catch_up, self._hand_over, batch)

    def _catch_up(self, batch: Batch) -> int:
        """Has end what ended by itself since the last step, or failed; returns now."""
        state, now_ms = self.state, self.now_ms()
        if state.is_gone:
            batch.wait_here()  # a thread finds out whether it is there anew
            raise QueueNotFound(
                f"queue {state.descriptor.name} does not exist any more"
            )
        if state.pushed_soon:
            state.catch_up_pushes(now_ms)
        while state.gone_soon:
            lease = state.gone_soon.popleft()
            state.remove(lease, now_ms)
            batch.drained.append(lease.pipe)
        if state.failed_soon:
            batch.wait_here()
        while state.failed_soon:
            failed = state.failed_soon.popleft()
            if isinstance(failed, LeaseRun):
                leases = state.leases_in(failed)
            else:
                leases = [failed]
            for lease in leases:
                self._take_back(lease, now_ms, batch)
        if state.is_in_doubt:
            self._repair(batch)
        if batch.may_wait and state.drained_soon:
            batch.drained += state.drained_soon
            state.drained_soon.clear()
        if state.ends:
            self._popping.end_leases(now_ms, batch)
        if state.delayed:
            state.open_due(now_ms)
        if state.by_pointer or state.runs or state.watched:
            self._settling.settle(now_ms, batch)
        if batch.may_wait:
            state.source.more(now_ms, batch)
            if now_ms >= self._tidy_at_ms:
                self._tidy(now_ms, batch)
        return now_ms

    def _repair(self, batch: Batch) -> None:
        """Writes what a failed write may lack; later, while the disk is away."""
        batch.wait_here()
        self.state.spread_doubt()
        try:
            batch.writes += repairs(self._table, self.state)
        except Unavailable:
            self.state.is_in_doubt = True

    def _take_back(self, lease: Lease, now_ms: int, batch: Batch) -> None:
        """Takes back a pop, or the end of a job, that may not be on disk."""
        if lease.state is LeaseState.ENDING:
            lease.pipe.counts.committed -= 1
            self.state.begin_work(lease)
        elif lease.state is LeaseState.IN_WORK:
            self._popping.put_back(lease, now_ms, batch)

    def _submit(self, batch: Batch) -> Wait:
        """Submits the writes of a step, in the order of the steps, to be waited for."""
        writes = self._writes(batch)
        return self._table.submit(writes) if writes else _nothing

    def _written(self, wait: Wait) -> None:
        """Waits for the writes of a step; one that failed leaves a doubt."""
        try:
            wait()
        except BaseException:
            self.state.is_in_doubt = True
            raise

    def submit_soon(self, batch: Batch, then: Then) -> None:
        """Submits the writes of a step; another thread tells `then` how that ended."""
        self._table.hand_over(self._writes(batch), then)

    def _hand_over(self, batch: Batch) -> None:
        """Hands over what is left to write; nobody waits for it."""
        if not (batch.writes or batch.pipes or batch.drained):
            return  # nearly always
        if writes := self._writes(batch):
            self._table.hand_over(writes, self._told)

    def _told(self, error: object) -> None:
        """Hears how a write ended that nobody waits for; after a crash it comes again.

        One that failed leaves rows, which are found where pipes are read to their end.
        """
        if error is not None:
            self.state.is_in_doubt = True

    def _writes(self, batch: Batch) -> list[Write]:
        if batch.drained:
            for pipe in dict.fromkeys(batch.drained):
                self._drop_if_over(pipe, batch)
        if runs := self.state.runs_over:
            batch.writes += [(run.key, None) for run in runs]
            runs.clear()
        if not (batch.writes or batch.pipes):
            return []
        writes = batch.take()
        batch.writes, batch.pipes, batch.drained = [], {}, []
        return writes

    def _drop_if_over(self, pipe: Pipe, batch: Batch) -> None:
        if self.state.pipes.get(pipe.id) is not pipe:
            return
        if pipe.unresolved or pipe.takes_pushes:
            return
        if not pipe.is_final:
            pipe.is_final = True
            batch.touch(pipe)
        if pipe.is_drained and pipe.lent_until_ms <= self.now_ms():
            if not (pipe.is_plain or batch.may_wait):
                self.state.drained_soon.append(pipe)  # its rows have to be looked for
                return
            batch.pipes.pop(pipe.id, None)
            if not pipe.is_plain:
                batch.writes += leftovers(self._table, pipe.prefix)
            batch.writes += self.state.drop(pipe)

    def reap(self) -> None:
        """Ends what is over: leases, transactions, pipes that their pushers left."""
        self._read_all()
        with self.step() as (now_ms, batch):
            self._tidy(now_ms, batch)
            wait = self._submit(batch)
        self._written(wait)

    def _read_all(self, *, counts: bool = True) -> None:
        """Reads and counts all pipes, and has empty ones go, a piece at a time."""
        source, is_unfinished = self.state.source, True
        while is_unfinished:  # others have their turns in between
            with self.step() as (now_ms, batch):
                is_unfinished = source.more(now_ms, batch) or (
                    counts and source.count_some()
                )

    def _make_room(self) -> None:
        """Has pipes go that nobody needs, as there are too many."""
        self._read_all()
        with self.step() as (now_ms, batch):
            self._tidy(now_ms, batch)

    def _tidy(self, now_ms: int, batch: Batch) -> None:
        """Has empty pipes go whose pushers left them, and others leave the memory."""
        self._tidy_at_ms = now_ms + TIDY_EVERY_MS
        self.pushing.close_old(now_ms)
        judge = Judge(self._make_judge)
        for pipe in list(self.state.pipes.values()):
            if pipe.takes_pushes:
                continue
            if pipe.waiting <= 0 and self.state.is_lined_up(pipe):
                known = partial(self.state.known, pipe)
                batch.writes += self._reader.fill(pipe, judge, known)
            if self.state.may_rest(pipe):
                batch.writes.append(self.state.lay(pipe))
            else:
                batch.drained.append(pipe)

    def stats(self) -> QueueStats:
        """Returns the counts, and how the queue stands now."""
        self.settle()
        self._read_all()
        with self.step() as (now_ms, _):
            return self.statistics.stats(Judge(self._make_judge), now_ms)

    def peek(self, limit: int) -> list[Waiting]:
        """Returns items that wait, the oldest first, and leases none."""
        self._read_all(counts=False)
        with self.step() as (now_ms, _):
            return self.statistics.peek(Judge(self._make_judge), now_ms, limit)


def _nothing() -> None:
    """Waits for nothing: nothing was written."""
