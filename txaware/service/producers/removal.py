"""Removes the rows of producers: those that expired, and one that is forgotten.

A transactional id goes with its producer, and so do its commits and its keys.
"""

import logging

from coordinator.transaction import POINTERS_PER_MS
from txaware.clock import ClockMs
from txaware.interfaces import OrderedTable, Write
from txaware.markers import COMMITS, producer_marker
from txaware.service.producers.producer_ids import ProducerIds
from txaware.service.producers.sequences import SequenceKey, Sequences, Turn
from txaware.store.position_table import PositionTable
from txaware.store.producer_table import ProducerRow, sequence_key
from txaware.store.transactional_id_table import TransactionalIdTable, removals

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
        clock_ms: ClockMs,
        *,
        expiry_s: float,
        transactional_expiry_s: float,
    ) -> None:
        self._table = table
        self._transactional = TransactionalIdTable(table)
        self._positions = PositionTable(table)
        self._transactional_expiry_s = transactional_expiry_s
        self._ids = ids
        self._sequences = sequences
        self._clock_ms = clock_ms
        self._expiry_s = expiry_s

    def clean_up(self) -> int:
        """Removes all producers that were not used for too long; returns how many."""
        now_ms, removed = self._clock_ms(), 0
        rows = {row.producer_id: row for row in self._sequences.rows.producers()}
        last_ms = {one: self._began_ms(row) for one, row in rows.items()}
        for producer_id, _, state in self._sequences.rows.all_states():
            if producer_id in rows:
                last_ms[producer_id] = max(last_ms[producer_id], state.last_ms)
        for producer_id, row in rows.items():
            kept_ms = self._kept_ms(row)
            if kept_ms and last_ms[producer_id] + kept_ms < now_ms:
                removed += self._remove_unless_used(row, now_ms)
        self._ids.counts()  # so that metrics know how many there are
        if removed:
            log.info("%d producers have expired", removed)
        return removed

    def remove(self, row: ProducerRow) -> None:
        """Removes a producer, used or not."""
        self._remove(row, before_ms=None)

    def _remove_unless_used(self, row: ProducerRow, now_ms: int) -> bool:
        return self._remove(row, before_ms=now_ms - self._kept_ms(row))

    def _remove(self, row: ProducerRow, *, before_ms: int | None) -> bool:
        """Removes a producer; keeps it if it was used at `before_ms` or later."""
        producer_id = row.producer_id
        turns: list[Turn] = []
        writes: list[Write] = []
        try:
            for name, _ in list(self._sequences.rows.states(producer_id)):
                with self._sequences.using(SequenceKey(producer_id, name)) as line:
                    turns.append(Turn())
                    line.enter(self._table, turns[-1])
                writes.append((sequence_key(producer_id, name), None))
            if before_ms is not None:
                states = self._sequences.rows.states(producer_id)
                if any(state.last_ms >= before_ms for _, state in states):
                    return False
            writes += self._named_rows(row)
            self._ids.forget(row, writes)
            return True
        finally:
            for turn in turns:
                turn.leave(sure=False)

    def _began_ms(self, row: ProducerRow) -> int:
        """Returns when a producer was opened, or began its last transaction."""
        if row.transactional_id is None:
            return row.opened_ms
        marker = producer_marker(row.transactional_id)
        last = next(self._positions.newest_first(marker, COMMITS), None)
        began_ms = 0 if last is None else abs(last.pointer) // POINTERS_PER_MS
        return max(row.opened_ms, began_ms)

    def _named_rows(self, row: ProducerRow) -> list[Write]:
        """Returns what removes the rows of a transactional id, if this producer has it.

        It may have got another producer, whose commits these are then.
        """
        name = row.transactional_id
        if name is None or self._transactional.get(name) != row.producer_id:
            return []
        return removals(self._transactional.rows_of(name))

    def _kept_ms(self, row: ProducerRow) -> int:
        """Returns how long a producer stays after its last use; 0 is for ever."""
        kept_s = self._expiry_s
        if row.transactional_id is not None:
            kept_s = self._transactional_expiry_s
        if row.by_client:
            kept_s = min(kept_s, CLIENT_EXPIRY_S)
        return int(kept_s * 1000)
