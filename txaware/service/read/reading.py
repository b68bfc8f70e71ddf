"""Polls and waits: the read side of the service."""

import time
from collections.abc import Callable

import attrs

from coordinator.transaction import Transaction
from txaware.errors import Unavailable
from txaware.interfaces import COMMITTED, UNCOMMITTED
from txaware.keys import row_key
from txaware.messages import Bounds, MessageId, Page
from txaware.requests import Start, checked_wait_s
from txaware.service.read.scan import CachedRows, Messages, Query, Scan
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.visibility import NoJudge, Visibility
from txaware.store.message_table import MessageTable
from txaware.store.payload_table import PayloadTable

# A blocked reader looks again after this time: a time-out, for example, wakes nobody.
LOOK_AGAIN_S = 1.0
UNBLOCKED_S = 60.0
# A coordinator elsewhere wakes nobody: looks are this close at first, then less so.
FIRST_PAUSE_S, SLOWER = 0.005, 1.5

_NO_JUDGE = NoJudge()


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
        self, site: StoreContext, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._messages = MessageTable(site.table)
        self._rows = CachedRows(self._messages, site.cache)
        self._payloads = PayloadTable(site.table)
        self._coordinator = site.coordinator
        self._gate = site.gate
        self._strangers = site.strangers
        self._settings = site.settings
        self._clock_ms = site.clock_ms
        self._clock_s = clock_s
        self._closed = False

    def poll(self, place: Callable[[], TopicHandle], ask: Ask, wait_s: float) -> Page:
        """Waits up to `wait_s` for a first message; returns the page, and counts it."""
        page, scan, took_s = self.wait(place, ask, wait_s)
        scan.place.counters.polled(scan.count, scan.size_bytes, took_s)
        return Page(
            page,
            next_id=scan.next,
            blocked_by=scan.blocked_by,
            skipped_before=scan.skipped_before,
        )

    def wait(
        self, place: Callable[[], TopicHandle], ask: Ask, wait_s: float
    ) -> tuple[Messages, Scan, float]:
        """Looks until a message is there or time is up; returns the last look.

        That is its messages, its scan, and how long it took. `place` is called at
        every look, as the topic may change meanwhile.
        """
        until_s, pause_s = self._clock_s() + checked_wait_s(wait_s), FIRST_PAUSE_S
        woken = False
        while True:
            here, found = place(), Messages()
            began_s = time.perf_counter()
            scan = self.begin(here, ask, woken=woken)
            scan.read(found)
            left_s = until_s - self._clock_s() if wait_s and not found else 0
            if left_s <= 0:
                return found, scan, time.perf_counter() - began_s
            pause_s = self.pause_s(scan, pause_s)
            here.writer.signal.wait(scan.seen, min(left_s, pause_s))
            woken = here.writer.signal.count != scan.seen

    def begin(self, place: TopicHandle, ask: Ask, *, woken: bool = False) -> Scan:
        """Begins one look at a topic, as it is now.

        Who was `woken` looks at something new.
        """
        if self._closed:
            raise Unavailable("the messaging service is closed")
        seen = place.writer.signal.count  # first: what comes later is not missed
        judge: Visibility | None = _NO_JUDGE
        if ask.isolation == COMMITTED and ask.transaction is None:
            query, judge = self._committed(place, ask, woken=woken)
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
            strangers=self._strangers,
            is_over=judge is None,
        )

    def _committed(
        self, place: TopicHandle, ask: Ask, *, woken: bool
    ) -> tuple[Query, Visibility | None]:
        """Returns a range and a judge by a fresh snapshot; no judge of no rows.

        First the snapshot, then the rows: one that was rolled back between the two
        would be delivered.
        """
        if woken and self._gate is not None:
            judge = self.judge(None)
            return self._query(place, ask), judge
        query = self._query(place, ask)
        if self._rows.is_empty(query):
            return query, None
        judge = self.judge(None)
        return attrs.evolve(query, stop=place.writer.mark()), judge

    def pause_s(self, scan: Scan, last_s: float) -> float:
        """Returns how long to wait for a signal after a look that found nothing.

        Only a publish is sure to signal. A blocked reader looks again, more and more
        slowly where the coordinator is elsewhere.
        """
        if scan.blocked_by is None:
            return UNBLOCKED_S
        if self._gate is not None:
            return LOOK_AGAIN_S
        return min(last_s * SLOWER, LOOK_AGAIN_S)

    def bounds(self, place: TopicHandle) -> Bounds:
        """Returns the first and last row within the time to live, and the next id."""
        mark, prefix = place.writer.mark(), place.topic.prefix
        start = row_key(self._bound_ms(place))
        first = self._messages.first(prefix, start=start, stop=mark)
        last = first and self._messages.last(prefix, start=start, stop=mark)
        return Bounds(
            MessageId.of_row(first[0]) if first else None,
            MessageId.of_row(last[0]) if last else None,
            MessageId.of_row(mark),
        )

    def judge(self, transaction: Transaction | None) -> Visibility:
        """Returns a judge by that snapshot, or by a fresh one."""
        gate = self._gate
        if transaction is not None:
            return Visibility(transaction, lost=None if gate is None else gate.was_lost)
        known = None if gate is None else gate.gave_out
        return Visibility(self._coordinator.snapshot(), known)

    def close(self) -> None:
        """Refuses all later looks; a reader that waits fails at its next one."""
        self._closed = True

    def _bound_ms(self, place: TopicHandle) -> int:
        return max(0, self._clock_ms() - place.topic.ttl_ms)

    def _query(self, place: TopicHandle, ask: Ask) -> Query:
        stop = place.writer.mark()
        settings, bound_ms = self._settings, self._bound_ms(place)
        start, inclusive, skipped_before = ask.start, ask.inclusive, None
        if start is None:
            start = 0
        if not isinstance(start, MessageId):
            start, inclusive = MessageId.of(start), True
        bound = MessageId.of(bound_ms)
        before = start.before() if inclusive else start
        if start < bound:
            skipped_before = None if ask.start is None else bound_ms
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
        )
