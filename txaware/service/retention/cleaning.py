"""Does one piece of a clean-up; it may be done again, never, or beside others."""

import logging

from coordinator.pointers import NO_RANGES
from txaware.model.interfaces import Row
from txaware.model.partitions import (
    number_of,
    parent_of,
    parsed_rows,
    partition_in,
)
from txaware.model.topics import Topic
from txaware.service.read.keyed_rows import KeyedRows
from txaware.service.retention.clean_up_plan import (
    EXPIRED,
    MARKED,
    OLD_GENERATIONS,
    PAYLOADS,
    SUPERSEDED,
    Piece,
    PieceResult,
    Plan,
)
from txaware.service.retention.deletion import Deleting
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.service.retention.payload_retention import PayloadRetention
from txaware.service.retention.planning import first_kept
from txaware.service.store_context import StoreContext
from txaware.service.visibility import Visibility
from txaware.store.columns import pointer_of
from txaware.store.keys import MARK, MESSAGE, PAYLOAD, row_key
from txaware.store.message_table import MessageTable
from txaware.store.payload_table import PayloadTable
from txaware.store.topic_table import TopicTable

log = logging.getLogger(__name__)


class Cleaning:
    """The worker of pieces; applies the rules anew to each, as the topic stands then.

    So a plan that is old, or wrong, removes less than it might, and never more.
    """

    def __init__(
        self,
        store_context: StoreContext,
        topics: TopicTable,
        marking: Marking,
        stored: PayloadRetention,
    ) -> None:
        self._store_context = store_context
        self._table = store_context.table
        self._topics = topics
        self._marking = marking
        self._stored = stored
        self._compaction = store_context.compaction
        self._keyed = KeyedRows(
            MessageTable(store_context.table), PayloadTable(store_context.table)
        )

    def clean(self, plan: Plan, piece: Piece) -> PieceResult:
        """Removes or marks the rows that are due; nothing is done twice."""
        name = parsed_rows(piece.topic)
        # Read anew, also a deleted one.
        topic = next(self._topics.all(parent_of(name).key), None)
        if topic is None:
            return PieceResult()
        topic = partition_in(topic, number_of(name))
        if piece.what == OLD_GENERATIONS:
            return self._old_generations(topic, piece)
        if topic.generation < 0 or topic.generation != piece.generation:
            return PieceResult()  # it is an old generation now, and goes as such
        if piece.what == MARKED:
            return PieceResult(
                self._marking.mark_topic(
                    topic, plan.marked, start=piece.start, stop=piece.stop
                )
            )
        now_ms = min(plan.planned_ms, self._store_context.clock_ms())
        if piece.what == SUPERSEDED:
            return self._superseded(topic, plan, now_ms)
        if piece.what == PAYLOADS:
            return self._payloads(topic, plan, piece, now_ms)
        if piece.what == EXPIRED:
            return self._expired(topic, plan, piece, now_ms)
        raise ValueError(f"nothing is known of {piece.what!r}")

    def _deleting(self) -> Deleting:
        return Deleting(self._table, self._store_context.rewriting)

    def _old_generations(self, topic: Topic, piece: Piece) -> PieceResult:
        """Removes the rows of all deleted generations."""
        deleting, stop = self._deleting(), first_kept(topic)
        if piece.stop is not None:
            stop = min(stop, piece.stop)
        rows = sum(
            deleting.delete_range(table + topic.topic.key, start=piece.start, stop=stop)
            for table in (MESSAGE, PAYLOAD, MARK)
        )
        return PieceResult(rows, deleting.touched)

    def _payloads(
        self, topic: Topic, plan: Plan, piece: Piece, now_ms: int
    ) -> PieceResult:
        """Removes payloads that nobody needs."""
        if plan.judge is None:
            return PieceResult()
        deleting = self._deleting()
        removed = self._stored.clean_up(
            topic, plan.judge, now_ms, deleting, start=piece.start, stop=piece.stop
        )
        return PieceResult(
            removed.payloads, deleting.touched, references=removed.references
        )

    def _superseded(self, topic: Topic, plan: Plan, now_ms: int) -> PieceResult:
        """Removes what is not the newest message of its key."""
        snapshot, barrier = plan.shared_judge, self._store_context.barrier
        if snapshot is None or not topic.is_compact:
            return PieceResult()
        # A snapshot that was encoded does not know who was lost in a crash.
        judge = Visibility(
            snapshot,
            None if barrier is None else barrier.reaches,
            lost=NO_RANGES if barrier is None else barrier.lost,
        )
        count = self._compaction.clean_up(
            self._keyed, topic, judge, now_ms, self._deleting()
        )
        if count:
            self._store_context.cache.drop(topic.prefix)
        return PieceResult(count)

    def _expired(
        self, topic: Topic, plan: Plan, piece: Piece, now_ms: int
    ) -> PieceResult:
        """Removes messages older than the time to live."""
        deleting, unseen = self._deleting(), _Unseen(topic, plan)
        live_from = row_key(topic.live_from_ms(now_ms))
        planned_stop = live_from if piece.stop is None else piece.stop
        try:
            rows = deleting.delete_range(
                MESSAGE + topic.prefix,
                start=piece.start,
                stop=min(planned_stop, live_from),
                look=unseen.look,
            )
        finally:
            if unseen.looked:
                self._store_context.cache.drop(topic.prefix)
        return PieceResult(rows, deleting.touched, unseen.pointer)


class _Unseen:
    """Warns, once, when expiring messages were kept from readers until now."""

    def __init__(self, topic: Topic, plan: Plan) -> None:
        self._topic = topic
        self._snapshot = plan.judge
        self.looked = False
        self.pointer: int | None = None

    def look(self, rows: list[Row]) -> None:
        """Looks at rows that are about to go."""
        self.looked = True
        if self._snapshot is None or self.pointer is not None:
            return
        for _, value in rows:
            pointer = pointer_of(value)
            if pointer is not None and self._snapshot.is_in_progress(pointer):
                self.pointer = pointer
                log.warning(
                    "messages of topic %s expire unseen: transaction %d has kept its "
                    "readers waiting for the whole time to live",
                    self._topic.topic,
                    pointer,
                )
                return
