"""Writing: the rows of a batch are put with its timestamp, as often as needed."""

from collections.abc import Iterable
from typing import Any

import attrs

from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import Write
from txaware.store.columns import PLAIN
from txaware.store.hbase.cells import FAMILY, PAYLOAD_CELL, expiry_ms, to_cells
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.salting import Salt
from txaware.store.hbase.schema import SALTED, kind_of
from txaware.store.keys import MESSAGE, ROW_KEY_BYTES

# The most that goes in one call.
CALL_ROWS, CALL_BYTES = 2000, 4 << 20
# HBase may forget a message by itself so long after it has expired: clocks differ.
EXPIRY_GRACE_MS = 3_600_000
# One call has one lifetime. So messages expire at full hours. Those that live for at
# least so many hours expire at every second hour, twice as many at every fourth.
LIFETIME_STEPS = 16

_PLAIN = bytes([PLAIN])

# Rows that go in one call: of one table, with one lifetime.
Group = tuple[str, int | None]


@attrs.define
class WrittenRows:
    """The mutations that are collected for a call."""

    mutations: list[Any] = attrs.field(factory=list)
    size_bytes: int = 0


class Writing:
    """The writer of rows; all puts and deletes have a timestamp and may be repeated.

    `now_ms` is the time of the store, and `clock_ms` that of the timestamps.
    """

    def __init__(
        self,
        connections: HBaseConnections,
        *,
        now_ms: ClockMs,
        clock_ms: ClockMs = system_clock_ms,
        expiry_grace_ms: int = EXPIRY_GRACE_MS,
    ) -> None:
        self._connections = connections
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._expiry_grace_ms = expiry_grace_ms

    def write(self, writes: Iterable[Write], *, time_ms: int) -> None:
        """Writes rows; all of them are there when this returns."""
        batch_mutation = self._connections.structs.BatchMutation
        salt, now_ms, age_ms = Salt(), self._now_ms(), self._clock_ms() - time_ms
        calls: dict[Group, WrittenRows] = {}
        for key, value in writes:
            kind = kind_of(key)
            mutations, until_ms = self._mutations(key, value)
            lifetime_ms = None
            if until_ms is not None:
                end_ms = self._end_ms(key, until_ms)
                left_ms = max(0, end_ms - now_ms) + self._expiry_grace_ms
                # HBase counts from the timestamp, and this may be a late repeat.
                lifetime_ms = max(1, age_ms + left_ms)
            group = kind, lifetime_ms
            call = calls.get(group)
            if call is None:
                call = calls[group] = WrittenRows()
            row = salt.key(key) if kind in SALTED else key
            call.mutations.append(batch_mutation(row, mutations))
            call.size_bytes += len(value or b"")
            if len(call.mutations) >= CALL_ROWS or call.size_bytes >= CALL_BYTES:
                self._put(group, calls.pop(group), time_ms)
        for group, call in calls.items():
            self._put(group, call, time_ms)

    def _mutations(
        self, key: bytes, value: bytes | None
    ) -> tuple[list[Any], int | None]:
        """Returns the mutations of a row, and the time at which it expires by itself.

        A stored payload stays until the janitor removes it: references count those.
        """
        mutation = self._connections.structs.Mutation
        if value is None:
            return [mutation(isDelete=True, column=FAMILY)], None
        if value[:1] == _PLAIN and key[:1] == MESSAGE:  # nearly all rows of most stores
            return [mutation(False, PAYLOAD_CELL, value[1:])], None
        cells = to_cells(key, value)
        mutations = [mutation(False, name, data) for name, data in cells.items()]
        return mutations, expiry_ms(cells) if key[:1] == MESSAGE else None

    def _end_ms(self, key: bytes, until_ms: int) -> int:
        """Returns a time, at or after its own, when a message may go with others.

        All versions of a message go at the same time: else an older would come back.
        """
        born_ms = int.from_bytes(key[-ROW_KEY_BYTES:-2], "big")
        step_ms = max(1, self._expiry_grace_ms)
        steps = max(0, until_ms - born_ms) // (LIFETIME_STEPS * step_ms)
        step_ms <<= steps.bit_length()
        return -(-until_ms // step_ms) * step_ms

    def _put(self, group: Group, call: WrittenRows, time_ms: int) -> None:
        kind, lifetime_ms = group
        table = self._connections.address.table(kind)
        attributes = {}
        if lifetime_ms is not None:
            attributes[b"_ttl"] = lifetime_ms.to_bytes(8, "big")
        self._connections.repeat(
            lambda client: client.mutateRowsTs(
                table, call.mutations, time_ms, attributes
            )
        )
