"""Finds the topics whose committed readers wait for the end of a transaction."""

from collections.abc import Mapping, Set
from functools import partial

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import TopicNotFound
from txaware.model.messages import BlockedBy
from txaware.model.topics import Topic
from txaware.service.local import LocalService
from txaware.service.monitor.turns import Budget, Failures, Turns
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.visibility import STOP, Visibility
from txaware.store.columns import pointer_of
from txaware.store.keys import MESSAGE, row_key

# One round reads no more than that, however many topics there are.
LOOKS, ROWS = 500, 20_000
ROWS_EACH, BYTES_EACH = 1000, 1 << 20
# The clock of a coordinator elsewhere may be that much ahead of ours.
CLOCKS_DIFFER_MS = 60_000
_END = b"\xff" * 10


@attrs.frozen
class Blocker:
    """The row that readers stop at, and the pointer that it was written with."""

    pointer: int
    row_key: bytes

    @property
    def since_ms(self) -> int:
        """The time when that row was published."""
        return int.from_bytes(self.row_key[:8], "big")

    def by(self, transaction_id: int) -> BlockedBy:
        """Returns the same, with the id of its transaction."""
        return BlockedBy(transaction_id, self.since_ms)


@attrs.define
class _Standing:
    """The progress in a topic: all rows before `judged` are decided for good.

    `seen` is what had happened in it before the last look, `has_more` whether there are
    rows that were not read yet. It is finished unless something has to be looked at
    again: those, or a row younger than the snapshot. Where a row `is_sought` whose
    pointer nobody gave out, no row is left out for its age.
    """

    prefix: bytes
    judged: bytes = b""
    seen: int = -1
    has_more: bool = True
    is_finished: bool = False
    is_sought: bool = False
    blocker: Blocker | None = None


class Blocked:
    """Judges every row once, and none that is older than the oldest transaction.

    A row of an open transaction is never published before that began, and only the
    process that asks adds rows. So a round looks at topics where something happened
    since the last one, from where that one stopped. A row whose pointer nobody gave out
    is found where it was written, or where a reader met it, since the store was opened.
    """

    def __init__(self, service: LocalService, store_context: StoreContext) -> None:
        self.blockers: dict[str, Blocker] = {}
        self.unjudged = 0
        self._service = service
        self._table = store_context.table
        self._known = (
            None if store_context.barrier is None else store_context.barrier.reaches
        )
        self._foreign_pointers = service.foreign_pointers
        self._clock_ms = store_context.clock_ms
        self._early_ms = CLOCKS_DIFFER_MS if store_context.barrier is None else 0
        self._turns = Turns()
        self._standings: dict[str, _Standing] = {}

    def look(
        self,
        topics: Mapping[str, Topic],
        touched: Set[str],
        snapshot: Transaction,
        failures: Failures,
    ) -> None:
        """Does a round over `topics`; `touched` are those used in this process.

        Where a topic cannot be read, its last result stays.
        """
        topics = self._all_worth_it(topics, snapshot)
        places = {
            name: failures.attempt("blocked", partial(self._place, name), None)
            for name in touched
            if name in topics
        }
        self._forget_all_but(topics)
        due = [
            name
            for name, topic in topics.items()
            if self._is_due(name, topic, places.get(name), snapshot)
        ]
        least, judge = self._least(snapshot), Visibility(snapshot, self._known)
        budget = Budget(looks=LOOKS, rows=ROWS)
        for name in self._turns.of(due):
            if budget.is_spent:
                break
            standing = self._standings[name]
            ttl_bound = row_key(topics[name].live_from_ms(self._clock_ms()))
            bound = ttl_bound if standing.is_sought else least
            standing.judged = max(standing.judged, bound)
            look = partial(self._look, standing, places.get(name), judge, snapshot)
            budget.spend(failures.attempt("blocked", look, 0))
        standings = self._standings.items()
        self.blockers = {
            name: standing.blocker
            for name, standing in standings
            if standing.blocker and self._blocks(standing.blocker, snapshot)
        }
        self.unjudged = sum([standing.has_more for _, standing in standings])

    def _blocks(self, blocker: Blocker, snapshot: Transaction) -> bool:
        pointer = blocker.pointer
        return pointer in snapshot.in_progress or self._foreign_pointers.has(pointer)

    def _all_worth_it(
        self, topics: Mapping[str, Topic], snapshot: Transaction
    ) -> Mapping[str, Topic]:
        """Returns topics that may be blocked; seeks rows met lately by readers."""
        met = self._foreign_pointers.take()
        for name, topic in topics.items() if met else ():
            key = met.get(topic.prefix)
            if key is not None:
                self._seek(name, topic, key, self._least(snapshot))
        if snapshot.in_progress:
            return topics
        return {
            name: topics[name]
            for name, standing in self._standings.items()
            if standing.is_sought and name in topics
        }

    def _seek(self, name: str, topic: Topic, key: bytes, least: bytes) -> None:
        """Has the topic looked at from that key on, unless an earlier row blocks it."""
        standing = self._standing(name, topic)
        standing.is_sought = True
        if standing.blocker is None or key[:8] < standing.blocker.row_key[:8]:
            standing.judged = min(key, standing.judged or least)
            standing.is_finished = False

    def _least(self, snapshot: Transaction) -> bytes:
        """Returns the key before which no row is of a transaction in progress."""
        first_ms = snapshot.first_in_progress // POINTERS_PER_MS - self._early_ms
        return row_key(max(0, first_ms))

    def _place(self, name: str) -> TopicHandle | None:
        try:
            return self._service.place(name)
        except TopicNotFound:  # deleted a moment ago
            return None

    def _forget_all_but(self, topics: Mapping[str, Topic]) -> None:
        for name in [name for name in self._standings if name not in topics]:
            del self._standings[name]

    def _is_due(
        self, name: str, topic: Topic, place: TopicHandle | None, snapshot: Transaction
    ) -> bool:
        standing = self._standing(name, topic)
        if not standing.is_finished:
            return True
        if place is not None and standing.seen != place.writer.signal.count:
            return True
        blocker = standing.blocker
        if blocker is None or blocker.pointer in snapshot.in_progress:
            return False
        is_expired = blocker.since_ms < topic.live_from_ms(self._clock_ms())
        return is_expired or not self._foreign_pointers.has(blocker.pointer)

    def _standing(self, name: str, topic: Topic) -> _Standing:
        standing = self._standings.get(name)
        if standing is None or standing.prefix != topic.prefix:
            standing = self._standings[name] = _Standing(topic.prefix)
        return standing

    def _look(
        self,
        standing: _Standing,
        place: TopicHandle | None,
        judge: Visibility,
        snapshot: Transaction,
    ) -> int:
        """Goes on to the first undecided row; returns how many rows it read."""
        seen = standing.seen if place is None else place.writer.signal.count
        rows = self._table.scan(
            MESSAGE + standing.prefix,
            start=standing.judged,
            stop=_END if place is None else place.writer.mark(),
            limit=ROWS_EACH,
            max_bytes=BYTES_EACH,
        )
        standing.seen = seen  # only now: what failed has to be looked at again
        standing.blocker, standing.has_more, standing.is_finished = None, False, False
        for key, value in rows:
            pointer = pointer_of(value)
            if judge.verdict(pointer) == STOP:
                standing.judged = key
                # What is not in progress is younger than the snapshot: next time.
                if pointer is not None:
                    blocker = Blocker(pointer, key)
                    if self._blocks(blocker, snapshot):
                        standing.blocker, standing.is_finished = blocker, True
                return len(rows)
        if rows:
            standing.judged = rows[-1][0] + b"\0"
        size_bytes = sum([len(value) for _, value in rows])
        standing.has_more = len(rows) >= ROWS_EACH or size_bytes >= BYTES_EACH
        standing.is_finished = not standing.has_more
        standing.is_sought = standing.is_sought and standing.has_more
        return len(rows)
