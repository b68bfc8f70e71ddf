"""Finds the topics whose committed readers wait for the end of a transaction."""

from collections.abc import Mapping, Set

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import TopicNotFound
from txaware.messages import BlockedBy
from txaware.rowkeys import MESSAGE, row_key
from txaware.service.judge import STOP, Judge
from txaware.service.local import LocalService
from txaware.service.places import Place
from txaware.service.site import Site
from txaware.service.turns import Budget, Turns
from txaware.tables.columns import pointer_of
from txaware.topics import Topic

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
        """When that row was published."""
        return int.from_bytes(self.row_key[:8], "big")

    def by(self, transaction_id: int) -> BlockedBy:
        """The same, named by its transaction."""
        return BlockedBy(transaction_id, self.since_ms)


@attrs.define
class _Standing:
    """How far a topic is judged: all rows before `judged` are decided for good.

    `seen` is what had happened in it before the last look, `has_more` whether there are
    rows that were not read yet. It is finished unless something has to be looked at
    again: those, or a row younger than the snapshot.
    """

    prefix: bytes
    judged: bytes = b""
    seen: int = -1
    has_more: bool = True
    is_finished: bool = False
    blocker: Blocker | None = None


class Blocked:
    """Judges every row once, and none that is older than the oldest transaction.

    A row of an open transaction is never published before that began, and only the
    process that asks adds rows. So a round looks at topics where something happened
    since the last one, from where that one stopped.
    """

    def __init__(self, service: LocalService, site: Site) -> None:
        self.blockers: dict[str, Blocker] = {}
        self.unjudged = 0
        self._service = service
        self._table = site.table
        self._known = None if site.gate is None else site.gate.gave_out
        self._early_ms = CLOCKS_DIFFER_MS if site.gate is None else 0
        self._turns = Turns()
        self._standings: dict[str, _Standing] = {}

    def look(
        self, topics: Mapping[str, Topic], touched: Set[str], snapshot: Transaction
    ) -> None:
        """A round over `topics`; `touched` are those that were used in this process."""
        if not snapshot.in_progress:
            self._standings, self.blockers, self.unjudged = {}, {}, 0
            return
        places = {name: self._place(name) for name in touched if name in topics}
        self._forget_all_but(topics)
        due = [
            name
            for name, topic in topics.items()
            if self._is_due(name, topic, places.get(name), snapshot)
        ]
        first_ms = snapshot.in_progress[0] // POINTERS_PER_MS - self._early_ms
        least, judge = row_key(max(0, first_ms)), Judge(snapshot, self._known)
        budget = Budget(looks=LOOKS, rows=ROWS)
        for name in self._turns.of(due):
            if budget.is_spent:
                break
            standing = self._standings[name]
            standing.judged = max(standing.judged, least)
            budget.spend(self._look(standing, places.get(name), judge, snapshot))
        standings = self._standings.items()
        self.blockers = {name: s.blocker for name, s in standings if s.blocker}
        self.unjudged = sum([standing.has_more for _, standing in standings])

    def _place(self, name: str) -> Place | None:
        try:
            return self._service.place(name)
        except TopicNotFound:  # deleted a moment ago
            return None

    def _forget_all_but(self, topics: Mapping[str, Topic]) -> None:
        for name in [name for name in self._standings if name not in topics]:
            del self._standings[name]

    def _is_due(
        self, name: str, topic: Topic, place: Place | None, snapshot: Transaction
    ) -> bool:
        standing = self._standings.get(name)
        if standing is None or standing.prefix != topic.prefix:
            standing = self._standings[name] = _Standing(topic.prefix)
        if not standing.is_finished:
            return True
        if place is not None and standing.seen != place.writer.signal.count:
            return True
        blocker = standing.blocker
        return blocker is not None and blocker.pointer not in snapshot.in_progress

    def _look(
        self,
        standing: _Standing,
        place: Place | None,
        judge: Judge,
        snapshot: Transaction,
    ) -> int:
        """Goes on to the first row that is not decided; answers how many it read."""
        if place is not None:
            standing.seen = place.writer.signal.count
        rows = self._table.scan(
            MESSAGE + standing.prefix,
            start=standing.judged,
            stop=_END if place is None else place.writer.mark(),
            limit=ROWS_EACH,
            max_bytes=BYTES_EACH,
        )
        standing.blocker, standing.has_more, standing.is_finished = None, False, False
        for key, value in rows:
            pointer = pointer_of(value)
            if judge.verdict(pointer) == STOP:
                standing.judged = key
                # What is not in progress is younger than the snapshot: next time.
                if pointer is not None and pointer in snapshot.in_progress:
                    standing.blocker = Blocker(pointer, key)
                    standing.is_finished = True
                return len(rows)
        if rows:
            standing.judged = rows[-1][0] + b"\0"
        size_bytes = sum([len(value) for _, value in rows])
        standing.has_more = len(rows) >= ROWS_EACH or size_bytes >= BYTES_EACH
        standing.is_finished = not standing.has_more
        return len(rows)
