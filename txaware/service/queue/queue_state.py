"""The state of one queue in memory: pipes, leases, and what waits again."""

import heapq
import itertools
import threading
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from random import getrandbits
from typing import Protocol

import attrs

from txaware.errors import BadRequest
from txaware.model.interfaces import Write
from txaware.model.messages import MessageId
from txaware.model.queues import PipeName, QueueDescriptor, pipe_prefix, row_name
from txaware.model.topics import TopicName, data_prefix
from txaware.service.queue.lease import Lease, LeaseRun, LeaseState, held, parsed_item
from txaware.service.queue.meter import Meter
from txaware.service.queue.pipe import FIRST, Pipe
from txaware.service.queue.pipe_reader import READ_BYTES, READ_ROWS, item_of
from txaware.service.queue.resting_pipes import RestingPipes
from txaware.service.queue.step_batch import StepBatch
from txaware.service.wakeups import Signal
from txaware.store.keys import ROW_KEY_BYTES
from txaware.store.queue_table import (
    NO_TIME,
    TOTALS,
    PipeKind,
    PipeRow,
    PopCounts,
    pipe_write,
)

# The id of a pipe is a time and so many random bits; programs read it as a double.
RANDOM_BITS = 10
# The head of a pipe is computed anew after so many removals.
HEAD_EVERY = 64


class PipeSource(Protocol):
    """The rows of the pipes that are not in memory."""

    def wake(self, number: int) -> Pipe | None:
        """Brings a pipe into memory; None where there is none of that id."""

    def next_with_items(self, number: int) -> int | None:
        """Returns the first pipe from that id on in which any item is."""

    def read_piece(self) -> bool:
        """Reads some more pipes of those from before; False once all were read."""

    def more(self, now_ms: int, batch: StepBatch) -> bool:
        """Reads some more pipes, or has some empty ones go; False if that is all."""

    def count_some(self) -> bool:
        """Counts what waits in some pipes that rest; False once all are counted."""


@attrs.frozen
class Pushed:
    """A plain push of `count` items to a pipe that is over; without rows it failed.

    The rows are on disk, and `size_bytes` is the size of what was pushed.
    """

    pipe: Pipe
    count: int
    rows: list[Write] = attrs.field(factory=list)
    size_bytes: int = 0


@attrs.define(eq=False)
class QueueState:
    """A queue in memory, the only truth while its store is open.

    `pipes` has those in memory, and `resting` the others; ids from `unread` on were
    there at the start, and nobody has looked for them yet, if it is not None: of those
    `gone_unread` are over.
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
    resting: RestingPipes = attrs.field(factory=RestingPipes)
    source: PipeSource = attrs.field(init=False)
    unread: int | None = None
    gone_unread: set[int] = attrs.field(factory=set)
    skipped: int = 0
    lanes: dict[int, list[int]] = attrs.field(factory=dict)
    delayed: list[tuple[int, int, int]] = attrs.field(factory=list)
    due_pipes: dict[tuple[int, int], Pipe] = attrs.field(factory=dict)
    first: dict[tuple[int, int], int] = attrs.field(factory=dict)
    chains: dict[tuple[int, int], deque[int]] = attrs.field(factory=dict)
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
    totals: PopCounts = attrs.field(factory=PopCounts)
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

    def catch_up_pushes(self, now_ms: int) -> list[Pipe]:
        """Counts the pushes that have ended since the last step.

        Returns pipes that take no more and have got all of theirs.
        """
        complete: list[Pipe] = []
        while self.pushed_soon:
            pushed = self.pushed_soon.popleft()
            pipe, count = pushed.pipe, pushed.count
            if pushed.rows:
                pipe.pushed += count
                self.meter.at(now_ms).pushed += count
                self._keep(pushed, count)
            pipe.pushing -= count
            if not (pipe.is_open or pipe.pushing):
                complete.append(pipe)
        return complete

    def _keep(self, pushed: Pushed, count: int) -> None:
        """Keeps what was pushed for those who pop next, who then need not read it.

        It is kept where everything before it was read, as much of it as a reader would
        keep, and for pipes that are popped from soon.
        """
        pipe = pushed.pipe
        if (
            pipe.pushing == count  # nobody else is in between
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
        self.resting.unsure.update(self.resting.rows)

    def put(self, pipe: Pipe) -> None:
        """Takes a new pipe in: to be read, or to wait until it is due."""
        self.pipes[pipe.id] = pipe
        self.last_pipe = max(self.last_pipe, pipe.id)
        self.place(pipe.id, pipe.kind, pipe.priority, pipe.due_ms, pipe.pusher)

    def place(
        self, number: int, kind: int, priority: int, due_ms: int, pusher: int
    ) -> None:
        """Gives a pipe its place: behind others of its lane, or until it is due."""
        if kind == PipeKind.DELAYED:
            heapq.heappush(self.delayed, (due_ms, number, priority))
        else:
            self._line_up(number, priority, pusher)

    @property
    def pipe_count(self) -> int:
        """The number of pipes, of those that were looked for."""
        return len(self.pipes) + len(self.resting)

    def has(self, number: int) -> bool:
        """Tells whether a pipe is there, in memory or not."""
        return number in self.pipes or number in self.resting or self.is_unread(number)

    def is_unread(self, number: int) -> bool:
        """Tells whether a pipe may be there that nobody has looked for yet."""
        return (
            self.unread is not None
            and number >= self.unread
            and number not in self.gone_unread
        )

    def pipe(self, number: int) -> Pipe | None:
        """Returns a pipe, read now where it was at rest; None if it is gone."""
        found = self.pipes.get(number)
        if found is None and self.has(number):
            found = self.source.wake(number)
        return found

    def oldest(self, limit: int) -> list[Pipe]:
        """Returns the first pipes of all."""
        numbers = heapq.nsmallest(limit, itertools.chain(self.pipes, self.resting))
        return [pipe for one in numbers if (pipe := self.pipe(one)) is not None]

    def may_rest(self, pipe: Pipe) -> bool:
        """Tells whether a pipe may leave the memory until somebody pops from it.

        Nobody pushes to it nor did anybody pop from it, and others have turns first.
        """
        return (
            pipe.is_untouched
            and pipe.kind is PipeKind.PUSHER
            and not self.is_in_doubt
            and not self.is_soon_popped(pipe)
        )

    def lay(self, pipe: Pipe) -> Write:
        """Has a pipe leave the memory; returns its row."""
        del self.pipes[pipe.id]
        return self.resting.lay(pipe)

    def open_due(self, now_ms: int) -> None:
        """Has the pipes read whose items are due now."""
        while self.delayed and self.delayed[0][0] <= now_ms:
            due_ms, number, priority = heapq.heappop(self.delayed)
            self.resting.later.pop(number, None)
            if (pipe := self.pipes.get(number)) is not None:
                self.due_pipes.pop((due_ms, priority), None)
                pipe.is_open = False
            if self.has(number):
                self._line_up(number, priority, 0)

    def _line_up(self, number: int, priority: int, pusher: int) -> None:
        if pusher:
            chain = (pusher, priority)
            if self.first.setdefault(chain, number) != number:
                self.chains.setdefault(chain, deque()).append(number)
                return
        lane = self.lanes.setdefault(priority, [])
        if not lane or lane[-1] < number:
            lane.append(number)
        elif not self._is_in_lane(number, priority):
            insort(lane, number)

    def line_up_again(self, pipe: Pipe, now_ms: int) -> None:
        """Has a pipe read in its turn that may get items, though it was left out.

        Others of its pusher may have followed it meanwhile: it has its turns beside
        them then. Those that still wait behind another one go on waiting.
        """
        if pipe.kind is PipeKind.DELAYED and pipe.due_ms > now_ms:
            return
        first = self.first.get((pipe.pusher, pipe.priority), pipe.id)
        if pipe.id <= first:
            pusher = pipe.pusher if pipe.id == first else 0
            self._line_up(pipe.id, pipe.priority, pusher)

    def is_lined_up(self, pipe: Pipe) -> bool:
        """Tells whether a pipe may have something to read."""
        return self._is_in_lane(pipe.id, pipe.priority)

    def _is_in_lane(self, number: int, priority: int) -> bool:
        lane = self.lanes.get(priority, [])
        at = bisect_left(lane, number)
        return at < len(lane) and lane[at] == number

    def is_soon_popped(self, pipe: Pipe) -> bool:
        """Tells whether pops take turns over a pipe, or over the one just before it."""
        chain, number = (pipe.pusher, pipe.priority), pipe.id
        waiting = self.chains.get(chain)
        if waiting and waiting[0] == number:
            number = self.first[chain]
        lane = self.lanes.get(pipe.priority, [])
        at, width = bisect_left(lane, number), self.descriptor.max_pop_width
        return at < min(len(lane), width) and lane[at] == number

    def leave_lane(self, number: int, priority: int, pusher: int) -> None:
        """Has a pipe no longer read: all of it was. The next of its pusher follows."""
        lane = self.lanes.get(priority, [])
        if self._is_in_lane(number, priority):
            del lane[bisect_left(lane, number)]
        chain = (pusher, priority)
        if self.first.get(chain) == number:
            del self.first[chain]
            if waiting := self.chains.get(chain):
                following = waiting.popleft()
                if not waiting:
                    del self.chains[chain]
                self._line_up(following, priority, pusher)
        self._leave_if_empty(priority)

    def _leave_if_empty(self, priority: int) -> None:
        if not self.lanes.get(priority):
            self.lanes.pop(priority, None)
            self.turns.pop(priority, None)

    def _skip(self, priority: int, first: int, stop: int | None) -> None:
        """Has pipes at rest no longer read from an id on up to another: all are empty.

        They leave the memory a piece at a time.
        """
        lane = self.lanes[priority]
        stop = self.last_pipe + 1 if stop is None else stop
        begin, end = bisect_left(lane, first), bisect_left(lane, stop)
        lane[begin:end] = [one for one in lane[begin:end] if one in self.pipes]
        self._leave_if_empty(priority)
        self.resting.add_empty(first, stop)
        self.skipped += 1

    def drop(self, pipe: Pipe) -> list[Write]:
        """Rolls the counts of a finished pipe into the totals; returns the writes."""
        self.leave_lane(pipe.id, pipe.priority, pipe.pusher)
        del self.pipes[pipe.id]
        if self.is_unread(pipe.id):
            self.gone_unread.add(pipe.id)
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

    def candidates(self, priority: int, batch: StepBatch) -> Iterator[Pipe]:
        """Yields the pipes of a lane in turn that are not idle, behind the last one.

        Those at rest are read for that. It ends early where it `skipped` empty ones,
        as then all turns are other ones.
        """
        lane, pipes = self.lanes.get(priority, []), self.pipes
        width = self.descriptor.max_pop_width
        ids = lane[:width]
        at = bisect_left(ids, self.turns.get(priority, 0) + 1)
        for part in (ids[at:], ids[:at], itertools.islice(lane, width, None)):
            for number in part:
                if (pipe := pipes.get(number)) is None:
                    batch.wait_here()
                    if (pipe := self._read(priority, number)) is None:
                        return
                if not pipe.is_idle:
                    yield pipe

    def _read(self, priority: int, number: int) -> Pipe | None:
        """Reads a pipe that was at rest; None where it had nothing, and was skipped."""
        if number not in self.resting.rows:
            following = self.source.next_with_items(number)
            if following != number:
                self._skip(priority, number, following)
                return None
        if (pipe := self.pipe(number)) is None:  # it is gone
            self._skip(priority, number, number + 1)
        return pipe
