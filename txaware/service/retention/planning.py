"""Plans a clean-up: cuts the rows that have to be looked at into pieces."""

import logging
from collections.abc import Iterable, Iterator, Mapping

import attrs

from coordinator.codec import encode
from coordinator.transaction import Transaction
from txaware.errors import TxAwareError
from txaware.model.interfaces import Emptiness, OrderedTable
from txaware.model.topics import Topic
from txaware.service.retention.clean_up_plan import (
    EXPIRED,
    MARKED,
    OLD_GENERATIONS,
    PAYLOADS,
    SUPERSEDED,
    Piece,
    Plan,
)
from txaware.service.retention.mark_invalid_rows import Marking
from txaware.store.keys import (
    MARK,
    MESSAGE,
    PAYLOAD,
    POINTER_BYTES,
    ROW_KEY_BYTES,
    row_key,
)

log = logging.getLogger(__name__)

# With so many pieces planned, each further topic is cut no more.
MANY_PIECES = 100_000
# Up to so many topics are looked into one by one.
FEW_TOPICS = 16
# A row may have been stamped so long before it was written.
UNDER_WAY_MS = 600_000
_FIRST_GENERATION = 1
_GENERATION_BYTES = 4


@attrs.frozen
class Planning:
    """Looks at the first and the last row of each topic, and at none between them.

    With many topics, one look for all of them first tells which may have such rows, as
    each look may wait for a network. `firsts` has keys before which a topic has no
    message and never will, as times only rise. So nothing expires until then.
    """

    table: OrderedTable
    marking: Marking
    firsts: dict[bytes, bytes] = attrs.field(factory=dict)

    def plan(
        self,
        topics: Iterable[Topic],
        snapshot: Transaction | None,
        *,
        now_ms: int,
        pieces: int,
        seen_by_all: Transaction | None = None,
    ) -> Plan:
        """Plans at most so many `pieces` of each topic for each rule.

        The topics have to be read after the snapshot was taken: a transaction that is
        invalid in it has no row in a topic that is made later.
        """
        invalid = set() if snapshot is None else self.marking.due(snapshot)
        topics = list(topics)
        outlines = self._outlines() if len(topics) > FEW_TOPICS else {}
        self._forget_all_but(topics)
        under_way = row_key(max(0, now_ms - UNDER_WAY_MS))
        names: list[str] = []
        unplanned: list[str] = []
        planned: list[Piece] = []
        for topic in topics:
            names.append(str(topic.topic))
            parts = pieces if len(planned) < MANY_PIECES else 1
            cutting = _Cutting(
                self.table, topic, parts, outlines, self.firsts, under_way
            )
            try:
                planned += cutting.pieces(
                    self.marking.first_key(invalid) if invalid else None,
                    expired_stop=row_key(topic.live_from_ms(now_ms)),
                    is_judged=snapshot is not None,
                    is_compacted=seen_by_all is not None and topic.is_compact,
                )
            except Exception:
                log.exception("topic %s could not be cleaned up", topic.topic)
                unplanned.append(str(topic.topic))
        return Plan(
            planned_ms=now_ms,
            snapshot=None if snapshot is None else encode(snapshot),
            invalid=tuple(sorted(invalid)),
            topics=tuple(names),
            unplanned=tuple(unplanned),
            pieces=tuple(planned),
            seen_by_all=None if seen_by_all is None else encode(seen_by_all),
        )

    def _outlines(self) -> dict[bytes, Emptiness]:
        """Returns the outlines of all topics by table; called after the snapshot."""
        try:
            found = {tag: self.table.outline(tag) for tag in (MESSAGE, PAYLOAD, MARK)}
        except TxAwareError as error:
            log.warning("each topic is looked into, since for all of them: %s", error)
            return {}
        return {tag: outline for tag, outline in found.items() if outline is not None}

    def _forget_all_but(self, topics: Iterable[Topic]) -> None:
        there = {topic.prefix for topic in topics if topic.generation > 0}
        for prefix in self.firsts.keys() - there:
            del self.firsts[prefix]


@attrs.frozen
class _Cutting:
    """The work in one topic, cut into as many `parts` as were asked for."""

    table: OrderedTable
    topic: Topic
    parts: int
    outlines: Mapping[bytes, Emptiness]
    firsts: dict[bytes, bytes]
    under_way: bytes

    def pieces(
        self,
        marked_from: bytes | None,
        *,
        expired_stop: bytes,
        is_judged: bool,
        is_compacted: bool,
    ) -> list[Piece]:
        """Returns the pieces in the order in which one process does them."""
        found = list(self._old_generations())
        if self.topic.generation < 0:
            return found
        prefix = self.topic.prefix
        messages = [MESSAGE + prefix]
        if marked_from is not None:
            found += self._cut(MARKED, messages, ROW_KEY_BYTES, start=marked_from)
        if is_compacted and self._may_have(messages[0], b"", None):
            # A whole, as the newest of a key may be anywhere.
            name, generation = str(self.topic.topic), self.topic.generation
            found.append(Piece(name, generation, SUPERSEDED))
        if is_judged:
            stored = [PAYLOAD + prefix, MARK + prefix]
            found += self._cut(PAYLOADS, stored, POINTER_BYTES)
        if self._has_expired(expired_stop):
            found += self._cut(EXPIRED, messages, ROW_KEY_BYTES, stop=expired_stop)
        return found

    def _has_expired(self, stop: bytes) -> bool:
        """Tells whether a message is before `stop`; notes until when none can be."""
        prefix = self.topic.prefix
        if stop <= self.firsts.get(prefix, b""):
            return False
        if not self._may_have(MESSAGE + prefix, b"", stop):
            return False
        first = self.table.scan(MESSAGE + prefix, limit=1)
        key = first[0][0] if first else self.under_way
        self.firsts[prefix] = min(key, self.under_way)
        return bool(first) and key < stop

    def _may_have(self, prefix: bytes, start: bytes, stop: bytes | None) -> bool:
        outline = self.outlines.get(prefix[:1])
        return outline is None or outline.may_have(prefix, start, stop)

    def _old_generations(self) -> Iterator[Piece]:
        if self.topic.generation == _FIRST_GENERATION:
            return
        key = self.topic.topic.key
        tables = [table + key for table in (MESSAGE, PAYLOAD, MARK)]
        stop = first_kept(self.topic)
        width = _GENERATION_BYTES + ROW_KEY_BYTES
        yield from self._cut(OLD_GENERATIONS, tables, width, stop=stop)

    def _cut(
        self,
        what: str,
        prefixes: list[bytes],
        width: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
    ) -> Iterator[Piece]:
        """Yields pieces of the same length in time, or in pointers.

        The first table with rows sets the bounds. It yields nothing where no table has
        any.
        """
        ways = (False, True) if self.parts > 1 else (False,)
        for prefix in prefixes:
            if not self._may_have(prefix, start, stop):
                continue
            ends = [
                key[:width].ljust(width, b"\0")
                for reverse in ways
                for key, _ in self.table.scan(
                    prefix, start=start, stop=stop, limit=1, reverse=reverse
                )
            ]
            if ends:
                break
        else:
            return
        name, generation = str(self.topic.topic), self.topic.generation
        for cut in cuts(min(ends), max(ends), self.parts):
            yield Piece(name, generation, what, start, cut)
            start = cut
        yield Piece(name, generation, what, start, stop)


def first_kept(topic: Topic) -> bytes:
    """Returns the first generation that is not old, as keys have it."""
    generation = topic.generation
    number = generation if generation > 0 else 1 - generation
    return number.to_bytes(_GENERATION_BYTES, "big")


def cuts(first: bytes, last: bytes, parts: int) -> list[bytes]:
    """Returns rising keys that cut `first` to `last`, of one length, into `parts`."""
    low, high = int.from_bytes(first, "big"), int.from_bytes(last, "big")
    span = high - low + 1
    parts = min(parts, span)
    return [
        (low + span * part // parts).to_bytes(len(first), "big")
        for part in range(1, parts)
    ]
