"""Tells how a queue stands: its counts, its depth, who has jobs; scans no items."""

import heapq
from collections.abc import Iterable, Iterator
from functools import partial

from txaware.model.queues import JobInWork, PipeStats, QueueStats
from txaware.service.queue.lease import LeaseState
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader
from txaware.service.queue.queue_state import QueueState
from txaware.store.queue_table import NO_TIME, PopCounts

# So many jobs and pipes are named at most.
MOST_SHOWN = 100
_WAITING = (LeaseState.WAITING, LeaseState.PARKED)


class Statistics:
    """The counts of a queue; each call comes under its lock."""

    def __init__(self, state: QueueState, reader: PipeReader) -> None:
        self._state = state
        self._reader = reader

    def stats(self, judge: Judge, now_ms: int) -> QueueStats:
        """Adds up the pipes, and the totals of those that are gone."""
        state, counts = self._state, PopCounts()
        counts.add(state.totals)
        counts.add(state.resting.counts)
        pushed, in_work = state.pushed_before + state.resting.pushed, 0
        for pipe in state.pipes.values():
            counts.add(pipe.counts)
            pushed += pipe.pushed
            in_work += pipe.leased
        depth = max(0, pushed - counts.removed - in_work)
        oldest_ms = self._oldest_ms(judge, now_ms) if depth else None
        age_ms = 0 if oldest_ms is None else max(0, now_ms - oldest_ms)
        minute, covers_s = state.meter.totals(now_ms), state.meter.covers_s(now_ms)
        return QueueStats(
            pushed=pushed,
            popped=counts.popped,
            committed=counts.committed,
            rolled_back=counts.rolled_back,
            expired_leases=counts.expired_leases,
            expired=counts.expired,
            dead_letters=counts.dead,
            depth=depth,
            delayed=self._delayed(now_ms),
            in_work=in_work,
            oldest_age_s=age_ms / 1000,
            pipes=state.pipe_count,
            open_pipes=sum(pipe.is_open for pipe in state.pipes.values()),
            is_paused=state.descriptor.is_paused,
            pushed_per_s=minute.pushed / covers_s,
            popped_per_s=minute.popped / covers_s,
            committed_per_s=minute.committed / covers_s,
            average_wait_s=_average_s(minute.waited_ms, minute.first_popped),
            average_work_s=_average_s(minute.worked_ms, minute.committed),
            jobs=self._jobs(),
            oldest_pipes=tuple(
                _pipe_stats(pipe, now_ms) for pipe in state.oldest(MOST_SHOWN)
            ),
        )

    def _jobs(self) -> tuple[JobInWork, ...]:
        """Returns the jobs that are longest in work, of all that are."""
        in_work = (
            lease
            for lease in self._state.leases.values()
            if lease.state is LeaseState.IN_WORK
        )
        longest = heapq.nsmallest(MOST_SHOWN, in_work, key=lambda one: one.popped_ms)
        return tuple(
            JobInWork(
                lease.text,
                lease.popper,
                lease.popped_ms,
                None if lease.until_ms == NO_TIME else lease.until_ms,
                lease.deliveries,
                lease.transaction,
            )
            for lease in longest
        )

    def _delayed(self, now_ms: int) -> int:
        in_memory, pipes = self._state.pipes, sum(self._state.resting.later.values())
        for _, number, _ in self._state.delayed:
            if number in in_memory:
                pipes += in_memory[number].waiting
        leases = self._state.leases.values()
        return pipes + sum(
            lease.state is LeaseState.WAITING and lease.due_ms > now_ms
            for lease in leases
        )

    def _oldest_ms(self, judge: Judge, now_ms: int) -> int | None:
        """Returns the time of the oldest push that waits and is due."""
        oldest_ms = min(
            (
                lease.id.publish_time_ms
                for lease in self._state.leases.values()
                if lease.state in _WAITING and lease.due_ms <= now_ms
            ),
            default=None,
        )
        for pipe in self._lined_up():
            if oldest_ms is not None and pipe.created_ms >= oldest_ms:
                break
            first = next(self._items(pipe, judge), None)
            if first is not None:
                time_ms = first.id.publish_time_ms
                oldest_ms = time_ms if oldest_ms is None else min(oldest_ms, time_ms)
        return oldest_ms

    def _items(self, pipe: Pipe, judge: Judge) -> Iterator[Item]:
        return self._reader.items(pipe, judge, partial(self._state.known, pipe))

    def _lined_up(self) -> Iterator[Pipe]:
        """Yields the pipes that may have something due, the oldest first."""
        lanes, chains = self._state.lanes.values(), self._state.chains.values()
        return self._read(heapq.merge(*lanes, *chains))

    def _read(self, numbers: Iterable[int]) -> Iterator[Pipe]:
        for number in numbers:
            pipe = self._state.pipe(number)
            if pipe is not None and (pipe.waiting > 0 or pipe.takes_pushes):
                yield pipe


def _average_s(whole_ms: int, count: int) -> float:
    return whole_ms / count / 1000 if count else 0.0


def _pipe_stats(pipe: Pipe, now_ms: int) -> PipeStats:
    counts = pipe.counts
    return PipeStats(
        pipe.id,
        _state_of(pipe, now_ms),
        pipe.created_ms,
        pipe.priority,
        pipe.pushed,
        counts.popped,
        counts.committed,
        counts.rolled_back,
        max(0, pipe.waiting),
        pipe.leased,
    )


def _state_of(pipe: Pipe, now_ms: int) -> str:
    if pipe.due_ms > now_ms:
        return "delayed"
    if pipe.takes_pushes:
        return "push active"
    return "push finished" if pipe.waiting > 0 else "finished and empty"
