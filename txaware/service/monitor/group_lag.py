"""Tells where groups stand, each in full or many of them a bounded part at a time."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import attrs

from coordinator.transaction import Transaction
from txaware.errors import TopicNotFound
from txaware.model.interfaces import OrderedTable, Row
from txaware.model.markers import PRODUCERS, counts_tries, is_marker
from txaware.model.messages import Bounds, MessageId
from txaware.model.partitions import parsed_rows
from txaware.service.local import LocalService
from txaware.service.monitor.blocked_topics import Blocker
from txaware.service.monitor.overview_report import GroupOverview
from txaware.service.monitor.turns import Budget, Failures, Remembered, Turns
from txaware.service.monitor.unread import MOST_ROWS, FirstUnread, first_unread
from txaware.service.store_context import StoreContext
from txaware.service.visibility import Visibility
from txaware.store.keys import MESSAGE, POSITION
from txaware.store.kinds import POSITIONS, Place
from txaware.store.packed_rows import count_messages
from txaware.store.versioned_rows import VersionedRows, without_pointer

LOOKS, ROWS = 300, 50_000
MOST_COUNTED, MOST_COUNTED_BYTES = 1000, 4 << 20

# A group, and a topic that it has a position in.
Pair = tuple[str, str]


def group_places(table: OrderedTable) -> Iterator[Place]:
    """Lists every group and topic that has a position, with one look for each.

    Markers are left out, since no consumer has them.
    """
    stop = PRODUCERS.encode("ascii")
    rows = VersionedRows(table).first_of_each(POSITION, without_pointer, stop=stop)
    for key, version in rows:
        place, position = POSITIONS.row(key, version)
        is_of_tries = position is not None and counts_tries(position)
        if not is_marker(place[0]) and not is_of_tries:
            yield place


@attrs.frozen
class GroupState:
    """A group in a topic: what it has read, what there is, and who reads for it.

    `bounds` are those of committed readers, as groups are. `prefix` is that of the
    topic as it is now. `reader_seen_ms` is when somebody last read for the group, or
    since when nobody did.
    """

    group: str
    topic: str
    position: MessageId | None
    bounds: Bounds
    prefix: bytes
    reader_seen_ms: int

    @property
    def start(self) -> bytes:
        """The key that the rows which it has yet to read begin with, at the least."""
        first = (self.bounds.first or self.bounds.next).row_key
        if self.position is None:
            return first
        return max(first, self.position.row_key + b"\0")

    @property
    def stop(self) -> bytes:
        """The key before which all these rows are."""
        return self.bounds.next.row_key

    @property
    def lag_ms(self) -> int:
        """The time from what it read to the last committed message; 0 at its end.

        Where it has read nothing of what is there, it is that from the first message.
        """
        first, last = self.bounds.first, self.bounds.last
        if first is None or last is None:
            return 0
        read = first if self.position is None else max(first, self.position)
        return max(0, last.publish_time_ms - read.publish_time_ms)

    def has_read(self, key: bytes) -> bool:
        """Tells whether there is no row from that key on."""
        return self.bounds.last is None or key > self.bounds.last.row_key


class GroupStates:
    """Finds the state of a group, and the rows that it has yet to read.

    Who looks at many again and again has `bounds` of topics that it remembers.
    """

    def __init__(
        self,
        service: LocalService,
        store_context: StoreContext,
        bounds: Callable[[str, Transaction | None], Bounds] | None = None,
    ) -> None:
        self._service = service
        self._bounds = service.bounds_seen if bounds is None else bounds
        self._table = store_context.table
        self._known = (
            None if store_context.barrier is None else store_context.barrier.reaches
        )
        self._clock_ms = store_context.clock_ms

    def state(
        self, group: str, topic: str, *, seen_by: Transaction | None = None
    ) -> GroupState:
        """Returns the state, with the position as a snapshot sees it, or a new one."""
        position = self._service.position_seen(group, topic, seen_by)
        if position is None and seen_by is not None:
            # A clean-up may have removed the one that it sees, for a newer one.
            position = self._service.position_seen(group, topic)
        return GroupState(
            group,
            topic,
            position,
            self._bounds(topic, seen_by),
            self._service.place(topic).topic.prefix,
            self._service.readers.last_ms(group, str(parsed_rows(topic))),
        )

    def rows_left(self, state: GroupState, *, most: int, most_bytes: int) -> list[Row]:
        """Reads the rows that it has yet to read, rolled back too, up to a bound."""
        return self._table.scan(
            MESSAGE + state.prefix,
            start=state.start,
            stop=state.stop,
            limit=most,
            max_bytes=most_bytes,
        )

    def waits_for(self, state: GroupState, blocker: Blocker | None) -> int | None:
        """Returns the pointer of the row that would be its next, if that blocks it."""
        if blocker is None or self._table.scan(
            MESSAGE + state.prefix, start=state.start, stop=blocker.row_key, limit=1
        ):
            return None
        return blocker.pointer

    def first_unread(
        self, state: GroupState, snapshot: Transaction, *, start: bytes
    ) -> FirstUnread:
        """Looks from `start` on for its next message, at a bounded number of rows."""
        return first_unread(
            self._table,
            state.prefix,
            Visibility(snapshot, self._known),
            start=start,
            stop=state.stop,
            now_ms=self._clock_ms(),
        )

    def oldest_unread_ms(
        self, state: GroupState, snapshot: Transaction, *, most: int
    ) -> int:
        """Returns the age of its next message; 0 if none is among the first `most`."""
        start = state.start
        for _ in range(most // MOST_ROWS):
            if state.has_read(start):
                break
            unread = self.first_unread(state, snapshot, start=start)
            if unread.since_ms is not None:
                return max(0, self._clock_ms() - unread.since_ms)
            if unread.key == start:
                break
            start = unread.key
        return 0


class GroupRounds:
    """The state of each group, as found in this round or an earlier one."""

    def __init__(
        self,
        states: GroupStates,
        all_pairs: Callable[[], Collection[Pair]],
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.groups: dict[Pair, GroupOverview] = {}
        self._states = states
        self._pairs = Remembered(all_pairs, clock_s=clock_s)
        self._ends: dict[Pair, tuple[bytes, MessageId | None]] = {}
        self._unread: dict[Pair, tuple[bytes, bytes, bytes]] = {}
        self._turns = Turns()

    @property
    def pairs(self) -> Collection[Pair]:
        """All pairs, also those whose turn has not come yet."""
        return self._pairs()

    def look(
        self,
        pairs: Collection[Pair],
        snapshot: Transaction,
        blockers: Mapping[str, Blocker],
        failures: Failures,
    ) -> None:
        """Looks at pairs in turn; the snapshot decides which positions they have."""
        for gone in self.groups.keys() - set(pairs):
            self._forget(gone)
        budget = Budget(looks=LOOKS, rows=ROWS)
        for pair in self._turns.of(pairs):
            if budget.is_spent:
                break
            look = partial(self._look, pair, snapshot, blockers.get(pair[1]))
            try:
                read = failures.attempt("group_lags", look, None)
            except TopicNotFound:
                read = None
            if read is None:
                self._forget(pair)
            budget.spend(read or 0)

    def by_topic(self) -> dict[str, int]:
        """Returns the lag of the slowest group of each topic, in rows."""
        slowest: dict[str, int] = {}
        for found in self.groups.values():
            slowest[found.topic] = max(slowest.get(found.topic, 0), found.rows)
        return slowest

    def _forget(self, pair: Pair) -> None:
        self.groups.pop(pair, None)
        self._ends.pop(pair, None)
        self._unread.pop(pair, None)

    def _look(self, pair: Pair, snapshot: Transaction, blocker: Blocker | None) -> int:
        """Looks at one pair; returns how many rows it read."""
        state = self._states.state(*pair, seen_by=snapshot)
        ends, known = (state.start, state.bounds.last), self.groups.get(pair)
        if known is not None and self._ends.get(pair) == ends:
            count, has_more, read = known.rows, known.has_more, 0
        else:
            count, has_more, read = self._count(state)
        unread = self._first_unread(pair, state, snapshot)
        self._ends[pair] = ends
        self.groups[pair] = GroupOverview(
            *pair,
            position=state.position,
            lag_ms=state.lag_ms,
            rows=count,
            has_more=has_more,
            unread_since_ms=unread.since_ms,
            waits_for=self._states.waits_for(state, blocker),
            reader_seen_ms=state.reader_seen_ms,
        )
        return read + unread.rows

    def _count(self, state: GroupState) -> tuple[int, bool, int]:
        """Counts its rows up to a bound; tells if there are more, and what it read."""
        rows = self._states.rows_left(
            state, most=MOST_COUNTED + 1, most_bytes=MOST_COUNTED_BYTES
        )
        left = count_messages(rows, start=state.start)
        count = min(left, MOST_COUNTED)
        has_more = left > count or (
            bool(rows) and not state.has_read(rows[-1][0] + b"\0")
        )
        return count, has_more, len(rows)

    def _first_unread(
        self, pair: Pair, state: GroupState, snapshot: Transaction
    ) -> FirstUnread:
        """Finds the group's next message, from where the last look stopped."""
        before, start = self._unread.get(pair), state.start
        begin = start
        if before is not None and before[0] == state.prefix and before[1] <= start:
            begin = max(start, before[2])
        if state.has_read(begin):
            return FirstUnread(begin, None, 0)  # mostly, and without a look
        unread = self._states.first_unread(state, snapshot, start=begin)
        self._unread[pair] = (state.prefix, start, unread.key)
        return unread
