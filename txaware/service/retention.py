"""Removes what has expired, and what a transaction left that nobody will see."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

import attrs

from coordinator.transaction import Transaction
from txaware.interfaces import Row
from txaware.metrics import RetentionCounters
from txaware.rowkeys import MARK, MESSAGE, PAYLOAD, row_key
from txaware.service.deleting import Deleting
from txaware.service.marking import Marking
from txaware.service.payload_retention import PayloadRetention
from txaware.service.position_retention import PositionRetention
from txaware.service.site import Site
from txaware.tables.columns import pointer_of
from txaware.tables.topic_table import TopicTable
from txaware.topics import Topic

log = logging.getLogger(__name__)

# The topic that is done now, how many are done, and how many there are.
OnProgress = Callable[[str, int, int], object]
# What rows are removed or marked for: fields of `CleanUp`.
REASONS = (
    *("expired_messages", "expired_payloads", "old_generation_rows"),
    *("marked_rows", "positions"),
)


@attrs.frozen
class CleanUp:
    """What one clean-up removed: rows, by reason.

    Every invalid transaction below `least_needed` may be forgotten by its coordinator;
    None where the coordinator was not asked, as nothing had to be judged, and where a
    topic failed (the log says why; all others were cleaned up).
    """

    topics: int = 0
    failed_topics: int = 0
    expired_messages: int = 0
    expired_payloads: int = 0
    old_generation_rows: int = 0
    marked_rows: int = 0
    positions: int = 0
    least_needed: int | None = None


@attrs.frozen
class Pruned:
    """How many invalid transactions the coordinator has forgotten."""

    pruned: int
    least_needed: int | None


class Retention:
    """Beside everything else that goes on; one clean-up at a time."""

    def __init__(self, site: Site) -> None:
        self._table = site.table
        self._topics = TopicTable(site.table)
        self._coordinator = site.coordinator
        self._gate = site.gate
        self._cache = site.cache
        self._clock_ms = site.clock_ms
        self._settings = site.settings
        self._turn = threading.Lock()
        self._stopped = False
        self.expired_unseen: Counter[str] = Counter()
        self.counters = RetentionCounters()
        self._marking = Marking(site.table, site.cache, site.gate)
        self._payloads = PayloadRetention(site)
        self._positions = PositionRetention(site.table)

    def clean_up(self, on_progress: OnProgress | None = None) -> CleanUp:
        """Goes through all topics once."""
        with self._turn:
            began_s = time.monotonic()
            cleaned = self._clean_up(on_progress)
            removed = {reason: getattr(cleaned, reason) for reason in REASONS}
            self.counters.ended(
                removed,
                failed=cleaned.failed_topics,
                ended_ms=self._clock_ms(),
                took_s=time.monotonic() - began_s,
            )
            return cleaned

    def stop(self) -> None:
        """Has the clean-up that runs just now end after the topic that it is at."""
        self._stopped = True

    def _clean_up(self, on_progress: OnProgress | None) -> CleanUp:
        deleting, counts = Deleting(self._table), Counter[str]()
        snapshot = self._snapshot()
        # The topics come after the snapshot: what is invalid in it has no row in a
        # topic that is made later.
        topics = list(self._topics.all())
        self.counters.begun(len(topics))
        invalid = set() if snapshot is None else self._marking.due(snapshot)
        for number, topic in enumerate(topics, 1):
            if self._stopped:
                return CleanUp(**counts)
            try:
                counts.update(self._clean_topic(topic, snapshot, invalid, deleting))
            except Exception:
                log.exception("topic %s could not be cleaned up", topic.topic)
                counts["failed_topics"] += 1
            self.counters.done(number)
            if on_progress is not None:
                on_progress(str(topic.topic), number, len(topics))
        least_needed = None
        if snapshot is not None and not counts["failed_topics"]:
            counts["marked_rows"] += self._marking.mark_positions(invalid)
            self._marking.done(invalid)
            counts["positions"] += self._positions.clean_up(snapshot, deleting)
            least_needed = self._marking.least_needed(snapshot)
        deleting.compact()
        done = CleanUp(**counts, least_needed=least_needed)
        log.info("cleaned up", extra=attrs.asdict(done))
        return done

    def prune(self, *, exclusive: bool) -> Pruned:
        """Has the coordinator forget invalid transactions that are wholly marked.

        One that others may share is asked only when it is known to be `exclusive`.
        """
        least_needed = self.clean_up().least_needed
        snapshot = self._coordinator.snapshot()
        alone = self._gate is not None and not self._gate.is_shared
        if not alone and not exclusive:
            return Pruned(0, least_needed)
        before = self._coordinator.invalid_size()
        marked = self._marking.forgettable(snapshot, self._late_ms())
        if marked:
            self._coordinator.truncate_invalid_tx(marked)
        return Pruned(max(0, before - self._coordinator.invalid_size()), least_needed)

    def _late_ms(self) -> int:
        """Nobody writes any more with pointers from before."""
        return self._clock_ms() - int(self._settings.orphan_grace_s * 1000)

    def _snapshot(self) -> Transaction | None:
        """None while there is nothing to judge: it uses up a pointer."""
        if (
            self._positions.has_positions()
            or self._payloads.has_any()
            or self._coordinator.invalid_size()
        ):
            return self._coordinator.snapshot()
        return None

    def _clean_topic(
        self,
        topic: Topic,
        snapshot: Transaction | None,
        invalid: set[int],
        deleting: Deleting,
    ) -> dict[str, int]:
        """What was removed and marked, by the fields of `CleanUp`."""
        counts = {"topics": 1}
        counts["old_generation_rows"] = self._old_generations(topic, deleting)
        if topic.generation < 0:
            return counts
        now_ms = self._clock_ms()
        if invalid:
            counts["marked_rows"] = self._marking.mark_topic(topic, invalid)
        if snapshot is not None:
            payloads = self._payloads.clean_up(topic, snapshot, now_ms, deleting)
            counts["expired_payloads"] = payloads
        counts["expired_messages"] = self._expired(topic, now_ms, snapshot, deleting)
        return counts

    def _expired(
        self,
        topic: Topic,
        now_ms: int,
        snapshot: Transaction | None,
        deleting: Deleting,
    ) -> int:
        """Messages older than the time to live."""
        unseen = _Unseen(topic, snapshot, self.expired_unseen)
        count = deleting.delete_range(
            MESSAGE + topic.prefix,
            stop=row_key(max(0, now_ms - topic.ttl_ms)),
            look=unseen.look,
        )
        if count:
            self._cache.drop(topic.prefix)
        return count

    def _old_generations(self, topic: Topic, deleting: Deleting) -> int:
        """Rows of all generations that were deleted."""
        generation = topic.generation
        first_kept = generation if generation > 0 else 1 - generation
        stop = first_kept.to_bytes(4, "big")
        return sum(
            deleting.delete_range(table + topic.topic.key, stop=stop)
            for table in (MESSAGE, PAYLOAD, MARK)
        )


class _Unseen:
    """Says so, once a topic, when what expires was kept from readers until now."""

    def __init__(
        self, topic: Topic, snapshot: Transaction | None, counted: Counter[str]
    ) -> None:
        self._topic = topic
        self._counted = counted
        self._snapshot = snapshot
        self._said = False

    def look(self, rows: list[Row]) -> None:
        if self._snapshot is None or self._said:
            return
        for _, value in rows:
            pointer = pointer_of(value)
            if pointer is not None and self._snapshot.is_in_progress(pointer):
                self._said = True
                self._counted[str(self._topic.topic)] += 1
                log.warning(
                    "messages of topic %s expire unseen: transaction %d has kept its "
                    "readers waiting for the whole time to live",
                    self._topic.topic,
                    pointer,
                )
                return
