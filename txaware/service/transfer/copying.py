"""Copies one store to another: as of one moment, resumable, verified by a digest."""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import attrs

from coordinator.embedded.history import KNOWN_ABOVE
from coordinator.embedded.journal import Journal
from coordinator.embedded.records import (
    Aborted,
    Invalidated,
    Lived,
    Lost,
    Reached,
    Record,
    Reserved,
    Truncated,
)
from coordinator.interfaces import Coordinator
from coordinator.optional_ports import TellsOutcomes
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.reports import Progress
from txaware.model.shards import HOME, placed, shards_text
from txaware.model.topics import SHARDS, Topic
from txaware.service.coordinator_kind import EMBEDDED, OTHER, claim
from txaware.service.transfer.copied_rows import (
    PIECE_ROWS,
    JudgedRows,
    RowDigest,
)
from txaware.service.transfer.copy_state import (
    AsOf,
    CopyPlace,
    Phases,
    read_as_of,
    read_place,
)
from txaware.store.interfaces import HasShards, numbered_stores, pieces, stores_of
from txaware.store.journaled_table import (
    FORMAT,
    NEWEST_FORMAT,
    PARTITIONED_FORMAT,
)
from txaware.store.keys import TOPIC, UNWATCHED, topic_key
from txaware.store.kinds import KINDS
from txaware.store.topic_table import TopicTable


@attrs.frozen
class CopySource:
    """The store that is copied, and its coordinator."""

    table: OrderedTable
    coordinator: Coordinator


@attrs.frozen
class Target:
    """The store that becomes the copy.

    `coordinator` is one elsewhere, at `coordinator_address` if that is known. Without
    one it will be the embedded one, which is not open yet and will find in `journal`
    (None in memory) what it has to know.
    """

    name: str
    table: OrderedTable
    journal: Journal | None = None
    coordinator: Coordinator | None = None
    coordinator_address: str | None = None

    @property
    def kind(self) -> bytes:
        """The kind of coordinator that its pointers are from."""
        return EMBEDDED if self.coordinator is None else OTHER


@attrs.frozen
class Copied:
    """The size and digest of a copy, and the rows left out of it.

    `digest` is over all rows as they stand in the copy, but for those that expire by
    themselves. `undecided` are transactions in progress, or begun later, whose rows
    were left out (100 of them at most).
    """

    rows: int
    rolled_back_rows: int
    left_out_rows: int
    undecided: tuple[int, ...]
    digest: str
    as_of_ms: int
    was_complete: bool


def copy(
    source: CopySource, target: Target, *, progress: Progress | None = None
) -> Copied:
    """Copies all rows, or goes on with the copy that was begun; reads them back.

    Nobody else may write to the source meanwhile. `BadRequest` changed nothing.
    """
    as_of = read_as_of(target.table)
    if as_of is None:
        _check_empty(target)
        as_of = _as_of_now(source)
    return _Copying(source, target, as_of, progress).run()


def _as_of_now(source: CopySource) -> AsOf:
    snapshot = source.coordinator.snapshot()
    now_ms = max(store.clock.now_ms() for store in stores_of(source.table))
    return AsOf(snapshot, now_ms + 1)


def _check_empty(target: Target) -> None:
    found = [rows for b in KINDS.copied if (rows := target.table.scan(b, limit=1))]
    if found or (target.journal is not None and target.journal.history.first):
        what = "rows" if found else "a journal"
        raise BadRequest(
            f"{target.name} has {what} of its own, and no copy that could be gone on "
            f"with; a copy needs a place that is empty or does not exist"
        )


class _Copying:
    """The steps of one copy, which may have been begun before."""

    def __init__(
        self, source: CopySource, target: Target, as_of: AsOf, progress: Progress | None
    ) -> None:
        self._source, self._target, self._as_of = source, target, as_of
        self._place = read_place(target.table)
        self._was_complete = self._place is not None and self._place.is_done
        looks_first = target.coordinator is not None and not self._was_complete
        self._phases = Phases(
            source.table.size_bytes,
            progress,
            1 + looks_first + (not self._was_complete),
        )
        self._topics = _placed_anew(source.table, target.table)
        self._judged = JudgedRows(source.table, as_of)
        self._digest = RowDigest()

    def run(self) -> Copied:
        """Copies, and returns a summary of the copy."""
        if self._was_complete:
            deque(self._new_rows(), maxlen=0)  # there are none
            return self._summary()
        self._check_seen()
        self._begin()
        self._write_rows()
        self._keep_journal()
        self._read_back()
        self._finish()
        return self._summary()

    def _check_seen(self) -> None:
        """Checks that a coordinator elsewhere sees all commits, before any write."""
        if self._target.coordinator is None:
            return
        seen_by = _fresh_snapshot(self._target.coordinator)
        judged = JudgedRows(self._source.table, self._as_of, seen_by=seen_by)
        for rows in judged.pieces():
            self._phases.report(rows)
        self._phases.next()

    def _begin(self) -> None:
        """Writes the moment, the coordinator, and a time above all rows first."""
        target, table = self._target, self._target.table
        for store in stores_of(table):
            store.clock.given(self._as_of.before_ms)
        claim(table, target.kind, target.coordinator_address, name=target.name)
        unwatched = self._source.table.get(UNWATCHED)
        more: list[Write] = [] if unwatched is None else [(UNWATCHED, unwatched)]
        found = self._source.table.get(FORMAT)
        if self._source.table.has_batches:
            more += table.packed_format()
        elif found in (None, PARTITIONED_FORMAT):
            more += table.partitioned_format()
        elif found == NEWEST_FORMAT:
            more += table.newest_format()
        table.submit([self._as_of.write(), *more])()
        # Before the messages, whose shards they tell.
        for number, store in numbered_stores(table):
            own = [
                (topic_key(topic.topic), topic.to_bytes())
                for topic in self._topics
                if number in topic.serving or number == HOME
            ]
            if own:
                store.submit(own)()
        for store in stores_of(table):
            store.reserve_time()

    def _write_rows(self) -> None:
        """Writes batches of rows, each with the place that earlier ones have reached.

        So the place is never ahead of the rows, also where a batch is not atomic.
        """
        before: list[Write] = []
        for rows in self._new_rows():
            self._target.table.submit([*rows, *before])()
            before = [CopyPlace(rows[-1][0], self._digest.digest()).write()]

    def _new_rows(self) -> Iterator[list[Row]]:
        """Yields rows not yet in the target; those in it have to be unchanged."""
        place = self._place
        for found in self._judged.pieces():
            new = rows = self._placed(found)
            if place is not None:
                known = _count_up_to(rows, place)
                self._digest.update(rows[:known])
                new = rows[known:]
                if new:
                    self._check_place(place)
                    place = None
            self._digest.update(new)
            if new:
                yield new
            self._phases.report(rows)
        if place is not None:
            self._check_place(place)
        self._phases.next()

    def _placed(self, rows: list[Row]) -> list[Row]:
        """Returns the rows as they stand in the shards of the target."""
        if not self._topics or not rows or rows[0][0][:1] != TOPIC:
            return rows
        placed = {topic_key(one.topic): one.to_bytes() for one in self._topics}
        return [(key, placed.get(key, value)) for key, value in rows]

    def _check_place(self, place: CopyPlace) -> None:
        if self._digest.digest() != place.digest:
            raise self._other_source()

    def _other_source(self) -> BadRequest:
        done = "is a copy" if self._was_complete else "is the beginning of a copy"
        return BadRequest(
            f"{self._target.name} {done} of something else, or its source has lost "
            f"rows since; name that source, or copy to an empty place"
        )

    def _keep_journal(self) -> None:
        """Writes the records that the target's embedded coordinator begins with."""
        target, journal = self._target, self._target.journal
        if target.coordinator is None and journal is not None:
            snapshot, now_ms = self._as_of.snapshot, target.table.clock.now_ms()
            known: Sequence[Record] = ()
            lowest, decided = self._judged.lowest, self._source.coordinator
            if isinstance(decided, TellsOutcomes):
                known = decided.outcomes()
                lowest = min(lowest, decided.first_pointer)
            journal.append(*_records(snapshot, lowest, now_ms, known))

    def _read_back(self) -> None:
        """Reads the copy back; expiring rows that are not due must be on both sides."""
        now_ms = self._target.table.clock.now_ms()
        found, found_expiring, expiring = (
            RowDigest(),
            RowDigest(expiring_after_ms=now_ms),
            RowDigest(expiring_after_ms=now_ms),
        )
        for whole in _rows_of(self._target.table):
            found.update(whole)
            found_expiring.update(whole)
            self._phases.report(whole)
        self._compare(found, self._digest)
        if found.expiring or self._digest.expiring:
            for rows in JudgedRows(self._source.table, self._as_of).pieces():
                expiring.update(rows)
            self._compare(found_expiring, expiring)
        self._phases.next()

    def _compare(self, found: RowDigest, written: RowDigest) -> None:
        if found.digest() != written.digest():
            raise StoreCorrupted(
                f"{self._target.name} has {found.rows:,} rows with the digest "
                f"{found.digest().hex()}, and {written.rows:,} with the digest "
                f"{written.digest().hex()} were written; copy to another place"
            )

    def _finish(self) -> None:
        done = CopyPlace(b"\xff", self._digest.digest(), is_done=True)
        self._target.table.submit([done.write()])()

    def _summary(self) -> Copied:
        judged = self._judged
        return Copied(
            rows=self._digest.rows,
            rolled_back_rows=judged.rolled_back,
            left_out_rows=judged.left_out,
            undecided=tuple(sorted(judged.undecided)),
            digest=self._digest.digest().hex(),
            as_of_ms=self._as_of.before_ms - 1,
            was_complete=self._was_complete,
        )


def _placed_anew(source: OrderedTable, target: OrderedTable) -> list[Topic]:
    """Returns the topics with their places in the target, where one has shards."""
    among = target.shards if isinstance(target, HasShards) else ()
    if not among and not isinstance(source, HasShards):
        return []
    loads: Counter[int] = Counter()
    found: list[Topic] = []
    for topic in TopicTable(source).all():
        properties = {k: v for k, v in topic.properties.items() if k != SHARDS}
        if among:
            most = max(topic.partitions, topic.former_partitions)
            shards = placed(most, among, loads=loads)
            loads.update(shards)
            properties[SHARDS] = shards_text(shards)
        found.append(attrs.evolve(topic, properties=properties))
    return found


def _rows_of(table: OrderedTable) -> Iterator[list[Row]]:
    for first_byte in KINDS.copied:
        for rows in pieces(table, first_byte, limit=PIECE_ROWS):
            yield [(first_byte + key, value) for key, value in rows]


def _count_up_to(rows: Sequence[Row], place: CopyPlace) -> int:
    return bisect_right(rows, place.key, key=itemgetter(0))


def _fresh_snapshot(coordinator: Coordinator) -> Transaction:
    """Returns the second of two snapshots: Tephra sees up to the last ended one."""
    coordinator.snapshot()
    return coordinator.snapshot()


def _records(
    snapshot: Transaction, lowest: int, now_ms: int, known: Sequence[Record]
) -> Iterable[Record]:
    """Yields the records by which all copied transactions belong here, and are over.

    The answer is no about a transaction that was open or invalid, or that the source
    began later. `known` are the outcomes that the source knows. Without them all are
    forgotten, but for transactions that were open or invalid.
    """
    excluded = [*snapshot.invalids, *snapshot.in_progress]
    highest = snapshot.transaction_id
    yield Reached(min([lowest, *excluded]), highest)
    # What lies between the two has no record, and so is lost.
    yield Reserved(max(highest, now_ms * POINTERS_PER_MS))
    if known:
        yield from _known_by(highest, known)
    else:
        yield Truncated((KNOWN_ABOVE, highest))
    if excluded:
        yield Invalidated(now_ms, excluded)


def _known_by(highest: int, known: Iterable[Record]) -> Iterator[Record]:
    """Yields the known records that are no newer than the copy's moment.

    The source may have been killed, and opened again, since that moment.
    """
    for record in known:
        if isinstance(record, Lost | Lived):
            if record.first <= highest:
                yield attrs.evolve(record, last=min(record.last, highest))
        elif not isinstance(record, Aborted) or record.transaction_id <= highest:
            yield record
