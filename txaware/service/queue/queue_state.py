"""The state of one queue in memory: pipes, leases, and what waits again."""

import heapq
import threading
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from random import getrandbits

import attrs

from txaware.errors import BadRequest
from txaware.interfaces import Write
from txaware.keys import ROW_KEY_BYTES
from txaware.messages import MessageId
from txaware.queues import PipeName, QueueDescriptor, pipe_prefix, row_name
from txaware.service.queue.lease import Lease, LeaseRun, LeaseState, held, parsed_item
from txaware.service.queue.meter import Meter
from txaware.service.queue.pipe import FIRST, Pipe
from txaware.service.queue.pipe_reader import READ_BYTES, READ_ROWS, item_of
from txaware.service.wakeups import Signal
from txaware.store.queue_table import (
    NO_TIME,
    TOTALS,
    Counts,
    PipeKind,
    PipeRow,
    pipe_write,
)
from txaware.topics import TopicName, data_prefix

# The id of a pipe is a time and so many random bits; programs read it as a double.
RANDOM_BITS = 10
# The head of a pipe is computed anew after so many removals.
HEAD_EVERY = 64


@attrs.frozen
class Pushed:
    """A plain push that is over; without rows it failed.

    The rows are on disk, and `size_bytes` is the size of what was pushed.
    """

    pipe: Pipe
    rows: list[Write] = attrs.field(factory=list)
    size_bytes: int = 0


@attrs.define(eq=False)
class QueueState:
    """A queue in memory, the only truth while its store is open.

    `lanes` has the pipes that may hold something to read, by priority, oldest first. Of
    the pipes of one pusher only the first is there; the others wait in `chains`.
    `leaving` are items that ended before their pipe was read again after a start: their
    rows may still be there, as nobody waits for the batch that deletes them.
    `back` is a heap of items that wait again, `ends` one of leases; both may name what
    has changed since. `watched` are the transactions that may push, with their pipes.
    `runs` are popped by open transactions, and nobody has looked at one of their items
    yet; `leases` makes those of all. The row of one in `runs_over` has to go.
    All is read and changed under `lock`; but whoever sees a write fail sets
    `is_in_doubt` without it. Nor do a push and a commit take it again at their end:
    `pushed_soon` and `gone_soon` have what they leave to the next step. So has
    `failed_soon` the leases that were not written, or whose end was not; and
    `drained_soon` are pipes whose leftovers an event loop did not look for.
    """

    descriptor: QueueDescriptor
    name: TopicName = attrs.field(init=False)
    lock: threading.RLock = attrs.field(factory=threading.RLock)
    signal: Signal = attrs.field(factory=Signal)
    pipes: dict[int, Pipe] = attrs.field(factory=dict)
    lanes: dict[int, list[int]] = attrs.field(factory=dict)
    delayed: list[tuple[int, int]] = attrs.field(factory=list)
    due_pipes: dict[tuple[int, int], Pipe] = attrs.field(factory=dict)
    first: dict[tuple[int, int], Pipe] = attrs.field(factory=dict)
    chains: dict[tuple[int, int], deque[Pipe]] = attrs.field(factory=dict)
    pushers: dict[tuple[str, int], Pipe] = attrs.field(factory=dict)
    looked_at: dict[tuple[int, MessageId], Lease] = attrs.field(factory=dict)
    runs: dict[int, list[LeaseRun]] = attrs.field(factory=dict)
    runs_over: list[LeaseRun] = attrs.field(factory=list)
    watched: dict[int, set[Pipe]] = attrs.field(factory=dict)
    leaving: set[tuple[int, MessageId]] = attrs.field(factory=set)
    by_pointer: dict[int, set[Lease]] = attrs.field(factory=dict)
    ends: list[tuple[int, int, Lease]] = attrs.field(factory=list)
    back: list[tuple[int, MessageId, int, Lease]] = attrs.field(factory=list)
    dying: list[Lease] = attrs.field(factory=list)
    parked: dict[bytes, deque[Lease]] = attrs.field(factory=dict)
    busy: dict[bytes, Lease] = attrs.field(factory=dict)
    totals: Counts = attrs.field(factory=Counts)
    meter: Meter = attrs.field(factory=Meter)
    pushed_before: int = 0
    turns: dict[int, int] = attrs.field(factory=dict)
    pops: int = 0
    last_pipe: int = 0
    are_owned: bool = False
    is_gone: bool = False
    is_in_doubt: bool = False
    pushed_soon: deque[Pushed] = attrs.field(factory=deque)
    gone_soon: deque[Lease] = attrs.field(factory=deque)
    failed_soon: deque[Lease | LeaseRun] = attrs.field(factory=deque)
    drained_soon: list[Pipe] = attrs.field(factory=list)
    settled_ms: int = 0

    def __attrs_post_init__(self) -> None:
        self.name = row_name(self.descriptor.name)

    @property
    def prefix(self) -> bytes:
        """The beginning of the keys of this generation of the queue."""
        return data_prefix(self.name, self.descriptor.generation)

    def add_pipe(
        self,
        now_ms: int,
        kind: PipeKind,
        *,
        priority: int = 0,
        due_ms: int = NO_TIME,
        pusher: int = 0,
    ) -> Pipe:
        """Begins a pipe, whose id is above those of all others."""
        # Random in part: the times of a directory that was put back may come again.
        drawn = now_ms << RANDOM_BITS | getrandbits(RANDOM_BITS)
        self.last_pipe = max(self.last_pipe + 1, drawn)
        name, generation = self.name, self.descriptor.generation
        pipe_name = PipeName(name.name, name.namespace, generation, self.last_pipe)
        pipe = Pipe(
            self.last_pipe, pipe_name, kind, priority, now_ms, due_ms, pusher=pusher
        )
        pipe.is_plain = True
        self.put(pipe)
        return pipe

    def catch_up_pushes(self, now_ms: int) -> None:
        """Counts the pushes that have ended since the last step."""
        while self.pushed_soon:
            pushed = self.pushed_soon.popleft()
            pipe, count = pushed.pipe, len(pushed.rows)
            if count:
                pipe.pushed += count
                self.meter.at(now_ms).pushed += count
                self._keep(pushed, count)
            pipe.pushing -= 1

    def _keep(self, pushed: Pushed, count: int) -> None:
        """Keeps what was pushed for those who pop next, who then need not read it.

        It is kept where everything before it was read, as much of it as a reader would
        keep, and for pipes that are popped from soon.
        """
        pipe = pushed.pipe
        if (
            pipe.pushing == 1  # nobody else is in between
            and pipe.seen + count == pipe.pushed
            and pushed.rows[0][0][-ROW_KEY_BYTES:] > pipe.read.row_key  # nor read it
            and len(pipe.buffer) + count <= READ_ROWS
            and pushed.size_bytes * READ_ROWS <= READ_BYTES * count
            and pipe.is_quiet
            and not self.is_in_doubt  # an earlier push may be there
            and self.is_soon_popped(pipe)
        ):
            for key, value in pushed.rows:
                pipe.buffer.append(item_of(key[-ROW_KEY_BYTES:], value or b""))
            pipe.seen += count
            pipe.read = pipe.buffer[-1].id

    def spread_doubt(self) -> None:
        """Has all pipes read to their end: a write failed, and may be there or not."""
        self.is_in_doubt = False
        for pipe in self.pipes.values():
            pipe.is_plain = False

    def put(self, pipe: Pipe) -> None:
        """Takes a pipe in: to be read, or to wait until it is due."""
        self.pipes[pipe.id] = pipe
        self.last_pipe = max(self.last_pipe, pipe.id)
        if pipe.kind is PipeKind.DELAYED:
            heapq.heappush(self.delayed, (pipe.due_ms, pipe.id))
        else:
            self._line_up(pipe)

    def open_due(self, now_ms: int) -> None:
        """Has the pipes read whose items are due now."""
        while self.delayed and self.delayed[0][0] <= now_ms:
            _, number = heapq.heappop(self.delayed)
            pipe = self.pipes[number]
            self.due_pipes.pop((pipe.due_ms, pipe.priority), None)
            pipe.is_open = False
            self._line_up(pipe)

    def _line_up(self, pipe: Pipe) -> None:
        chain = (pipe.pusher, pipe.priority)
        if pipe.pusher and chain in self.first:
            self.chains.setdefault(chain, deque()).append(pipe)
            return
        self.first[chain] = pipe
        lane = self.lanes.setdefault(pipe.priority, [])
        if not lane or lane[-1] < pipe.id:
            lane.append(pipe.id)
        else:
            insort(lane, pipe.id)

    def is_lined_up(self, pipe: Pipe) -> bool:
        """Tells whether a pipe may have something to read."""
        lane = self.lanes.get(pipe.priority, [])
        at = bisect_left(lane, pipe.id)
        return at < len(lane) and lane[at] == pipe.id

    def is_soon_popped(self, pipe: Pipe) -> bool:
        """Tells whether pops take turns over a pipe, or over the one just before it."""
        chain = (pipe.pusher, pipe.priority)
        waiting = self.chains.get(chain)
        if waiting and waiting[0] is pipe:
            pipe = self.first[chain]
        lane = self.lanes.get(pipe.priority, [])
        at, width = bisect_left(lane, pipe.id), self.descriptor.max_pop_width
        return at < min(len(lane), width) and lane[at] == pipe.id

    def leave_lane(self, pipe: Pipe) -> None:
        """Has a pipe no longer read: all of it was."""
        lane = self.lanes.get(pipe.priority, [])
        if self.is_lined_up(pipe):
            del lane[bisect_left(lane, pipe.id)]
        self._follow(pipe)
        if not self.lanes.get(pipe.priority):
            self.lanes.pop(pipe.priority, None)
            self.turns.pop(pipe.priority, None)

    def _follow(self, pipe: Pipe) -> None:
        """Has the next pipe of the same pusher read after this one."""
        chain = (pipe.pusher, pipe.priority)
        if self.first.get(chain) is not pipe:
            return
        del self.first[chain]
        if waiting := self.chains.get(chain):
            following = waiting.popleft()
            if not waiting:
                del self.chains[chain]
            self._line_up(following)

    def drop(self, pipe: Pipe) -> list[Write]:
        """Rolls the counts of a finished pipe into the totals; returns the writes."""
        self.leave_lane(pipe)
        del self.pipes[pipe.id]
        self.totals.add(pipe.counts)
        # Whatever was pushed is gone: that is surer than any count.
        self.pushed_before += pipe.counts.removed
        return [pipe_write(pipe.prefix, None), self.totals_write()]

    def totals_write(self) -> Write:
        """Makes the row with the totals of all pipes that are gone."""
        row = PipeRow(
            PipeKind.TOTAL, 0, 0, NO_TIME, self.pushed_before, 0, self.totals, FIRST
        )
        generation = self.descriptor.generation
        return pipe_write(pipe_prefix(self.name, generation, TOTALS), row)

    def known(self, pipe: Pipe, item: MessageId) -> bool:
        """Tells whether an item was read before, and is not to be read again."""
        return (pipe.id, item) in self.leases or (pipe.id, item) in self.leaving

    def held(self, item: str, token: str) -> Lease:
        """Returns the lease of a job in work; raises `LeaseLost` where it is over."""
        return held(self.lease_of(item), item, token, self.descriptor.name)

    def lease_of(self, item: str) -> Lease | None:
        """Returns the lease of an item by its id; None if it is gone, or unread."""
        place = self.place_of(item)
        return None if place is None else self.leases.get(place)

    def place_of(self, item: str) -> tuple[int, MessageId] | None:
        """Returns the pipe of an item and its id there; None in another generation."""
        found = parsed_item(item)
        if found is None:
            raise BadRequest(f"{item!r:.100} is no job's id")
        pipe, message_id, generation = found
        if generation not in (None, self.descriptor.generation):
            return None
        return pipe, message_id

    @property
    def leases(self) -> dict[tuple[int, MessageId], Lease]:
        """All items that were read and are not gone, by pipe and id."""
        while self.runs:
            for run in self.runs.popitem()[1]:
                self._look_at(run)
        return self.looked_at

    def _look_at(self, run: LeaseRun) -> None:
        leases = run.leases()
        for lease in leases:
            self.looked_at[run.pipe.id, lease.id] = lease
        if run.transaction is not None:
            self.by_pointer.setdefault(run.transaction, set()).update(leases)
            return
        for lease in leases:
            heapq.heappush(self.ends, (lease.until_ms, lease.token, lease))

    def begin_run(self, run: LeaseRun) -> None:
        """Takes in items of a pipe that were read, and are in work with one popper."""
        run.pipe.unresolved += run.left
        run.pipe.leased += run.left
        if run.transaction is None:
            self._look_at(run)
        else:
            self.runs.setdefault(run.transaction, []).append(run)

    def end_run(self, run: LeaseRun) -> None:
        """Forgets a run that nobody has looked at, and that is gone as a whole."""
        pipe = run.pipe
        pipe.unresolved -= run.left
        pipe.leased -= run.left
        pipe.removals += run.left
        pipe.head = self._head(pipe)

    def pointers(self) -> set[int]:
        """Returns the transactions that have jobs, or may push."""
        return {*self.by_pointer, *self.runs, *self.watched}

    def leases_of(self, pointer: int) -> list[Lease]:
        """Returns the jobs of a transaction."""
        for run in self.runs.pop(pointer, ()):
            self._look_at(run)
        return list(self.by_pointer.get(pointer, ()))

    def leases_in(self, run: LeaseRun) -> list[Lease]:
        """Returns the leases of a run that are not gone."""
        leases = self.leases
        keys = [(run.pipe.id, item) for item in run.ids]
        return [leases[key] for key in keys if key in leases]

    def add_lease(self, lease: Lease) -> None:
        """Takes in an item that was read."""
        self.looked_at[lease.pipe.id, lease.id] = lease
        lease.pipe.unresolved += 1

    def remove(self, lease: Lease, now_ms: int) -> list[Lease]:
        """Forgets an item that is gone; returns the next of its key, now free."""
        pipe = lease.pipe
        self.leave_work(lease)
        lease.state = LeaseState.GONE
        if lease.id > pipe.read:
            self.leaving.add((pipe.id, lease.id))
        if self.looked_at.pop((pipe.id, lease.id), None) is not None:
            pipe.unresolved -= 1
            self.leave_run(lease.run)
        pipe.removals += 1
        if not pipe.unresolved or not pipe.removals % HEAD_EVERY:
            pipe.head = self._head(pipe)
        return self._free(lease, now_ms)

    def leave_run(self, run: LeaseRun | None) -> None:
        """Notes that an item is gone for good, and perhaps the last one of its run."""
        if run is not None:
            run.left -= 1
            if not run.left:
                self.runs_over.append(run)

    def _free(self, lease: Lease, now_ms: int) -> list[Lease]:
        key = lease.key
        if key is None or self.busy.get(key) is not lease:
            return []
        waiting = self.parked.get(key)
        if not waiting:
            del self.busy[key]
            return []
        following = waiting.popleft()
        if not waiting:
            del self.parked[key]
        self.busy[key] = following
        self.wait_again(following, now_ms)
        return [following]

    def _head(self, pipe: Pipe) -> MessageId:
        first = pipe.buffer[0].id.before() if pipe.buffer else pipe.read
        if not pipe.unresolved:
            return first
        held = (item for number, item in self.leases if number == pipe.id)
        return min(first, min(held).before())

    def begin_work(self, lease: Lease) -> None:
        """Notes that an item is in work from now on."""
        lease.state = LeaseState.IN_WORK
        lease.pipe.leased += 1
        if lease.transaction is not None:
            self.by_pointer.setdefault(lease.transaction, set()).add(lease)
        else:
            heapq.heappush(self.ends, (lease.until_ms, lease.token, lease))

    def remove_all(self, leases: Iterable[Lease], now_ms: int) -> Counter[Pipe]:
        """Forgets items that were in work with one transaction, as `remove` does.

        Returns how many of each pipe they were. The caller has forgotten the
        transaction.
        """
        ended: Counter[Pipe] = Counter()
        for lease in leases:
            pipe = lease.pipe
            lease.transaction, lease.state = None, LeaseState.GONE
            if lease.id > pipe.read:
                self.leaving.add((pipe.id, lease.id))
            if self.looked_at.pop((pipe.id, lease.id), None) is not None:
                pipe.unresolved -= 1
                self.leave_run(lease.run)
            ended[pipe] += 1
            if lease.key is not None:
                self._free(lease, now_ms)
        for pipe, count in ended.items():
            pipe.leased -= count
            pipe.removals += count
            pipe.head = self._head(pipe)
        return ended

    def attach(self, lease: Lease, pointer: int) -> None:
        """Has a job in work end with a transaction, and no longer by time."""
        lease.transaction, lease.until_ms = pointer, NO_TIME
        self.by_pointer.setdefault(pointer, set()).add(lease)

    def leave_work(self, lease: Lease) -> None:
        """Notes that an item is no longer in work, if it was."""
        if lease.state is not LeaseState.IN_WORK:
            return
        lease.pipe.leased -= 1
        lease.state = LeaseState.WAITING
        pointer, lease.transaction = lease.transaction, None
        if pointer is not None:
            others = self.by_pointer.get(pointer, set())
            others.discard(lease)
            if not others:
                self.by_pointer.pop(pointer, None)

    def wait_again(self, lease: Lease, due_ms: int) -> None:
        """Has an item wait from a time on."""
        lease.state = LeaseState.WAITING
        lease.token, lease.until_ms, lease.due_ms = 0, NO_TIME, due_ms
        heapq.heappush(self.back, (due_ms, lease.id, lease.pipe.id, lease))

    def next_back(self, now_ms: int) -> Lease | None:
        """Returns the item that waits again and is due first; None if none is due."""
        while self.back:
            due_ms, _, _, lease = self.back[0]
            if lease.state is LeaseState.WAITING and lease.due_ms == due_ms:
                return lease if due_ms <= now_ms else None
            heapq.heappop(self.back)
        return None

    def next_time_ms(self) -> int | None:
        """Returns when something may come by itself: a lease's end, or a due time."""
        times = [self.delayed[0][0]] if self.delayed else []
        times += [self.back[0][0]] if self.back else []
        times += [self.ends[0][0]] if self.ends else []
        return min(times) if times else None

    def candidates(self, priority: int) -> Iterator[Pipe]:
        """Yields the pipes of a lane in turn that are not idle, behind the last one."""
        lane, pipes = self.lanes.get(priority, []), self.pipes
        width = self.descriptor.max_pop_width
        ids = lane[:width]
        at = bisect_left(ids, self.turns.get(priority, 0) + 1)
        for part in (ids[at:], ids[:at], islice(lane, width, None)):
            for number in part:
                if not (pipe := pipes[number]).is_idle:
                    yield pipe
