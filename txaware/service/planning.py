"""Plans a clean-up: which rows have to be looked at, cut into pieces."""

import logging
from collections.abc import Iterable, Iterator

import attrs

from coordinator.codec import encode
from coordinator.transaction import Transaction
from txaware.interfaces import OrderedTable
from txaware.rowkeys import (
    MARK,
    MESSAGE,
    PAYLOAD,
    POINTER_BYTES,
    ROW_KEY_BYTES,
    row_key,
)
from txaware.service.clean_up_plan import (
    EXPIRED,
    MARKED,
    OLD_GENERATIONS,
    PAYLOADS,
    Piece,
    Plan,
)
from txaware.service.marking import Marking
from txaware.topics import Topic

log = logging.getLogger(__name__)

# From here on what is to be done of a topic is one piece each.
MANY_PIECES = 100_000
_GENERATION_BYTES = 4


@attrs.frozen
class Planning:
    """Looks at the first and the last row of each topic, and at none between them."""

    table: OrderedTable
    marking: Marking

    def plan(
        self,
        topics: Iterable[Topic],
        snapshot: Transaction | None,
        *,
        now_ms: int,
        pieces: int,
    ) -> Plan:
        """At most so many `pieces` of a topic for each thing that is done to it.

        The topics have to be read after the snapshot was taken: what is invalid in it
        has no row in a topic that is made later.
        """
        invalid = set() if snapshot is None else self.marking.due(snapshot)
        names: list[str] = []
        unplanned: list[str] = []
        planned: list[Piece] = []
        for topic in topics:
            names.append(str(topic.topic))
            parts = pieces if len(planned) < MANY_PIECES else 1
            cutting = _Cutting(self.table, topic, parts)
            try:
                planned += cutting.pieces(
                    self.marking.first_key(invalid) if invalid else None,
                    expired_stop=row_key(max(0, now_ms - topic.ttl_ms)),
                    is_judged=snapshot is not None,
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
        )


@attrs.frozen
class _Cutting:
    """What is to be done in one topic, in as many `parts` as were asked for."""

    table: OrderedTable
    topic: Topic
    parts: int

    def pieces(
        self, marked_from: bytes | None, *, expired_stop: bytes, is_judged: bool
    ) -> list[Piece]:
        """In the order in which one process does them."""
        found = list(self._old_generations())
        if self.topic.generation < 0:
            return found
        prefix = self.topic.prefix
        messages = [MESSAGE + prefix]
        if marked_from is not None:
            found += self._cut(MARKED, messages, ROW_KEY_BYTES, start=marked_from)
        if is_judged:
            stored = [PAYLOAD + prefix, MARK + prefix]
            found += self._cut(PAYLOADS, stored, POINTER_BYTES)
        found += self._cut(EXPIRED, messages, ROW_KEY_BYTES, stop=expired_stop)
        return found

    def _old_generations(self) -> Iterator[Piece]:
        key = self.topic.topic.key
        tables = [table + key for table in (MESSAGE, PAYLOAD, MARK)]
        stop = first_kept(self.topic)
        width = _GENERATION_BYTES + ROW_KEY_BYTES
        return self._cut(OLD_GENERATIONS, tables, width, stop=stop)

    def _cut(
        self,
        what: str,
        prefixes: list[bytes],
        width: int,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
    ) -> Iterator[Piece]:
        """Pieces of the same length in time, or in pointers, of the first with rows.

        None where no table has any.
        """
        for prefix in prefixes:
            ends = [
                key[:width].ljust(width, b"\0")
                for reverse in (False, True)
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
    """The first generation that is not old, as keys have it."""
    generation = topic.generation
    number = generation if generation > 0 else 1 - generation
    return number.to_bytes(_GENERATION_BYTES, "big")


def cuts(first: bytes, last: bytes, parts: int) -> list[bytes]:
    """Keys that rise and cut all from `first` to `last`, of one length, in `parts`."""
    low, high = int.from_bytes(first, "big"), int.from_bytes(last, "big")
    span = high - low + 1
    parts = min(parts, span)
    return [
        (low + span * part // parts).to_bytes(len(first), "big")
        for part in range(1, parts)
    ]
