"""Chooses the next items of a queue, and gives them back when their lease ends."""

import heapq
import math
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import NamedTuple

from txaware.errors import Unavailable
from txaware.service.queue.lease import (
    Lease,
    LeasedItems,
    LeaseRun,
    LeaseState,
    first_token,
    new_token,
)
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader, deletion
from txaware.service.queue.queue_state import QueueState
from txaware.service.queue.step_batch import StepBatch
from txaware.store.queue_table import NO_TIME

# Every so many pops begin with the lane that has the oldest pipe, whatever its
# priority: so nothing starves.
OLDEST_EVERY = 10
# So many items may be parked behind others of their key before reading stops.
MOST_PARKED = 10_000


class PopCaller(NamedTuple):
    """The one that pops: its name, its transaction, and how it takes turns.

    With `owns_pipe` it keeps to one pipe, which nobody else pops from meanwhile. The
    item with which it has `most_bytes` is the last that it takes at once. One that
    `has_inbox` notes what it handled in a database of its own, whose commit decides.
    """

    name: str
    transaction: int | None = None
    is_local: bool = True
    owns_pipe: bool = False
    most_bytes: int | None = None
    has_inbox: bool = False


class Popping:
    """The decisions of pops in one queue; called under its lock, and writes nothing."""

    def __init__(self, reader: PipeReader, state: QueueState) -> None:
        self._reader = reader
        self._state = state

    def pop(
        self, popper: PopCaller, judge: Judge, now_ms: int, limit: int, batch: StepBatch
    ) -> LeasedItems:
        """Leases up to `limit` items."""
        leased = LeasedItems()
        second = self._state.meter.at(now_ms)
        left_bytes = math.inf if popper.most_bytes is None else popper.most_bytes
        while len(leased.popped) < limit and left_bytes > 0:
            try:
                found = self._next(popper, judge, now_ms, batch)
                if found is None and self._state.source.more(now_ms, batch):
                    continue
            except Unavailable:
                if not leased.popped:
                    raise
                return leased
            if found is None:
                return leased
            lease, item = found
            second.popped += 1
            if not lease.deliveries:
                second.first_popped += 1
                second.waited_ms += now_ms - lease.id.publish_time_ms
            self._lease(lease, popper, now_ms)
            lease.pipe.counts.popped += 1
            batch.touch(lease.pipe)
            batch.writes.append(lease.write())
            leased.add(lease, item)
            if popper.most_bytes is not None:
                left_bytes -= item.size_bytes
            room = limit - len(leased.popped)
            if room and self._is_alone(lease.pipe, popper):
                more = self._more_of(lease.pipe, judge, now_ms, room, left_bytes)
                if popper.most_bytes is not None:
                    left_bytes -= sum([one.size_bytes for one in more])
                if more:
                    self._lease_run(lease.pipe, more, popper, now_ms, batch, leased)
        return leased

    def _is_alone(self, pipe: Pipe, popper: PopCaller) -> bool:
        """Tells whether no other pipe has a turn, nor anything that came back."""
        state = self._state
        return (
            state.descriptor.order == "mostly"
            and not state.back
            and len(state.lanes) == 1
            and state.lanes.get(pipe.priority) == [pipe.id]
            and pipe.owner in (None, popper.name)
        )

    def _more_of(
        self, pipe: Pipe, judge: Judge, now_ms: int, limit: int, left_bytes: float
    ) -> list[Item]:
        """Takes what was read of a pipe, up to what needs a closer look."""
        found: list[Item] = []
        for item in islice(pipe.buffer, limit):
            if item.expires_ms is not None and item.expires_ms <= now_ms:
                break
            if item.stored_by is not None:
                break
            if item.pointer is not None and judge.verdict(item.pointer):
                break
            found.append(item)
            if left_bytes != math.inf:
                left_bytes -= item.size_bytes
                if left_bytes <= 0:
                    break
        for _ in found:
            pipe.buffer.popleft()
        return found

    def _lease_run(
        self,
        pipe: Pipe,
        items: list[Item],
        popper: PopCaller,
        now_ms: int,
        batch: StepBatch,
        leased: LeasedItems,
    ) -> None:
        """Leases items of one pipe that are popped for the first time."""
        run = LeaseRun(
            pipe,
            [item.id for item in items],
            first_token(),
            self._until_ms(popper, now_ms),
            popper.transaction,
            popper.name,
            popper.is_local,
            popper.has_inbox,
            now_ms,
        )
        self._state.begin_run(run)
        popped, count = run.popped(items), len(items)
        second = self._state.meter.at(now_ms)
        second.popped += count
        second.first_popped += count
        second.waited_ms += count * now_ms - sum([one.pushed_ms for one in popped])
        pipe.counts.popped += count
        self._state.pops += count
        batch.writes.append(run.write())
        leased.runs.append(run)
        leased.popped += popped

    def _until_ms(self, popper: PopCaller, now_ms: int) -> int:
        """Returns when a lease ends that begins now; in a transaction with that."""
        if popper.transaction is not None:
            return NO_TIME
        return now_ms + (int(self._state.descriptor.lease_s * 1000) or 1)

    def _lease(self, lease: Lease, popper: PopCaller, now_ms: int) -> None:
        lease.popped_ms = now_ms
        lease.deliveries += 1
        lease.token = new_token()
        lease.popper, lease.is_local = popper.name, popper.is_local
        lease.has_inbox = popper.has_inbox
        lease.transaction = popper.transaction
        lease.until_ms = self._until_ms(popper, now_ms)
        lease.due_ms = NO_TIME
        self._state.begin_work(lease)

    def _next(
        self, popper: PopCaller, judge: Judge, now_ms: int, batch: StepBatch
    ) -> tuple[Lease, Item] | None:
        state = self._state
        if state.descriptor.order == "strict":
            return self._next_strict(judge, now_ms, batch)
        state.pops += 1
        lanes = self._lanes()
        if state.back and lanes and self._ends_round(lanes[0]):
            found = self._from_back(now_ms, batch)
            state.turns[lanes[0]] = 0
            if found is not None:
                return found
        for priority in lanes:
            found = self._from_lane(priority, popper, judge, now_ms, batch)
            if found is not None:
                return found
        return self._from_back(now_ms, batch) if state.back else None

    def _ends_round(self, priority: int) -> bool:
        """Tells whether all pipes had their turn: then it is that of what came back."""
        lane, width = self._state.lanes[priority], self._state.descriptor.max_pop_width
        last = lane[min(len(lane), width) - 1]
        return self._state.turns.get(priority, 0) >= last

    def _lanes(self) -> list[int]:
        state = self._state
        if len(state.lanes) <= 1:
            return list(state.lanes)
        lanes = sorted(state.lanes, reverse=True)
        if not state.pops % OLDEST_EVERY:
            lanes.sort(key=lambda priority: state.lanes[priority][0])
        return lanes

    def _next_strict(
        self, judge: Judge, now_ms: int, batch: StepBatch
    ) -> tuple[Lease, Item] | None:
        state = self._state
        state.next_back(now_ms)  # drops what is no longer so
        while state.back:
            lease = min(
                (
                    lease
                    for _, _, _, lease in state.back
                    if lease.state is LeaseState.WAITING
                ),
                key=lambda lease: (lease.pipe.id, lease.id),
                default=None,
            )
            if lease is None:
                break
            if lease.due_ms > now_ms:
                return None
            batch.wait_here()
            item = self._look(lease)
            if (found := self._returned(lease, item, now_ms, batch)) is not None:
                return found
        for priority in sorted(state.lanes, reverse=True):
            for number in list(state.lanes[priority]):
                if (pipe := state.pipe(number)) is None:
                    continue
                if (found := self._from_pipe(pipe, judge, now_ms, batch)) is not None:
                    return found
                if pipe.blocked is not None or pipe.buffer:
                    return None
        return None

    def _from_lane(
        self,
        priority: int,
        popper: PopCaller,
        judge: Judge,
        now_ms: int,
        batch: StepBatch,
    ) -> tuple[Lease, Item] | None:
        found_out = (-1, -1)
        # Behind a pipe that is drained, or was empty from the start, the next is free.
        while found_out != (len(batch.drained), self._state.skipped):
            found_out = (len(batch.drained), self._state.skipped)
            for pipe in self._in_turn(priority, popper, now_ms, batch):
                found = self._from_pipe(pipe, judge, now_ms, batch)
                if found is not None:
                    self._had_turn(pipe, popper, now_ms)
                    return found
        return None

    def _had_turn(self, pipe: Pipe, popper: PopCaller, now_ms: int) -> None:
        self._state.turns[pipe.priority] = pipe.id
        if popper.owns_pipe:
            idle_ms = int(self._state.descriptor.lease_s * 1000) + 1000
            pipe.owner, pipe.owned_until_ms = popper.name, now_ms + idle_ms
            self._state.are_owned = True

    def _in_turn(
        self, priority: int, popper: PopCaller, now_ms: int, batch: StepBatch
    ) -> Iterable[Pipe]:
        """Returns the pipes that a popper may pop from now, its own one first."""
        free: Iterable[Pipe] = self._state.candidates(priority, batch)
        if self._state.are_owned:
            free = (
                pipe
                for pipe in free
                if pipe.owner in (None, popper.name) or pipe.owned_until_ms <= now_ms
            )
        if not popper.owns_pipe:
            return free
        width = islice(free, self._state.descriptor.max_pop_width)
        return sorted(width, key=lambda pipe: (pipe.owner != popper.name, pipe.id))

    def _from_pipe(
        self, pipe: Pipe, judge: Judge, now_ms: int, batch: StepBatch
    ) -> tuple[Lease, Item] | None:
        state = self._state
        while True:
            if not pipe.buffer:
                if len(state.looked_at) > MOST_PARKED and self._is_crowded():
                    return None
                known = partial(state.known, pipe)
                batch.writes += self._reader.fill(
                    pipe, judge, known, may_wait=batch.may_wait
                )
            if not pipe.buffer:
                if pipe.is_drained:
                    state.leave_lane(pipe.id, pipe.priority, pipe.pusher)
                    batch.drained.append(pipe)
                return None
            item = pipe.buffer[0]
            if item.pointer is not None and judge.verdict(item.pointer):
                return None  # this popper's snapshot is older than its commit
            pipe.buffer.popleft()
            if item.expires_ms is not None and item.expires_ms <= now_ms:
                pipe.counts.expired += 1
                pipe.removals += 1
                batch.touch(pipe)
                batch.writes.append(deletion(pipe.prefix, item.id, item.stored_by))
                continue
            lease = Lease(pipe, item.id, item.key, item.stored_by)
            state.add_lease(lease)
            if not self._parks(lease):
                return lease, item

    def _parks(self, lease: Lease) -> bool:
        """Puts an item behind another one of its key, where the order is by key."""
        state, key = self._state, lease.key
        if state.descriptor.order != "key" or key is None:
            return False
        if key in state.busy:
            state.parked.setdefault(key, deque()).append(lease)
            return True
        state.busy[key] = lease
        return False

    def _is_crowded(self) -> bool:
        return sum(map(len, self._state.parked.values())) >= MOST_PARKED

    def _from_back(self, now_ms: int, batch: StepBatch) -> tuple[Lease, Item] | None:
        while (lease := self._state.next_back(now_ms)) is not None:
            batch.wait_here()
            item = self._look(lease)
            heapq.heappop(self._state.back)  # after what may fail
            if (found := self._returned(lease, item, now_ms, batch)) is not None:
                return found
        return None

    def _look(self, lease: Lease) -> Item | None:
        return self._reader.look(lease.pipe.prefix, lease.id)

    def _returned(
        self, lease: Lease, item: Item | None, now_ms: int, batch: StepBatch
    ) -> tuple[Lease, Item] | None:
        """Returns an item that waits again; None if it is gone or expires now."""
        if item is None:
            lease.pipe.counts.committed += 1  # a commit whose answer was lost
        elif item.expires_ms is not None and item.expires_ms <= now_ms:
            lease.pipe.counts.expired += 1
        else:
            return lease, item
        batch.touch(lease.pipe)
        batch.writes += lease.deletions()
        self._state.remove(lease, now_ms)
        batch.drained.append(lease.pipe)
        return None

    def put_back(self, lease: Lease, now_ms: int, batch: StepBatch) -> None:
        """Has an item wait again as if it had not been popped."""
        lease.deliveries -= 1
        lease.pipe.counts.popped -= 1
        self.give_back(lease, now_ms, batch, may_die=False)

    def give_back(
        self,
        lease: Lease,
        due_ms: int,
        batch: StepBatch,
        *,
        error: str = "",
        may_die: bool = True,
    ) -> None:
        """Has an item wait again, or end among the dead letters."""
        state = self._state
        if dies := may_die and self.is_last_delivery(lease):
            batch.wait_here()  # for its burial
        state.leave_work(lease)
        lease.error = error or lease.error
        lease.has_inbox = lease.has_inbox and not may_die
        if dies:
            lease.state, lease.token = LeaseState.DYING, 0
            lease.until_ms, lease.due_ms = NO_TIME, due_ms
            state.dying.append(lease)
        else:
            state.wait_again(lease, due_ms)
        batch.touch(lease.pipe)
        batch.writes.append(lease.write())

    def lose(self, lease: Lease, now_ms: int, batch: StepBatch, said: str) -> None:
        """Has an item wait again whose popper, or its transaction, was lost.

        One that an inbox may name does not die: whoever pops it next looks there.
        """
        self.give_back(lease, now_ms, batch, error=said, may_die=not lease.has_inbox)

    def is_last_delivery(self, lease: Lease) -> bool:
        """Tells whether an item goes to the dead letters instead of waiting again."""
        most = self._state.descriptor.max_deliveries
        return most is not None and lease.deliveries >= most

    def finish(self, lease: Lease, now_ms: int, batch: StepBatch) -> None:
        """Has a job end for good."""
        lease.pipe.counts.committed += 1
        self.count_end(lease, now_ms)
        self.forget(lease, now_ms, batch)

    def finish_all(self, pointer: int, now_ms: int, batch: StepBatch) -> None:
        """Has all jobs of a transaction that is committed end for good.

        It does what `finish` does, for all of them in one loop.
        """
        state, second = self._state, self._state.meter.at(now_ms)
        for run in state.runs.pop(pointer, ()):
            second.worked_ms += run.left * max(0, now_ms - run.popped_ms)
            second.committed += run.left
            run.pipe.counts.committed += run.left
            batch.writes += run.deletions()
            state.end_run(run)
            batch.touch(run.pipe)
            batch.drained.append(run.pipe)
        leases = state.by_pointer.pop(pointer, set())
        for lease in leases:
            second.worked_ms += max(0, now_ms - lease.popped_ms)
            batch.writes += lease.deletions()
        second.committed += len(leases)
        for pipe, ended in state.remove_all(leases, now_ms).items():
            pipe.counts.committed += ended
            batch.touch(pipe)
            batch.drained.append(pipe)

    def count_end(self, lease: Lease, now_ms: int) -> None:
        """Counts a job that was done, and how long it was in work."""
        second = self._state.meter.at(now_ms)
        second.committed += 1
        second.worked_ms += max(0, now_ms - lease.popped_ms)

    def delete(self, lease: Lease, batch: StepBatch) -> None:
        """Has the rows of an item go."""
        batch.touch(lease.pipe)
        batch.writes += lease.deletions()

    def forget(self, lease: Lease, now_ms: int, batch: StepBatch) -> None:
        """Removes an item, with all that is known of it."""
        self.delete(lease, batch)
        self._state.remove(lease, now_ms)
        batch.drained.append(lease.pipe)

    def end_leases(self, now_ms: int, batch: StepBatch) -> None:
        """Gives back what was not committed within its lease."""
        ends = self._state.ends
        while ends and ends[0][0] <= now_ms:
            _, token, lease = ends[0]
            is_its = lease.state is LeaseState.IN_WORK and lease.token == token
            is_timed = is_its and lease.transaction is None
            is_over = is_timed and lease.until_ms <= now_ms
            if is_over and self.is_last_delivery(lease):
                batch.wait_here()
            heapq.heappop(ends)
            if is_over:
                lease.pipe.counts.expired_leases += 1
                said = f"the lease of {lease.popper} ended"
                self.give_back(lease, now_ms, batch, error=lease.error or said)
