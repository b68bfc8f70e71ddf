"""Removes expired rows, and rows of transactions that nobody will see."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import attrs

from coordinator.threads import Event, JoinableThread
from coordinator.transaction import Transaction
from txaware.errors import TxAwareError
from txaware.model.metrics import RetentionCounters
from txaware.model.partitions import number_of, parent_of, parsed_rows
from txaware.model.reports import CleanUp, OnProgress, Pruned
from txaware.service.retention.clean_up_plan import (
    EXPIRED,
    Piece,
    PieceResult,
    Plan,
    Results,
)
from txaware.service.retention.cleaning import Cleaning
from txaware.service.retention.deletion import Deleting
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.service.retention.payload_retention import PayloadRetention
from txaware.service.retention.planning import Planning
from txaware.service.retention.prune import Forgetting
from txaware.service.store_context import StoreContext
from txaware.store.interfaces import is_here
from txaware.store.slot_table import SlotTable
from txaware.store.topic_table import TopicTable

log = logging.getLogger(__name__)

# The reasons for which rows are removed or marked: fields of `CleanUp`.
REASONS = (
    *("expired_messages", "expired_payloads", "old_generation_rows"),
    "superseded_messages",
    *("marked_rows", "positions", "table_versions", "producers"),
)


class CleansQueues(Protocol):
    """The queues of a store, as far as a clean-up needs them."""

    def clean_up(self, invalid: Collection[int], marking: Marking) -> int:
        """Ends what is over, marks rows of invalid transactions, and counts those."""


class Retention:
    """The clean-ups of a store, one at a time in this process, while others use it.

    A clean-up is a plan, its pieces, and a finish. Pieces of a plan may be done in any
    order, more than once or never, beside each other and beside other clean-ups.
    """

    def __init__(self, store_context: StoreContext) -> None:
        self._store_context = store_context
        self._topics = TopicTable(store_context.table)
        self._coordinator = store_context.coordinator
        self._barrier = store_context.barrier
        self._keepers = store_context.keepers
        self._clock_ms = store_context.clock_ms
        self._settings = store_context.settings
        self._turn = threading.Lock()
        self._stopped = False
        self.expired_unseen: Counter[str] = Counter()
        self.counters = RetentionCounters()
        self._marking = Marking(
            store_context.table,
            store_context.cache,
            store_context.barrier,
            store_context.rewriting,
        )
        self._payloads = PayloadRetention(store_context)
        self._versions = store_context.versions
        self._producers = store_context.producer_removal
        self._slots = SlotTable(store_context.table)
        self._planning = Planning(store_context.table, self._marking)
        self._cleaning = Cleaning(
            store_context, self._topics, self._marking, self._payloads
        )
        self._forgetting = Forgetting(store_context, self._marking)
        self._queues: CleansQueues | None = None
        self._report: Callable[[int], object] | None = None

    def report_to(self, report: Callable[[int], object]) -> None:
        """Has `report` hear the least pointer that rows here may need, at each end.

        It is for a store whose coordinator forgets elsewhere. What it raises leaves the
        clean-up as it is: what was said before goes on to count.
        """
        self._report = report

    def forget(self) -> None:
        """Looks at all rows anew, as some came from another process."""
        self._marking.forget()

    def clean_with(self, queues: CleansQueues) -> None:
        """Has each clean-up also end what is over in the queues."""
        self._queues = queues

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Goes through all topics once; an error that `on_progress` raises ends it.

        Then it forgets invalid transactions, where nobody can need them.
        """
        with self._turn:
            began_s = time.monotonic()
            cleaned = self._forget(self._clean_up(on_progress))
            self._count(cleaned, took_s=time.monotonic() - began_s)
            return cleaned

    def stop(self) -> None:
        """Ends a running clean-up after the topic that it is at."""
        self._stopped = True

    def plan(self, *, pieces: int = 1) -> Plan:
        """Plans a clean-up: at most so many `pieces` of each topic for each rule."""
        with self._turn:
            return self._plan(pieces)

    def clean_piece(self, plan: Plan, piece: Piece) -> PieceResult:
        """Does one piece; see `Cleaning`. `finish` need not know of an error in it."""
        return self._cleaning.clean(plan, piece)

    def finish(self, plan: Plan, results: Results) -> CleanUp:
        """Ends a plan after its pieces; `results` has those that were done.

        While one is missing, no transaction counts as marked. Nothing is lost by that:
        the next clean-up looks again.
        """
        with self._turn:
            self.counters.set(topics=len(plan.topics), topics_done=0)
            cleaned = self._forget(self._finish(plan, results))
            self.counters.set(topics_done=len(plan.topics))
            took_ms = self._clock_ms() - plan.planned_ms
            self._count(cleaned, took_s=max(0, took_ms) / 1000)
            return cleaned

    def prune(
        self, *, exclusive: bool, on_progress: OnProgress | None = None
    ) -> Pruned:
        """Has the coordinator forget invalid transactions that are wholly marked.

        A coordinator that others may share is asked only when the caller says that it
        is `exclusive`: nobody elsewhere has rows of it, but for registered keepers.
        Raises `KeeperMissing` where one of those does not answer; then nothing was
        forgotten.
        """
        self._keepers.ask()
        # Nobody writes with pointers that were late before the marking began. Where it
        # failed, or was not tried, somebody may have written since the last marking.
        late_ms = self._late_ms()
        with self._turn:
            began_s = time.monotonic()
            cleaned = self._clean_up(on_progress)
            self._count(cleaned, took_s=time.monotonic() - began_s)
        late_ms = 0 if cleaned.least_needed is None else late_ms
        done = self._forgetting.prune(late_ms, exclusive=exclusive)
        self.counters.forgot(done.pruned, done.held_back, done.held_back_count)
        return attrs.evolve(done, least_needed=cleaned.least_needed)

    def _forget(self, cleaned: CleanUp) -> CleanUp:
        """Forgets all that needs no request; returns the clean-up with that."""
        if self._stopped or cleaned.least_needed is None:
            return cleaned
        if self._report is not None:  # and what nobody needs is forgotten elsewhere
            self._report(cleaned.least_needed)
            return cleaned
        done, before = self._forgetting.by_itself(), self.counters.snapshot().held_back
        if done.held_back is not None and before is None:
            log.warning("invalid transactions: %s", done.held_back)
        self.counters.forgot(done.pruned, done.held_back, done.held_back_count)
        return attrs.evolve(cleaned, forgotten=done.pruned, held_back=done.held_back)

    def _late_ms(self) -> int:
        """Returns the time before which pointers are too old to write with."""
        return self._clock_ms() - int(self._settings.orphan_grace_s * 1000)

    def _snapshot(self) -> Transaction | None:
        """Returns a snapshot, or None with nothing to judge: it costs a pointer."""
        if (
            self._versions.has_any()
            or self._payloads.has_any()
            or self._coordinator.invalid_size()
            or any(topic.is_compact for topic in self._topics.all())
        ):
            return self._coordinator.snapshot()
        return None

    def _plan(self, pieces: int) -> Plan:
        snapshot = self._snapshot()
        # The topics come after the snapshot: a transaction that is invalid in it has no
        # row in a topic that is made later.
        table = self._store_context.table
        topics = [
            topic
            for topic in self._topics.all_partitions()
            if is_here(table, topic.shard_of(number_of(topic.topic)))
        ]
        seen_by_all = None
        if snapshot is not None and any(topic.is_compact for topic in topics):
            looks = self._store_context.compaction.looks
            seen_by_all = looks.seen_by_all(snapshot)
        return self._planning.plan(
            topics,
            snapshot,
            now_ms=self._clock_ms(),
            pieces=pieces,
            seen_by_all=seen_by_all,
        )

    def _clean_up(self, on_progress: OnProgress | None) -> CleanUp:
        """Does all pieces, topic by topic, in this thread."""
        plan, failed = self._plan(1), 0
        results: dict[int, PieceResult] = {}
        self.counters.set(topics=len(plan.topics), topics_done=0)
        for number, topic in enumerate(plan.topics, 1):
            if self._stopped:
                counts = _counted(plan, results)
                counts.update(topics=number - 1 - failed, failed_topics=failed)
                return _clean_up_of(counts)
            try:
                self._clean_topic(topic, plan, results)
            except Exception:
                log.exception("topic %s could not be cleaned up", topic)
                failed += 1
            self.counters.set(topics_done=number)
            if on_progress is not None:
                on_progress(topic, number, len(plan.topics))
        return self._finish(plan, results)

    def _clean_topic(
        self, topic: str, plan: Plan, results: dict[int, PieceResult]
    ) -> None:
        for number in plan.by_topic.get(topic, ()):
            results[number] = self.clean_piece(plan, plan.pieces[number])

    def _forget_gone(self) -> None:
        """Counts nothing more of topics that were deleted."""
        if not self.expired_unseen:
            return
        there = {str(one.topic) for one in self._topics.all() if one.generation > 0}
        for topic in self.expired_unseen.keys() - there:
            del self.expired_unseen[topic]

    def _finish(self, plan: Plan, results: Results) -> CleanUp:
        deleting = Deleting(self._store_context.table, self._store_context.rewriting)
        counts, failed = _counted(plan, results), set(plan.unplanned)
        unseen: set[str] = set()
        for number, piece in enumerate(plan.pieces):
            if number not in results:
                failed.add(piece.topic)
            elif results[number].unseen is not None:
                unseen.add(str(parent_of(parsed_rows(piece.topic))))
        self.expired_unseen.update(unseen)
        self._forget_gone()
        least_needed = None
        if self._queues is not None:
            counts["marked_rows"] += self._queues.clean_up(plan.marked, self._marking)
        if plan.judge is not None and not failed:
            counts["marked_rows"] += self._marking.mark_versions(plan.marked)
            counts.update(self._versions.clean_up(plan.judge, deleting))
            self._marking.done(plan.invalid)
            least_needed = min(
                self._marking.least_needed(plan.judge), self._keepers.least_needed()
            )
        counts["producers"] += self._producers.clean_up()
        self._slots.clean_up(self._clock_ms())
        deleting.compact(one for result in results.values() for one in result.touched)
        counts.update(topics=len(plan.topics) - len(failed), failed_topics=len(failed))
        done = _clean_up_of(counts, least_needed=least_needed)
        log.info("cleaned up", extra=attrs.asdict(done))
        return done

    def _count(self, cleaned: CleanUp, *, took_s: float) -> None:
        self.counters.ended(
            {reason: getattr(cleaned, reason) for reason in REASONS},
            failed=cleaned.failed_topics,
            ended_ms=self._clock_ms(),
            took_s=took_s,
        )


def _clean_up_of(counts: Mapping[str, Any], **more: Any) -> CleanUp:
    return CleanUp(**counts, **more)


def _counted(plan: Plan, results: Results) -> Counter[str]:
    """Adds up the rows of all pieces, by the fields of `CleanUp`."""
    counts = Counter[str]()
    for number, result in results.items():
        counts[plan.pieces[number].what] += result.rows
        counts[EXPIRED] += result.references
    return counts


# The first clean-up comes early, so that short programs clean up as well.
FIRST_S = 60


class Janitor:
    """A thread that cleans up regularly; it ends with `close`, or with the process."""

    def __init__(self, retention: Retention, *, interval_s: float) -> None:
        self._retention = retention
        self._interval_s = interval_s
        self._stop = Event()
        self._thread = JoinableThread(
            target=self._run, name="txaware-janitor", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        pause_s = min(self._interval_s, FIRST_S)
        while not self._stop.wait(pause_s):
            pause_s = self._interval_s
            try:
                self._retention.clean_up()
            except TxAwareError as error:
                log.warning("clean-up failed and is tried again later: %s", error)
            except Exception:
                log.exception("clean-up failed and is tried again later")

    def close(self) -> None:
        """Ends the thread after the topic that it is at."""
        self._stop.set()
        self._retention.stop()
        self._thread.join()
