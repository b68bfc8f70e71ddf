"""Shows the items of a queue to people: those that wait, are in work, or are dead."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import attrs

from txaware.errors import reported
from txaware.model.messages import MessageId
from txaware.model.queues import MOST_BROWSED_BYTES, ItemState, QueueItem, Waiting
from txaware.service.queue.lease import Lease, LeaseState, item_text
from txaware.service.queue.letter_headers import (
    DELIVERIES,
    ERROR,
    TRACEBACK,
    origin_in,
    without_origin,
)
from txaware.service.queue.pipe import Item, Pipe
from txaware.service.queue.pipe_reader import Judge, PipeReader, headers_of
from txaware.service.queue.queue_state import QueueState
from txaware.store.queue_table import NO_TIME

_WAITING = (LeaseState.WAITING, LeaseState.PARKED)


class FoundItem(NamedTuple):
    """An item that is there, in its pipe; with its lease if it was popped before."""

    id: MessageId
    item: Item
    pipe: Pipe
    lease: Lease | None = None


class ItemBrowser:
    """Reads items and changes nothing; each call comes under the lock of the queue."""

    def __init__(
        self, state: QueueState, reader: PipeReader, judge: Judge, now_ms: int
    ) -> None:
        self._state = state
        self._reader = reader
        self._judge = judge
        self._now_ms = now_ms

    def peek(self, limit: int) -> list[Waiting]:
        """Returns the first items that wait and are due, the oldest first."""
        return [_waiting(found) for found in islice(self._waiting(limit), limit)]

    def items(self, state: ItemState, limit: int) -> list[QueueItem]:
        """Returns the first items in a state, as many as there is room for."""
        if state == "in_work":
            found = self._in_work()
        elif state == "delayed":
            found = self._delayed(limit)
        else:
            found = self._waiting(limit)
        return _within_room(map(_shown, found), limit)

    def letters_of(self, queue: str, limit: int) -> list[QueueItem]:
        """Returns the first dead letters of a queue that wait here."""
        shown = (
            _died(one)
            for one in map(_shown, self._waiting(limit))
            if origin_in(one.headers) == queue
        )
        return _within_room(shown, limit)

    def _waiting(self, limit: int) -> Iterator[FoundItem]:
        """Yields what waits and is due, the oldest first, of as many as are popped."""
        back = self._leased(
            lease
            for lease in self._state.leases.values()
            if lease.state in _WAITING and lease.due_ms <= self._now_ms
        )
        width = max(limit, self._state.descriptor.max_pop_width)
        lanes, chains = self._state.lanes.values(), self._state.chains.values()
        numbers = heapq.nsmallest(width, chain.from_iterable([*lanes, *chains]))
        fresh = [self._unread(pipe) for pipe in self._pipes(numbers)]
        merged = heapq.merge(sorted(back, key=_id), *fresh, key=_id)
        return (
            found
            for found in merged
            if found.item.expires_ms is None or found.item.expires_ms > self._now_ms
        )

    def _in_work(self) -> Iterator[FoundItem]:
        leases = self._state.leases.values()
        in_work = [one for one in leases if one.state is LeaseState.IN_WORK]
        return self._leased(sorted(in_work, key=lambda lease: lease.popped_ms))

    def _delayed(self, limit: int) -> Iterator[FoundItem]:
        back = (
            lease
            for lease in self._state.leases.values()
            if lease.state is LeaseState.WAITING and lease.due_ms > self._now_ms
        )
        first = heapq.nsmallest(limit, self._state.delayed)
        pipes = self._pipes(number for _, number, _ in first)
        unread = chain.from_iterable(map(self._unread, pipes))
        return heapq.merge(
            self._leased(sorted(back, key=lambda lease: lease.due_ms)),
            unread,
            key=_due_ms,
        )

    def _pipes(self, numbers: Iterable[int]) -> Iterator[Pipe]:
        for number in numbers:
            pipe = self._state.pipe(number)
            if pipe is not None and (pipe.waiting > 0 or pipe.takes_pushes):
                yield pipe

    def _unread(self, pipe: Pipe) -> Iterator[FoundItem]:
        known = partial(self._state.known, pipe)
        for item in self._reader.items(pipe, self._judge, known):
            yield FoundItem(item.id, item, pipe)

    def _leased(self, leases: Iterable[Lease]) -> Iterator[FoundItem]:
        for lease in leases:
            item = self._reader.look(lease.pipe.prefix, lease.id)
            if item is not None:
                yield FoundItem(lease.id, item, lease.pipe, lease)


def _id(found: FoundItem) -> MessageId:
    return found.id


def _due_ms(found: FoundItem) -> int:
    return found.pipe.due_ms if found.lease is None else found.lease.due_ms


def _waiting(found: FoundItem) -> Waiting:
    item, lease = found.item, found.lease
    return Waiting(
        item_text(found.pipe.name, item.id),
        item.payload,
        item.key,
        headers_of(item),
        0 if lease is None else lease.deliveries,
        item.id.publish_time_ms,
    )


def _shown(found: FoundItem) -> QueueItem:
    fields = attrs.asdict(_waiting(found), recurse=False)
    lease, due_ms = found.lease, _due_ms(found)
    if lease is None:
        return QueueItem(**fields, due_ms=None if due_ms == NO_TIME else due_ms)
    error, calls = reported(lease.error)
    fields |= {"error": error, "traceback": calls}
    if lease.state is not LeaseState.IN_WORK:
        return QueueItem(**fields, due_ms=due_ms)
    return QueueItem(
        **fields,
        popper=lease.popper,
        since_ms=lease.popped_ms,
        until_ms=None if lease.until_ms == NO_TIME else lease.until_ms,
        transaction=lease.transaction,
    )


def _died(letter: QueueItem) -> QueueItem:
    """Returns a dead letter as the item that died, with what it died of."""
    headers, deliveries = letter.headers, letter.deliveries
    with suppress(ValueError):  # anybody may push any headers
        deliveries = int(headers[DELIVERIES])
    return attrs.evolve(
        letter,
        headers=without_origin(headers),
        deliveries=deliveries,
        error=headers[ERROR].decode(errors="replace"),
        traceback=headers.get(TRACEBACK, b"").decode(errors="replace"),
    )


def _within_room(items: Iterable[QueueItem], limit: int) -> list[QueueItem]:
    found: list[QueueItem] = []
    left = MOST_BROWSED_BYTES
    for one in islice(items, limit):
        left -= len(one.payload)
        if left < 0 and found:
            break
        found.append(one)
    return found
