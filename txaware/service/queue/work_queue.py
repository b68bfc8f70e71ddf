"""One queue of this process: pops, and the ends of jobs."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from coordinator.transaction import Transaction
from txaware.errors import MOST_REPORTED, BadRequest, LeaseLost, Unavailable
from txaware.model.queues import (
    MAX_LEASE_S,
    ItemState,
    LeasedJob,
    Popped,
    QueueItem,
    QueueStats,
    Waiting,
    checked_delay_s,
    checked_seconds,
    checked_text,
)
from txaware.model.requests import Payloads
from txaware.service.queue.item_browser import ItemBrowser
from txaware.service.queue.lease import Lease, LeasedItems, LeaseState
from txaware.service.queue.pipe import Item
from txaware.service.queue.pipe_reader import Judge, PipeReader
from txaware.service.queue.popping import PopCaller, Popping
from txaware.service.queue.pushing import Pushing
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.settling import MakeJudge, Settling
from txaware.service.queue.statistics import Statistics
from txaware.service.queue.step_batch import StepBatch
from txaware.service.queue.step_driver import Step, StepDriver
from txaware.service.store_context import StoreContext
from txaware.service.wakeups import WouldWait
from txaware.service.write.publishing import Publishing

T = TypeVar("T")

# A popper that waits looks again after this time at the latest.
LOOK_AGAIN_S = 1.0
# A queue with more pipes to look through takes too long for one turn of a loop.
MOST_PIPES = 256


class WorkQueue:
    """One queue: what the steps of its verbs decide, which its driver takes."""

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
        self.driver = StepDriver(
            self._table, state, self._popping, self._settling, self._tidy
        )
        pushing.make_room, pushing.settle = self._make_room, self._settle_known

    def now_ms(self) -> int:
        """Returns the time of the store, which never goes back."""
        return self._table.clock.now_ms()

    def pop(
        self,
        popper: PopCaller,
        tx: Transaction | None,
        *,
        limit: int,
        commits: LeasedJob | None = None,
    ) -> list[Popped]:
        """Leases up to `limit` items; on disk when it returns.

        In a transaction, items are judged by its snapshot, and leased until its end.
        """
        popping = self.popping(popper, tx, limit=limit, commits=commits)
        if tx is None:
            return self.driver.perform(popping).popped
        with self._within(tx):
            return self.driver.perform(popping).popped

    @contextmanager
    def _within(self, tx: Transaction) -> Iterator[None]:
        """Surrounds a step of a transaction, whose end wakes poppers."""
        self._transaction_writes.begun(tx)
        entry = self._transaction_writes.enter(tx.transaction_id)
        try:
            self._endings.expect(tx.transaction_id, self.state.signal)
            yield
        finally:
            self._transaction_writes.leave(entry)

    def popping(
        self,
        popper: PopCaller,
        tx: Transaction | None,
        *,
        limit: int,
        commits: LeasedJob | None = None,
    ) -> Step[LeasedItems]:
        """Leases up to `limit` items, and has a job end for good."""

        def pop(now_ms: int, batch: StepBatch) -> LeasedItems:
            state = self.state
            if state.descriptor.is_paused:
                return LeasedItems()
            if sum(map(len, state.lanes.values())) > MOST_PIPES:
                batch.wait_here()
            judge, pops = Judge(partial(self._settling.judge, batch), tx), state.pops
            try:
                return self._popping.pop(popper, judge, now_ms, limit, batch)
            except WouldWait:
                state.pops = pops
                raise

        def take(now_ms: int, batch: StepBatch) -> LeasedItems:
            if commits is None:
                return pop(now_ms, batch)
            # What refuses comes first, then the pop, which may have to wait.
            lease = self._to_end(commits.id, commits.lease, batch)
            leased = pop(now_ms, batch)
            self._end(lease, now_ms, batch)
            leased.ended.append(lease)
            return leased

        return Step(
            take,
            leases=lambda leased: [*leased.alone, *leased.runs, *leased.ended],
            ended=self._forget_ended,
            is_nothing=lambda leased: not (leased.popped or leased.ended),
        )

    def _forget_ended(self, leased: LeasedItems) -> None:
        for lease in leased.ended:
            self._forget(lease)

    def pause_s(self) -> float:
        """Returns after what time a popper that waits has to look again."""
        with self.state.lock:
            next_ms = self.state.next_time_ms()
        if next_ms is None:
            return LOOK_AGAIN_S
        return min(max((next_ms - self.now_ms()) / 1000, 0.001), LOOK_AGAIN_S)

    def commit(self, item: str, token: str) -> Step[Lease]:
        """Has a job end for good.

        Raises `LeaseLost` when its lease is over, with who has it now.
        """

        def take(now_ms: int, batch: StepBatch) -> Lease:
            lease = self._to_end(item, token, batch)
            self._end(lease, now_ms, batch)
            return lease

        return Step(take, leases=lambda lease: [lease], ended=self._forget)

    def _to_end(self, item: str, token: str, batch: StepBatch) -> Lease:
        """Returns the lease of a job that may end by itself; changes nothing."""
        lease = self.state.held(item, token)
        if lease.transaction is not None:
            raise BadRequest(f"job {item} ends with transaction {lease.transaction}")
        if lease.key is not None and self.state.descriptor.order == "key":
            batch.wait_here()  # for the lock, once the next of its key is free
        return lease

    def _end(self, lease: Lease, now_ms: int, batch: StepBatch) -> None:
        """Has a job end with the batch."""
        lease.pipe.counts.committed += 1
        lease.pipe.leased -= 1
        lease.state = LeaseState.ENDING
        self._popping.count_end(lease, now_ms)
        self._popping.delete(lease, batch)

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
            batch = StepBatch()
            freed = self.state.remove(lease, self.now_ms())
            batch.drained.append(lease.pipe)
            self.driver.hand_over(batch)
        if freed:
            self.state.signal.notify()

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
                lease.state, batch = LeaseState.ENDING, StepBatch()
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

        def take(_: int, batch: StepBatch) -> None:
            lease = self.state.held(item, token)
            if lease.transaction is None:
                self.state.attach(lease, tx.transaction_id)
                lease.has_inbox = has_inbox
                batch.writes.append(lease.write())

        with self._within(tx):
            self.driver.perform(Step(take))

    def give_back(
        self, item: str, lease: str, *, delay_s: float = 0, error: str = ""
    ) -> Step[None]:
        """Has a job wait again, after `delay_s`."""
        delay_ms = int(checked_delay_s(delay_s) * 1000)
        said = checked_text("error", error, most=MOST_REPORTED)

        def take(now_ms: int, batch: StepBatch) -> None:
            job = self.state.held(item, lease)
            self._popping.give_back(job, now_ms + delay_ms, batch, error=said)
            job.pipe.counts.rolled_back += 1

        return Step(take, wakes=True)

    def put_back(self, item: str, token: str) -> None:
        """Has an item wait again as if it had not been popped."""

        def take(now_ms: int, batch: StepBatch) -> None:
            self._popping.put_back(self.state.held(item, token), now_ms, batch)

        self.driver.perform(Step(take))

    def put_back_surely(self, item: str, token: str) -> None:
        """Has an item wait again; by the next step where that cannot be written now."""
        try:
            self.put_back(item, token)
        except LeaseLost:  # it waits again already
            return
        except Unavailable:
            with self.state.lock, suppress(LeaseLost):
                self.driver.failed([self.state.held(item, token)])

    def look(self, lease: Lease) -> Item | None:
        """Reads the item of a lease; None if it is gone."""
        return self._reader.look(lease.pipe.prefix, lease.id)

    def extend(self, item: str, lease: str, seconds: float) -> Step[int]:
        """Has a lease end `seconds` from now; answers that time in ms."""
        checked_seconds("the time of a lease", seconds, most=MAX_LEASE_S)

        def take(now_ms: int, batch: StepBatch) -> int:
            job = self.state.held(item, lease)
            if job.transaction is not None:
                raise BadRequest(
                    f"the lease of job {item} ends with transaction "
                    f"{job.transaction}, and cannot be extended"
                )
            job.until_ms = now_ms + max(1, int(seconds * 1000))
            heapq.heappush(self.state.ends, (job.until_ms, job.token, job))
            batch.writes.append(job.write())
            return job.until_ms

        return Step(take)

    def release(self, pointer: int) -> Step[None]:
        """Gives back what a transaction popped that is being rolled back."""

        def take(now_ms: int, batch: StepBatch) -> None:
            for lease in self.state.leases_of(pointer):
                lease.pipe.counts.rolled_back += 1
                said = lease.error or f"transaction {pointer} was rolled back"
                self._popping.give_back(lease, now_ms, batch, error=said)

        return Step(take, wakes=True)

    def end_handled(self, items: Iterable[str], pointer: int | None) -> Step[list[str]]:
        """Has items end that an inbox names; answers those that are still there.

        Those end that wait again, and those that a transaction has popped, whatever
        becomes of it.
        """

        def take(now_ms: int, batch: StepBatch) -> list[str]:
            left = []
            for item in items:
                lease = self.state.lease_of(item)
                if lease is None:
                    if self._is_unread(item):
                        left.append(item)
                elif self._may_end(lease, pointer):
                    self._popping.finish(lease, now_ms, batch)
                elif lease.state is not LeaseState.GONE:
                    left.append(item)
            return left

        return Step(take)

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
            with self.driver.step():
                pass

    def _settle_known(self, *, may_wait: bool) -> None:
        """Ends the pushes of transactions that are over, where it asks nobody."""
        if self._settling.is_told:
            with self.driver.step(may_wait=may_wait):
                pass

    def reap(self) -> None:
        """Ends what is over: leases, transactions, pipes that their pushers left."""
        self._read_all()
        self.driver.perform(Step(self._tidy))

    def _read_all(self, *, counts: bool = True) -> None:
        """Reads and counts all pipes, and has empty ones go, a piece at a time."""
        source, is_unfinished = self.state.source, True
        while is_unfinished:  # others have their turns in between
            with self.driver.step() as (now_ms, batch):
                is_unfinished = source.more(now_ms, batch) or (
                    counts and source.count_some()
                )

    def _make_room(self) -> None:
        """Has pipes go that nobody needs, as there are too many."""
        self._read_all()
        with self.driver.step() as (now_ms, batch):
            self._tidy(now_ms, batch)

    def _tidy(self, now_ms: int, batch: StepBatch) -> None:
        """Has empty pipes go whose pushers left them, and others leave the memory."""
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
        with self.driver.step() as (now_ms, _):
            return self.statistics.stats(Judge(self._make_judge), now_ms)

    def peek(self, limit: int) -> list[Waiting]:
        """Returns items that wait, the oldest first, and leases none."""
        return self._browsing(lambda browser: browser.peek(limit))

    def browse(self, state: ItemState, limit: int) -> list[QueueItem]:
        """Returns items in that state, and leases none."""
        return self._browsing(lambda browser: browser.items(state, limit))

    def letters_of(self, queue: str, limit: int) -> list[QueueItem]:
        """Returns the dead letters of another queue that wait here."""
        return self._browsing(lambda browser: browser.letters_of(queue, limit))

    def _browsing(self, look: Callable[[ItemBrowser], T]) -> T:
        self._read_all(counts=False)
        with self.driver.step() as (now_ms, _):
            judge = Judge(self._make_judge)
            return look(ItemBrowser(self.state, self._reader, judge, now_ms))
