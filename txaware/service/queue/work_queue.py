"""One queue of this process: pops, and the ends of jobs."""

import heapq
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue

from coordinator.embedded.commit_log import Wait
from coordinator.transaction import Transaction
from txaware.errors import BadRequest, LeaseLost, QueueNotFound, Unavailable
from txaware.interfaces import Write
from txaware.keys import LEASE, MARK, MESSAGE, PAYLOAD
from txaware.queues import Popped, QueueStats, Waiting
from txaware.requests import Payloads
from txaware.service.queue.lease import Lease, LeaseState, parsed_item
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader
from txaware.service.queue.popping import Batch, Popper, Popping
from txaware.service.queue.pushing import Pushing
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.statistics import Statistics
from txaware.service.store_context import StoreContext
from txaware.service.visibility import DELIVER, STOP, Visibility
from txaware.service.write.publishing import Publishing
from txaware.store.ranges import pieces

# A popper that waits looks again after this time at the latest.
LOOK_AGAIN_S = 1.0
# A coordinator elsewhere is asked so often at most which transactions are over.
ASK_EVERY_MS = 200

MakeJudge = Callable[[Transaction | None], Visibility]


class WorkQueue:
    """One queue: decides under its lock, and waits for the disk outside of it."""

    def __init__(
        self,
        site: StoreContext,
        state: QueueState,
        pushing: Pushing,
        publishing: Publishing,
        make_judge: MakeJudge,
    ) -> None:
        self.state = state
        self.pushing = pushing
        self._table = site.table
        self._gate = site.gate
        self._endings = site.endings
        self._publishing = publishing
        self._transaction_writes = site.writes
        self._make_judge = make_judge
        self._reader = PipeReader(site.table)
        self._popping = Popping(self._reader, state)
        self.statistics = Statistics(state, self._reader)

    def now_ms(self) -> int:
        """Returns the time of the store, which never goes back."""
        return self._table.clock.now_ms()

    def pop(
        self, popper: Popper, tx: Transaction | None, *, limit: int, wait_s: float
    ) -> list[Popped]:
        """Leases up to `limit` items, and waits for the first; on disk when it returns.

        In a transaction, items are judged by its snapshot, and leased until its end.
        """
        until_s = time.monotonic() + wait_s
        while True:
            seen = self.state.signal.count
            found = self._pop(popper, tx, limit)
            left_s = until_s - time.monotonic() if wait_s else 0
            if found or left_s <= 0:
                return found
            self.state.signal.wait(seen, min(left_s, self.pause_s()))

    def _pop(self, popper: Popper, tx: Transaction | None, limit: int) -> list[Popped]:
        entry = None
        if tx is not None:
            self._transaction_writes.begun(tx)
            entry = self._transaction_writes.enter(tx.transaction_id)
            self._endings.expect(tx.transaction_id, self.state.signal)
        try:
            with self._step() as (now_ms, batch):
                taken: list[tuple[Lease, Item]] = []
                if not self.state.descriptor.is_paused:
                    judge = Judge(self._make_judge, tx)
                    taken = self._popping.pop(popper, judge, now_ms, limit, batch)
                popped = [lease.popped(item) for lease, item in taken]
                wait = self._submit(batch)
            try:
                wait()
            except BaseException:
                self.state.is_in_doubt = True
                self._take_back([lease for lease, _ in taken])
                raise
        finally:
            self._transaction_writes.leave(entry)
        return popped

    def _take_back(self, leases: list[Lease]) -> None:
        """Gives back items whose popper never got them."""
        with self.state.lock:
            batch = Batch()
            for lease in leases:
                if lease.state is LeaseState.IN_WORK:
                    self._popping.give_back(lease, self.now_ms(), batch)
            with suppress(Unavailable):  # its lease ends at the latest
                self._hand_over(batch)

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
        with self._step() as (now_ms, batch):
            lease = self.held(item, token)
            if lease.transaction is not None:
                raise BadRequest(
                    f"job {item} ends with transaction {lease.transaction}"
                )
            lease.pipe.counts.committed += 1
            lease.pipe.leased -= 1
            lease.state = LeaseState.ENDING
            self._popping.count_end(lease, now_ms)
            self._popping.delete(lease, batch)
            wait = self._submit(batch)
        try:
            wait()
        except BaseException:
            self.state.is_in_doubt = True
            self._reinstate(lease)
            raise
        self._forget(lease)

    def _count_move(self, lease: Lease, by: int, *, is_dead: bool) -> None:
        if is_dead:
            lease.pipe.counts.dead += by
        else:
            lease.pipe.counts.committed += by
            lease.pipe.leased -= by

    def _reinstate(self, lease: Lease) -> None:
        """Puts a job back in work whose end may not be on disk."""
        with self.state.lock:
            lease.pipe.counts.committed -= 1
            self.state.begin_work(lease)

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
                raise error
            handle.counters.published(len(payloads), payloads.size_bytes, 0.0)
        self._forget(lease)
        return True

    def attach(self, item: str, token: str, tx: Transaction) -> None:
        """Has the end of a job come with the commit of a transaction."""
        self._transaction_writes.begun(tx)
        entry = self._transaction_writes.enter(tx.transaction_id)
        try:
            with self._step() as (_, batch):
                lease = self.held(item, token)
                if lease.transaction is not None:
                    return
                self.state.attach(lease, tx.transaction_id)
                batch.writes.append(lease.write())
                wait = self._submit(batch)
            self._endings.expect(tx.transaction_id, self.state.signal)
            wait()
        finally:
            self._transaction_writes.leave(entry)

    def give_back(self, item: str, token: str, *, delay_s: float, error: str) -> None:
        """Has a job wait again, after `delay_s`."""
        with self._step() as (now_ms, batch):
            lease = self.held(item, token)
            lease.pipe.counts.rolled_back += 1
            due_ms = now_ms + int(delay_s * 1000)
            self._popping.give_back(lease, due_ms, batch, error=error)
            wait = self._submit(batch)
        wait()
        self.state.signal.tell()

    def put_back(self, item: str, token: str) -> None:
        """Has an item wait again as if it had not been popped."""
        with self._step() as (now_ms, batch):
            lease = self.held(item, token)
            lease.deliveries -= 1
            lease.pipe.counts.popped -= 1
            self._popping.give_back(lease, now_ms, batch, may_die=False)
            wait = self._submit(batch)
        wait()

    def look(self, lease: Lease) -> Item | None:
        """Reads the item of a lease; None if it is gone."""
        return self._reader.look(lease.pipe.prefix, lease.id)

    def extend(self, item: str, token: str, seconds: float) -> int:
        """Has a lease end `seconds` from now; returns that time in ms."""
        with self._step() as (now_ms, batch):
            lease = self.held(item, token)
            if lease.transaction is not None:
                raise BadRequest(
                    f"the lease of job {item} ends with transaction "
                    f"{lease.transaction}, and cannot be extended"
                )
            lease.until_ms = now_ms + max(1, int(seconds * 1000))
            heapq.heappush(self.state.ends, (lease.until_ms, lease.token, lease))
            batch.writes.append(lease.write())
            until_ms, wait = lease.until_ms, self._submit(batch)
        wait()
        return until_ms

    def release(self, pointer: int) -> None:
        """Gives back what a transaction popped that is being rolled back."""
        with self._step() as (now_ms, batch):
            for lease in list(self.state.by_pointer.get(pointer, ())):
                lease.pipe.counts.rolled_back += 1
                said = lease.error or f"transaction {pointer} was rolled back"
                self._popping.give_back(lease, now_ms, batch, error=said)
            wait = self._submit(batch)
        wait()
        self.state.signal.tell()

    def settle(self) -> None:
        """Ends the jobs of transactions that are over, one way or the other."""
        with self.state.lock:
            self.state.settled_ms = 0  # now, also where another coordinator is asked
            with self._step():
                pass

    def held(self, item: str, token: str) -> Lease:
        """Returns the lease of a job in work; raises `LeaseLost` where it is over."""
        place = parsed_item(item)
        if place is None:
            raise BadRequest(f"{item!r:.100} is no job's id")
        lease = self.state.leases.get(place)
        name = self.state.descriptor.name
        if lease is None or lease.state in (LeaseState.GONE, LeaseState.ENDING):
            raise LeaseLost(
                f"job {item} of queue {name} is gone: it was committed or removed"
            )
        if lease.state is not LeaseState.IN_WORK:
            raise LeaseLost(
                f"the lease of job {item} of queue {name} is over; nobody has it now, "
                f"and it is {lease.state.value}, delivered {lease.deliveries} times"
            )
        if lease.token_text != token:
            raise LeaseLost(
                f"the lease of job {item} of queue {name} is over; {lease.popper} has "
                f"it now, in delivery {lease.deliveries}"
            )
        return lease

    @contextmanager
    def _step(self) -> Iterator[tuple[int, Batch]]:
        """Holds the lock for one step, after all that ended by itself has ended."""
        with self.state.lock:
            if self.state.is_gone:
                raise QueueNotFound(
                    f"queue {self.state.descriptor.name} does not exist any more"
                )
            now_ms, batch = self.now_ms(), Batch()
            self.state.catch_up_pushes(now_ms)
            while self.state.gone_soon:
                lease = self.state.gone_soon.popleft()
                self.state.remove(lease, now_ms)
                batch.drained.append(lease.pipe)
            if self.state.is_in_doubt:
                self.state.spread_doubt()
            self._popping.end_leases(now_ms, batch)
            self.state.open_due(now_ms)
            if self.state.by_pointer or self.state.watched:
                self._settle(now_ms, batch)
            try:
                yield now_ms, batch
            finally:  # what ended by itself has ended, whatever comes of the rest
                self._hand_over(batch)

    def _settle(self, now_ms: int, batch: Batch) -> None:
        over = self._over(now_ms)
        if not over:
            return
        judge = self._make_judge(None)
        for pointer in over:
            verdict = judge.verdict(pointer)
            if verdict != STOP:
                self._ended(pointer, now_ms, batch, committed=verdict == DELIVER)

    def _over(self, now_ms: int) -> list[int]:
        """Returns the transactions that may be over; asks nobody."""
        state, gate = self.state, self._gate
        pointers = {*state.by_pointer, *state.watched}
        if gate is not None:
            return [pointer for pointer in pointers if not gate.is_open(pointer)]
        if now_ms - state.settled_ms < ASK_EVERY_MS:
            return []
        state.settled_ms = now_ms
        return list(pointers)

    def _ended(
        self, pointer: int, now_ms: int, batch: Batch, *, committed: bool
    ) -> None:
        for pipe in self.state.watched.pop(pointer, ()):
            pipe.reserved.discard(pointer)
            count = pipe.undecided.pop(pointer, 0)
            if committed:
                pipe.pushed += count
                self.state.meter.at(now_ms).pushed += count
            batch.drained.append(pipe)
        if committed:
            self._popping.finish_all(pointer, now_ms, batch)
        for lease in list(self.state.by_pointer.get(pointer, ())):
            lease.pipe.counts.expired_leases += 1
            said = f"transaction {pointer} of {lease.popper} ended without a commit"
            self._popping.give_back(lease, now_ms, batch, error=said)

    def _submit(self, batch: Batch) -> Wait:
        """Submits the writes of a step, in the order of the steps, to be waited for."""
        writes = self._writes(batch)
        return self._table.submit(writes) if writes else _nothing

    def _hand_over(self, batch: Batch) -> None:
        """Hands over what is left to write; nobody waits for it."""
        if writes := self._writes(batch):
            self._table.hand_over(writes, self._told)

    def _told(self, error: object) -> None:
        """Hears how a write ended that nobody waits for; after a crash it comes again.

        One that failed leaves rows, which are found where pipes are read to their end.
        """
        if error is not None:
            self.state.is_in_doubt = True

    def _writes(self, batch: Batch) -> list[Write]:
        for pipe in dict.fromkeys(batch.drained):
            self._drop_if_over(pipe, batch)
        writes = batch.take()
        batch.writes, batch.pipes, batch.drained = [], {}, []
        return writes

    def _drop_if_over(self, pipe: Pipe, batch: Batch) -> None:
        if pipe.id not in self.state.pipes or pipe.unresolved or pipe.takes_pushes:
            return
        if not pipe.is_final:
            pipe.is_final = True
            batch.touch(pipe)
        if pipe.is_drained and pipe.lent_until_ms <= self.now_ms():
            batch.pipes.pop(pipe.id, None)
            if not pipe.is_plain:
                batch.writes += self._leftovers(pipe.prefix)
            batch.writes += self.state.drop(pipe)

    def _leftovers(self, prefix: bytes) -> Iterator[Write]:
        """Yields deletions of what is left: references, and what was rolled back."""
        for table in (MESSAGE, PAYLOAD, MARK, LEASE):
            for rows in pieces(self._table, table + prefix):
                for key, _ in rows:
                    yield table + prefix + key, None

    def reap(self) -> None:
        """Ends what is over: leases, transactions, pipes that their pushers left."""
        with self._step() as (now_ms, batch):
            self.pushing.close_old(now_ms)
            judge = Judge(self._make_judge)
            for pipe in list(self.state.pipes.values()):
                if not pipe.takes_pushes and self.state.is_lined_up(pipe):
                    known = partial(self.state.known, pipe)
                    batch.writes += self._reader.fill(pipe, judge, known)
                batch.drained.append(pipe)
            wait = self._submit(batch)
        wait()

    def stats(self) -> QueueStats:
        """Returns the counts, and how the queue stands now."""
        self.settle()
        with self._step() as (now_ms, _):
            return self.statistics.stats(Judge(self._make_judge), now_ms)

    def peek(self, limit: int) -> list[Waiting]:
        """Returns items that wait, the oldest first, and leases none."""
        with self._step() as (now_ms, _):
            return self.statistics.peek(Judge(self._make_judge), now_ms, limit)


def _nothing() -> None:
    """Waits for nothing: nothing was written."""
