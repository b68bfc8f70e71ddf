"""Polls and waits: the read side of the service."""

import time
from collections.abc import Callable, Iterable
from typing import cast

import attrs

from coordinator.pointers import NO_RANGES
from coordinator.transaction import Transaction
from txaware.errors import closed
from txaware.model.interfaces import COMMITTED, UNCOMMITTED
from txaware.model.latest import LatestPage
from txaware.model.messages import (
    NO_PAYLOAD_ROW,
    Bounds,
    Message,
    MessageId,
    Page,
    in_partition,
    in_runs,
    page_of,
)
from txaware.model.requests import Start, check_places, checked_wait_s, place_in
from txaware.service.read.committed_bounds import CommittedBounds
from txaware.service.read.keyed_rows import KeyedRows
from txaware.service.read.partition_scan import PartitionScan
from txaware.service.read.scan import (
    READ_ROWS,
    CachedRows,
    Messages,
    Query,
    Scan,
    first_key,
)
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import PartitionedTopic, Place, TopicHandle
from txaware.service.visibility import NoJudge, Visibility
from txaware.store.columns import RECEIPTS, decode, decode_receipts, is_reference
from txaware.store.keys import row_key
from txaware.store.message_table import MessageTable
from txaware.store.payload_table import PayloadTable, StoredPayloads

# A blocked reader looks again after this time: a time-out, for example, wakes nobody.
LOOK_AGAIN_S = 1.0
UNBLOCKED_S = 60.0
# A coordinator elsewhere wakes nobody: looks are this close at first, then less so.
FIRST_PAUSE_S, SLOWER = 0.005, 1.5

# A piece of the newest messages by key is made of so many times a page's messages.
LOOKED_AT = 10

_NO_JUDGE = NoJudge()
# A look at a topic, or at all partitions of one.
AnyScan = Scan | PartitionScan


@attrs.frozen
class Ask:
    """The arguments of a poll, checked."""

    start: Start
    inclusive: bool
    limit: int
    transaction: Transaction | None = None
    isolation: str = UNCOMMITTED


class Reading:
    """Makes pages, and waits for something to be in them."""

    def __init__(
        self,
        store_context: StoreContext,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._messages = MessageTable(store_context.table)
        self._rows = CachedRows(self._messages, store_context.cache)
        self._payloads = PayloadTable(store_context.table)
        self._keyed = KeyedRows(self._messages, self._payloads)
        self._compaction = store_context.compaction
        self._committed = CommittedBounds(
            store_context.table, store_context.foreign_pointers
        )
        self._coordinator = store_context.coordinator
        self._barrier = store_context.barrier
        self._foreign_pointers = store_context.foreign_pointers
        self._settings = store_context.settings
        self._clock_ms = store_context.clock_ms
        self._clock_s = clock_s
        self._closed = False

    def poll(self, place: Callable[[], Place], ask: Ask, wait_s: float) -> Page:
        """Waits up to `wait_s` for a first message; returns the page, and counts it."""
        page, scan, took_s = self.wait(place, ask, wait_s)
        here = scan.place
        here.counters.polled(scan.count, scan.size_bytes, took_s)
        if isinstance(here, PartitionedTopic):
            return page_of(in_runs(page, scan.end.runs), scan.end)
        return page_of(page, scan.end)

    def wait(
        self, place: Callable[[], Place], ask: Ask, wait_s: float
    ) -> tuple[Messages, AnyScan, float]:
        """Looks until a message is there or time is up; returns the last look.

        That is its messages, its scan, and how long it took. `place` is called at
        every look, as the topic may change meanwhile.
        """
        until_s, pause_s = self._clock_s() + checked_wait_s(wait_s), FIRST_PAUSE_S
        woken = False
        while True:
            here, found = place(), Messages()
            found.partition = here.number
            began_s = time.perf_counter()
            scan = self.begin(here, ask, woken=woken)
            scan.read(found)
            left_s = until_s - self._clock_s() if wait_s and not found else 0
            if left_s <= 0:
                return found, scan, time.perf_counter() - began_s
            pause_s = self.pause_s(scan, pause_s)
            here.signal.wait(scan.seen, min(left_s, pause_s))
            woken = here.signal.count != scan.seen

    def begin(self, place: Place, ask: Ask, *, woken: bool = False) -> AnyScan:
        """Begins one look at a topic, as it is now.

        Who was `woken` looks at something new.
        """
        if self._closed:
            raise closed()
        if isinstance(ask.start, dict):
            check_places(ask.start, most=place.topic.partitions)
        if isinstance(place, PartitionedTopic):
            return self._begin_all(place, ask)
        seen = place.writer.signal.count  # first: what comes later is not missed
        judge: Visibility | None = _NO_JUDGE
        if ask.isolation == COMMITTED and ask.transaction is None:
            query, judge = self._judged_now(place, ask, woken=woken)
        else:
            query = self._query(place, ask)
            if ask.transaction is not None:
                judge = self.judge(ask.transaction)
        return Scan(
            self._rows,
            self._payloads,
            place,
            query,
            judge or _NO_JUDGE,
            seen=seen,
            foreign_pointers=self._foreign_pointers,
            is_over=judge is None,
            is_judged=judge is not _NO_JUDGE,
        )

    def _begin_all(self, place: PartitionedTopic, ask: Ask) -> PartitionScan:
        """Begins one look at all partitions, which one snapshot judges.

        None is taken where no partition has a row to be judged.
        """
        seen = place.signal.count
        queries = {part.number: self._query(part, ask) for part in place.handles()}
        judge: Visibility | None = _NO_JUDGE
        if ask.transaction is not None:
            judge = self.judge(ask.transaction)
        elif ask.isolation == COMMITTED:
            is_empty = all(map(self._rows.is_empty, queries.values()))
            # First the snapshot, then the rows, as in `_judged_now`.
            judge = None if is_empty else self.judge(None)

        def begin(number: int, *, messages: int, size_bytes: int) -> Scan:
            here, query = place.at(number), queries[number]
            return Scan(
                self._rows,
                self._payloads,
                here,
                attrs.evolve(
                    query,
                    stop=query.stop if judge is None else here.writer.mark(),
                    limit=min(query.limit, messages),
                    limit_bytes=max(1, min(query.limit_bytes, size_bytes)),
                ),
                judge or _NO_JUDGE,
                seen=seen,
                foreign_pointers=self._foreign_pointers,
                is_over=judge is None,
                is_judged=judge is not _NO_JUDGE,
            )

        settings = self._settings
        return PartitionScan(
            place,
            {number: query.before for number, query in queries.items()},
            begin,
            seen=seen,
            limit=min(ask.limit, settings.poll_limit_messages),
            limit_bytes=settings.poll_limit_bytes,
        )

    def _judged_now(
        self, place: TopicHandle, ask: Ask, *, woken: bool
    ) -> tuple[Query, Visibility | None]:
        """Returns a range and a judge by a fresh snapshot; no judge of no rows.

        First the snapshot, then the rows: one that was rolled back between the two
        would be delivered.
        """
        if woken and self._barrier is not None:
            judge = self.judge(None)
            return self._query(place, ask), judge
        query = self._query(place, ask)
        if self._rows.is_empty(query):
            return query, None
        judge = self.judge(None)
        return attrs.evolve(query, stop=place.writer.mark()), judge

    def pause_s(self, scan: AnyScan, last_s: float) -> float:
        """Returns how long to wait for a signal after a look that found nothing.

        Only a publish is sure to signal. A blocked reader looks again, more and more
        slowly where the coordinator is elsewhere.
        """
        if scan.blocked_by is None:
            return UNBLOCKED_S
        if self._barrier is not None:
            return LOOK_AGAIN_S
        return min(last_s * SLOWER, LOOK_AGAIN_S)

    def forget(self) -> None:
        """Looks at all rows anew, as another process had some."""
        self._committed.forget()

    def bounds(self, place: TopicHandle, start: Start) -> Bounds:
        """Returns the first and last row within the time to live, and the next id."""
        start = place.start_in(start)
        mark, prefix = place.writer.mark(), place.topic.prefix
        least = max(row_key(self._bound_ms(place)), self._least_key(prefix, start))
        first = self._messages.first(prefix, start=least, stop=mark)
        last = first and self._messages.last(prefix, start=least, stop=mark)
        found = Bounds(
            MessageId.of_row(first[0]) if first else None,
            MessageId.of_row(last[0]) if last else None,
            MessageId.of_row(mark),
        )
        return _from(start, found)

    def offset(
        self, place: TopicHandle, at: str | int, snapshot: Transaction | None
    ) -> MessageId | None:
        """Returns the id of a message in a partition; see `MessagingService.offsets`.

        `snapshot` is the one that judges all partitions, for `"stable"`.
        """
        if at == "stable":
            stable = self.committed_bounds(place, None, snapshot).next
            return self._last_before(place, stable.row_key)
        if at == "last":
            return self._last_before(place, place.writer.mark())
        found = Messages()
        start = None if at == "first" else cast(int, at)
        self.begin(place, Ask(start, inclusive=True, limit=1)).read(found)
        return found[0].id if found else None

    def _last_before(self, place: TopicHandle, stop: bytes) -> MessageId | None:
        """Returns the last message before a row, within the time to live."""
        prefix, bound = place.topic.prefix, row_key(self._bound_ms(place))
        while (row := self._messages.last(prefix, start=bound, stop=stop)) is not None:
            columns = decode(row[1])
            if columns.payload is not None:
                return MessageId.of_row(row[0])
            receipts = columns.more.get(RECEIPTS)
            stored = self._payloads.payloads(
                prefix,
                abs(columns.pointer or 0),
                start=b"",
                attempts=None if receipts is None else decode_receipts(receipts),
                now_ms=self._clock_ms(),
                piece=READ_ROWS,
            )
            if (last := _last_key(stored)) is not None:
                return MessageId(row[0] + last)
            stop = row[0]
        return None

    def committed_bounds(
        self, place: TopicHandle, start: Start, snapshot: Transaction | None
    ) -> Bounds:
        """Returns the same as a committed reader, with that snapshot or a fresh one."""
        start = place.start_in(start)
        mark, prefix = place.writer.mark(), place.topic.prefix
        bound = row_key(self._bound_ms(place))
        if snapshot is None:  # behind the mark: all rows before it are then decided
            if self._messages.first(prefix, start=bound, stop=mark) is None:
                return Bounds(None, None, MessageId.of_row(mark))
            snapshot = self._coordinator.snapshot()
        found = self._committed.find(
            prefix,
            snapshot,
            self._judge_by(snapshot),
            bound=bound,
            start=self._least_key(prefix, start),
            stop=mark,
        )
        return _from(start, found)

    def latest(
        self, place: TopicHandle, start: MessageId | None, snapshot: Transaction | None
    ) -> LatestPage:
        """Reads a piece behind `start`; with its own snapshot it misses no removal."""
        while True:
            if self._closed:
                raise closed()
            removals = self._compaction.removals
            page = self._latest(place, start, self.judge(snapshot))
            if snapshot is not None or removals == self._compaction.removals:
                return page

    def _latest(
        self, place: TopicHandle, start: MessageId | None, judge: Visibility
    ) -> LatestPage:
        now_ms = self._clock_ms()
        bound = MessageId.of(place.topic.live_from_ms(now_ms)).before()
        begin = bound if start is None else max(start, bound)
        left = LOOKED_AT * self._settings.poll_limit_messages
        left_bytes = self._settings.poll_limit_bytes
        found: dict[bytes, Message] = {}
        gone: set[bytes] = set()
        last = begin
        for row in self._keyed.walk(
            place.prefix, judge, start=begin, stop=place.writer.mark()
        ):
            for message, expiry_ms in row.messages:
                last = message.id
                left, left_bytes = left - 1, left_bytes - message.size_bytes
                key = message.key
                if key is not None:
                    found.pop(key, None)
                    gone.discard(key)
                    if expiry_ms is None or expiry_ms > now_ms:
                        found[key] = message
                    else:
                        gone.add(key)
                if left <= 0 or left_bytes <= 0:
                    messages = in_partition(found.values(), place.number)
                    return LatestPage(messages, sorted(gone), last, False)
            last = MessageId.after_payloads(row.key)
            left -= 1
        messages = in_partition(found.values(), place.number)
        return LatestPage(messages, sorted(gone), last, True)

    def snapshot(self) -> Transaction:
        """Returns a fresh snapshot of the coordinator."""
        return self._coordinator.snapshot()

    def judge(self, transaction: Transaction | None) -> Visibility:
        """Returns a judge by that snapshot, or by a fresh one."""
        barrier = self._barrier
        if transaction is not None:
            return Visibility(
                transaction, lost=NO_RANGES if barrier is None else barrier.lost
            )
        return self._judge_by(self._coordinator.snapshot())

    def _judge_by(self, snapshot: Transaction) -> Visibility:
        """Returns a judge by a snapshot of this process's own coordinator."""
        return Visibility(
            snapshot, None if self._barrier is None else self._barrier.reaches
        )

    def close(self) -> None:
        """Refuses all later looks; a reader that waits fails at its next one."""
        self._closed = True

    def _least_key(self, prefix: bytes, start: MessageId | int | None) -> bytes:
        """Returns the least key of a row that may have a message from a start on."""
        if not isinstance(start, MessageId):
            return row_key(start or 0)
        least = first_key(start)
        if start.payload_key == NO_PAYLOAD_ROW:
            return least
        behind = least + b"\0"
        row = self._messages.first(prefix, start=least, stop=behind)
        return behind if row is not None and not is_reference(row[1]) else least

    def _bound_ms(self, place: TopicHandle) -> int:
        return place.topic.live_from_ms(self._clock_ms())

    def _query(self, place: TopicHandle, ask: Ask) -> Query:
        stop = place.writer.mark()
        settings, bound_ms = self._settings, self._bound_ms(place)
        requested, inclusive = place_in(ask.start, place.number), ask.inclusive
        start, skipped_before = requested, None
        if not isinstance(start, MessageId):
            start, inclusive = MessageId.of(start or 0), True
        bound = MessageId.of(bound_ms)
        before = start.before() if inclusive else start
        if start < bound:
            skipped_before = None if requested is None else bound_ms
            start, inclusive = bound, True
        now_ms = self._clock_ms()
        judged = ask.transaction is not None or ask.isolation == COMMITTED
        grace_ms = int(settings.prune_grace_s * 500)
        return Query(
            place.prefix,
            before,
            start,
            inclusive,
            stop,
            min(ask.limit, settings.poll_limit_messages),
            settings.poll_limit_bytes,
            now_ms,
            row_key(max(0, now_ms - grace_ms)) if judged else b"",
            skipped_before,
            self._keyless_from(place, now_ms),
        )

    def _keyless_from(self, place: TopicHandle, now_ms: int) -> bytes:
        """Returns the row key before which a message without a key has expired."""
        topic = place.topic
        return row_key(topic.keyless_from_ms(now_ms)) if topic.is_compact else b""


def _last_key(stored: Iterable[StoredPayloads]) -> bytes | None:
    last = None
    for piece in stored:
        last = piece.keys[-1] if len(piece) else last
    return last


def _from(start: MessageId | int | None, found: Bounds) -> Bounds:
    """Moves the ends to a start inside of a reference, which its row is before."""
    if not isinstance(start, MessageId) or found.first is None or found.last is None:
        return found
    first, last = max(start, found.first), max(start, found.last)
    return attrs.evolve(found, first=first, last=last)
