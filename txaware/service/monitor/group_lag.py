"""Finds how far groups are behind, a bounded number of them at a time."""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

import attrs

from coordinator.transaction import Transaction
from txaware.errors import TopicNotFound
from txaware.keys import MESSAGE
from txaware.messages import Bounds, MessageId
from txaware.service.local import LocalService
from txaware.service.monitor.blocked_topics import Blocker
from txaware.service.monitor.overview_report import GroupOverview
from txaware.service.monitor.turns import Budget, Failures, Remembered, Turns
from txaware.service.monitor.unread import Unread, first_unread
from txaware.service.store_context import StoreContext
from txaware.service.visibility import Visibility
from txaware.store.position_table import PositionTable

LOOKS, ROWS = 300, 50_000
MOST_COUNTED, MOST_COUNTED_BYTES = 1000, 4 << 20

# A group, and a topic that it has a position in.
Pair = tuple[str, str]


class GroupLag:
    """The lag of each group, as found in this round or an earlier one."""

    def __init__(
        self,
        service: LocalService,
        site: StoreContext,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.groups: dict[Pair, GroupOverview] = {}
        self._service = service
        self._table = site.table
        self._positions = PositionTable(site.table)
        self._pairs = Remembered(self._all_pairs, clock_s=clock_s)
        self._ends: dict[Pair, tuple[bytes, MessageId | None]] = {}
        self._unread: dict[Pair, tuple[bytes, bytes, bytes]] = {}
        self._known = None if site.gate is None else site.gate.gave_out
        self._clock_ms = site.clock_ms
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

    def _all_pairs(self) -> set[Pair]:
        return {(group, str(topic)) for group, topic in self._positions.groups()}

    def _forget(self, pair: Pair) -> None:
        self.groups.pop(pair, None)
        self._ends.pop(pair, None)
        self._unread.pop(pair, None)

    def _look(self, pair: Pair, snapshot: Transaction, blocker: Blocker | None) -> int:
        """Looks at one pair; returns how many rows it read."""
        group, topic = pair
        position = self._service.position_seen(group, topic, snapshot)
        if position is None:  # a clean-up may have removed the one it sees, for a newer
            position = self._service.position_seen(group, topic)
        bounds = self._service.bounds(topic)
        start = b"" if bounds.first is None else bounds.first.row_key
        if position is not None:
            start = max(start, position.row_key + b"\0")
        of_topic = self._service.place(topic).topic.prefix
        prefix = MESSAGE + of_topic
        ends, read, known = (start, bounds.last), 0, self.groups.get(pair)
        if known is None or self._ends.get(pair) != ends:
            known, read = self._counted(pair, position, prefix, start, bounds)
        waits_for = None
        if blocker is not None and not self._table.scan(
            prefix, start=start, stop=blocker.row_key, limit=1
        ):
            waits_for = blocker.pointer
        unread = self._first_unread(pair, of_topic, snapshot, start, bounds)
        self._ends[pair] = ends
        self.groups[pair] = attrs.evolve(
            known,
            waits_for=waits_for,
            unread_since_ms=unread.since_ms,
            reader_seen_ms=self._service.readers.last_ms(group, topic),
        )
        return read + unread.rows

    def _first_unread(
        self,
        pair: Pair,
        of_topic: bytes,
        snapshot: Transaction,
        start: bytes,
        bounds: Bounds,
    ) -> Unread:
        """Finds the group's next message, from where the last look stopped."""
        before = self._unread.get(pair)
        begin = start
        if before is not None and before[0] == of_topic and before[1] <= start:
            begin = max(start, before[2])
        if bounds.last is None or begin > bounds.last.row_key:
            return Unread(begin, None, 0)  # mostly, and without a look
        unread = first_unread(
            self._table,
            of_topic,
            Visibility(snapshot, self._known),
            start=begin,
            stop=bounds.next.row_key,
            now_ms=self._clock_ms(),
        )
        self._unread[pair] = (of_topic, start, unread.key)
        return unread

    def _counted(
        self,
        pair: Pair,
        position: MessageId | None,
        prefix: bytes,
        start: bytes,
        bounds: Bounds,
    ) -> tuple[GroupOverview, int]:
        rows = self._table.scan(
            prefix,
            start=start,
            stop=bounds.next.row_key,
            limit=MOST_COUNTED + 1,
            max_bytes=MOST_COUNTED_BYTES,
        )
        count, lag_ms, has_more = min(len(rows), MOST_COUNTED), 0, False
        if rows and bounds.last is not None:
            since_ms = int.from_bytes(rows[0][0][:8], "big")
            read_ms = since_ms if position is None else position.publish_time_ms
            lag_ms = max(0, bounds.last.publish_time_ms - read_ms)
            has_more = len(rows) > count or rows[-1][0] < bounds.last.row_key
        group, topic = pair
        return GroupOverview(
            group, topic, position, lag_ms, count, has_more, None, None
        ), len(rows)
