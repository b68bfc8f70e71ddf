"""Removes the rows of producers: those that expired, and one that is forgotten.

A transactional id goes with its producer, and so do its commits and its keys.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from coordinator.transaction import POINTERS_PER_MS
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable, Write
from txaware.model.markers import COMMITTED
from txaware.service.producers.producer_ids import ProducerIds, RowsBeside
from txaware.service.producers.sequences import SequenceKey, Sequences, Turn
from txaware.service.producers.transactional_holders import Holders
from txaware.store.columns import pointer_of
from txaware.store.interfaces import pieces
from txaware.store.kinds import COMMITS, commits_prefix
from txaware.store.producer_table import (
    ProducerRow,
    TransactionalIdTable,
    sequence_key,
    transactional_id_key,
)
from txaware.store.versioned_rows import VersionedRows

log = logging.getLogger(__name__)

# A producer that a client opened by a publish serves the repeats of that client, which
# come within minutes.
CLIENT_EXPIRY_S = 3600


class ProducerRemoval:
    """Removes all rows of a producer, between two of its publishes."""

    def __init__(
        self,
        table: OrderedTable,
        ids: ProducerIds,
        sequences: Sequences,
        holders: Holders,
        clock_ms: ClockMs,
        *,
        expiry_s: float,
        transactional_expiry_s: float,
    ) -> None:
        self._table = table
        self._transactional = TransactionalIdTable(table)
        self._versions = VersionedRows(table)
        self._transactional_expiry_s = transactional_expiry_s
        self._ids = ids
        self._sequences = sequences
        self._holders = holders
        self._clock_ms = clock_ms
        self._expiry_s = expiry_s

    def clean_up(self) -> int:
        """Removes all producers that were not used for too long; returns how many.

        Sequences whose producer is gone go as well: earlier versions left some.
        """
        now_ms, removed = self._clock_ms(), 0
        rows = {row.producer_id: row for row in self._sequences.rows.producers()}
        last_ms = {one: self._began_ms(row) for one, row in rows.items()}
        left = set()
        for producer_id, _, state in self._sequences.rows.all_states():
            if producer_id in rows:
                last_ms[producer_id] = max(last_ms[producer_id], state.last_ms)
            else:
                left.add(producer_id)
        for producer_id, row in rows.items():
            kept_ms = self._kept_ms(row)
            if kept_ms and last_ms[producer_id] + kept_ms < now_ms:
                removed += self._remove_unless_used(row, now_ms - kept_ms)
        for producer_id in left:
            self._remove_left(producer_id)
        self._ids.counts()  # so that metrics know how many there are
        if removed:
            log.info("%d producers have expired", removed)
        return removed

    def remove(self, row: ProducerRow) -> None:
        """Removes a producer, used or not; the lock of its holder is held."""
        self._forget(row, partial(self._rows_beside, row))

    def _remove_unless_used(self, row: ProducerRow, before_ms: int) -> bool:
        """Removes a producer; keeps it if it was used at `before_ms` or later."""
        rows = partial(self._rows_beside, row, before_ms=before_ms)
        if row.transactional_id is None:
            return self._forget(row, rows)
        with self._holders.of(row.transactional_id).lock:
            return self._forget(row, rows)

    def _forget(self, row: ProducerRow, rows: RowsBeside) -> bool:
        is_gone, name = self._ids.forget(row, rows), row.transactional_id
        if is_gone and name is not None and self._transactional.get(name) is None:
            self._holders.let_go(name)
        return is_gone

    def _remove_left(self, producer_id: int) -> None:
        """Removes the sequences of a producer that is not there."""
        with self._all_turns(producer_id) as sequences:
            if not self._ids.is_anywhere(producer_id):
                self._table.submit(sequences)()

    @contextmanager
    def _rows_beside(
        self, row: ProducerRow, *, before_ms: int | None = None
    ) -> Iterator[list[Write] | None]:
        """Has a producer publish nothing; yields what removes its rows beside `row`.

        Yields None if the producer stays: it was used meanwhile, or is not there.
        """
        with self._all_turns(row.producer_id) as sequences:
            now = self._ids.find(row.producer_id)
            is_unused = before_ms is None or (now and self._used_ms(now) < before_ms)
            if now is not None and is_unused:
                yield [*sequences, *self._named_rows(now)]
            else:
                yield None

    @contextmanager
    def _all_turns(self, producer_id: int) -> Iterator[list[Write]]:
        """Takes the turns of a producer in all topics, those that are new to it too.

        Yields what removes its sequences.
        """
        turns = [Turn()]
        writes: list[Write] = []
        try:
            self._sequences.enter_first(producer_id, turns[0])
            for name, _ in list(self._sequences.rows.states(producer_id)):
                turns.append(Turn())
                with self._sequences.using(SequenceKey(producer_id, name)) as line:
                    line.enter(self._table, turns[-1])
                writes.append((sequence_key(producer_id, name), None))
            yield writes
        finally:
            for turn in reversed(turns):
                turn.leave(sure=False)

    def _used_ms(self, row: ProducerRow) -> int:
        states = self._sequences.rows.states(row.producer_id)
        last_ms = max([state.last_ms for _, state in states], default=0)
        return max(self._began_ms(row), last_ms)

    def _began_ms(self, row: ProducerRow) -> int:
        """Returns when a producer was opened, or began its last transaction."""
        if row.transactional_id is None:
            return row.opened_ms
        prefix = COMMITS.prefix_of((row.transactional_id, COMMITTED))
        last = next(self._versions.newest_first(prefix), None)
        pointer = 0 if last is None else abs(pointer_of(last) or 0)
        holder = self._holders.known(row.transactional_id)
        if holder is not None:  # whose row may be on its way
            pointer = max(pointer, holder.pointer)
        return max(row.opened_ms, pointer // POINTERS_PER_MS)

    def _named_rows(self, row: ProducerRow) -> list[Write]:
        """Returns what removes the rows of a transactional id, if this producer has it.

        It may have got another producer, whose commits these are then.
        """
        name = row.transactional_id
        if name is None or self._transactional.get(name) != row.producer_id:
            return []
        writes: list[Write] = [(transactional_id_key(name), None)]
        commits = commits_prefix(name)
        for rows in pieces(self._table, commits):
            writes += [(commits + key, None) for key, _ in rows]
        return writes

    def _kept_ms(self, row: ProducerRow) -> int:
        """Returns how long a producer stays after its last use; 0 is for ever."""
        kept_s = self._expiry_s
        if row.transactional_id is not None:
            kept_s = self._transactional_expiry_s
        if row.by_client:
            kept_s = min(kept_s, CLIENT_EXPIRY_S)
        return int(kept_s * 1000)
