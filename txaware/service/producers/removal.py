"""Removes the rows of producers: those that expired, and one that is forgotten."""

import logging

from txaware.clock import ClockMs
from txaware.interfaces import OrderedTable, Write
from txaware.service.producers.producer_ids import ProducerIds
from txaware.service.producers.sequences import SequenceKey, Sequences, Turn
from txaware.store.producer_table import ProducerRow, sequence_key

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
    ) -> None:
        self._table = table
        self._ids = ids
        self._sequences = sequences
        self._clock_ms = clock_ms
        self._expiry_s = expiry_s

    def clean_up(self) -> int:
        """Removes all producers that were not used for too long; returns how many."""
        now_ms, removed = self._clock_ms(), 0
        rows = {row.producer_id: row for row in self._sequences.rows.producers()}
        last_ms = {one: row.opened_ms for one, row in rows.items()}
        for producer_id, _, state in self._sequences.rows.all_states():
            if producer_id in rows:
                last_ms[producer_id] = max(last_ms[producer_id], state.last_ms)
        for producer_id, row in rows.items():
            if last_ms[producer_id] + self._kept_ms(row) < now_ms:
                removed += self._remove_unless_used(row, now_ms)
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
                    turns.append(line.enter(self._table))
                writes.append((sequence_key(producer_id, name), None))
            if before_ms is not None:
                states = self._sequences.rows.states(producer_id)
                if any(state.last_ms >= before_ms for _, state in states):
                    return False
            self._ids.forget(row, writes)
            return True
        finally:
            for turn in turns:
                turn.leave(sure=False)

    def _kept_ms(self, row: ProducerRow) -> int:
        kept_s = self._expiry_s
        if row.by_client:
            kept_s = min(kept_s, CLIENT_EXPIRY_S)
        return int(kept_s * 1000)
