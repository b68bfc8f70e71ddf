"""Checks message rows, and that the payloads of each reference are there."""

from array import array
from collections.abc import Mapping

from txaware.errors import StoreCorrupted
from txaware.service.check.groups import (
    Judging,
    RowGroup,
    grouped,
    is_plain_value,
    read_receipts,
)
from txaware.service.check.journal import BATCHES
from txaware.service.check.table_scan import (
    READ_BYTES,
    READ_ROWS,
    CheckScan,
)
from txaware.store.columns import ATTEMPT, PACKED, PLAIN, RECEIPTS, Columns, decode
from txaware.store.interfaces import CheckedRows
from txaware.store.keys import MESSAGE, ROW_KEY_BYTES, payload_prefix
from txaware.store.packed_rows import is_packed, unpacked_row

# The pointers of references, eight bytes each, to look payload rows up in.
Named = dict[bytes, "array[int]"]


class MessageCheck:
    """One walk over all message rows."""

    def __init__(self, judging: Judging, *, now_ms: int) -> None:
        self.named: Named = {}
        self._judging = judging
        self._counts = judging.findings.counts
        self._now_ms = now_ms
        self._group: RowGroup | None = None
        self._last_key = b""
        self._highest = 0
        self._highest_key = b""
        self._stored: tuple[bytes, Mapping[bytes, int]] | None = None

    def run(self, scan: CheckScan) -> None:
        """Checks all message rows, in order."""
        group_of = grouped(self._judging, MESSAGE, ROW_KEY_BYTES)
        for key, value in scan.table(MESSAGE):
            group = group_of(key)
            if group is not self._group:
                self._leave()
                self._group = group
            if group is not None:
                self._last_key = key
                self._row(group, key, value)
        self._leave()

    def _leave(self) -> None:
        """Ends a group: keys rise, so the last one has the greatest time."""
        if self._group is not None:
            time_ms = int.from_bytes(self._last_key[-ROW_KEY_BYTES:-2], "big")
            self._judging.check_time(MESSAGE, self._last_key, time_ms)
            if self._highest:
                self._judging.suspect(self._highest_key, self._highest)
        self._highest = 0

    def _row(self, group: RowGroup, key: bytes, value: bytes) -> None:
        if not is_plain_value(value):
            self._uncommon_row(group, key, value)
            return
        self._counts["messages"] += 1
        if not group.is_current:
            self._counts["rows of older generations"] += 1
        if value[0] != PLAIN:
            self._pointer(group, key, int.from_bytes(value[1:9], "big", signed=True))

    def _uncommon_row(self, group: RowGroup, key: bytes, value: bytes) -> None:
        columns = self._judging.columns(MESSAGE + key, value)
        if columns is None:
            return
        if not group.is_current:
            self._counts["rows of older generations"] += 1
        if columns.pointer is not None:
            self._pointer(group, key, columns.pointer)
        if columns.payload is not None:
            self._counts["messages"] += 1
            if PACKED in columns.more:
                self._batch(group, key, value)
            return
        self._counts["references"] += 1
        pointer = abs(columns.pointer or 0)
        self.named.setdefault(group.prefix, array("q")).append(pointer)
        self._reference(group, key, columns)

    def _batch(self, group: RowGroup, key: bytes, value: bytes) -> None:
        """Checks that a batch can be unpacked, and that its messages have room."""
        self._counts[BATCHES] += 1
        tail = key[-ROW_KEY_BYTES:]
        try:
            if group.is_of_queue or not is_packed(value):
                raise StoreCorrupted("only plain messages of a topic are in a batch")
            keys, _ = unpacked_row(tail, value)
        except StoreCorrupted as error:
            self._judging.problem("batch", MESSAGE + key, str(error))
            return
        self._counts["messages"] += len(keys) - 1
        of_group = MESSAGE + group.prefix
        found = self._judging.rows.scan(of_group, start=keys[0], limit=1)
        if found and found[0][0] < tail:
            self._judging.problem(
                "batch",
                MESSAGE + key,
                f"the message {found[0][0].hex()} stands among those of the batch",
            )

    def _pointer(self, group: RowGroup, key: bytes, pointer: int) -> None:
        if pointer <= 0:
            self._counts["rolled back"] += 1
            if pointer == 0:
                self._judging.problem("pointer", MESSAGE + key, "pointer 0 is nobody's")
            pointer = -pointer
        elif pointer in self._judging.uncommitted.invalid:
            self._counts["invalid and not marked"] += 1
            self._judging.findings.needs(str(group.topic.topic), pointer)
        elif pointer in self._judging.uncommitted.lost:
            self._counts["lost in a crash and not marked"] += 1
        if pointer > self._highest:
            self._highest, self._highest_key = pointer, MESSAGE + key

    def _reference(self, group: RowGroup, key: bytes, columns: Columns) -> None:
        """Checks that all rows that a reference names exist, while it is read."""
        receipts, pointer = columns.more.get(RECEIPTS), columns.pointer or 0
        if (
            group.is_of_queue
            or receipts is None
            or pointer <= 0
            or not self._is_read(group, key)
        ):
            return
        if pointer in self._judging.uncommitted:
            return
        named = read_receipts(receipts)
        stored = self._counts_of(group.prefix, pointer)
        missing = {
            attempt: count
            for attempt, count in named.items()
            if stored.get(attempt, 0) != count
        }
        if missing and self._is_still_there(group, key, columns):
            attempt, count = next(iter(missing.items()))
            self._judging.problem(
                "reference",
                MESSAGE + key,
                f"transaction {pointer} names {count} rows of attempt "
                f"{attempt.hex() or '-'} in {group.topic.topic}, and "
                f"{stored.get(attempt, 0)} are stored",
            )

    def _is_read(self, group: RowGroup, key: bytes) -> bool:
        time_ms = int.from_bytes(key[-ROW_KEY_BYTES:-2], "big")
        return group.is_current and time_ms > group.topic.live_from_ms(self._now_ms)

    def _is_still_there(self, group: RowGroup, key: bytes, columns: Columns) -> bool:
        value = self._judging.rows.get(MESSAGE + key)
        topic = self._judging.topic(group.topic.topic.key, anew=True)
        return (
            topic is not None
            and topic.generation == group.generation
            and value is not None
            and decode(value).pointer == columns.pointer
        )

    def _counts_of(self, prefix: bytes, pointer: int) -> Mapping[bytes, int]:
        """Returns rows by attempt; remembers them for the next reference."""
        of = payload_prefix(prefix, pointer)
        if self._stored is None or self._stored[0] != of:
            self._stored = of, stored_counts(self._judging.rows, of)
        return self._stored[1]


def stored_counts(rows: CheckedRows, prefix: bytes) -> dict[bytes, int]:
    """Returns how many payload rows each attempt of a transaction has."""
    counts: dict[bytes, int] = {}
    start = b""
    while found := rows.scan(
        prefix, start=start, limit=READ_ROWS, max_bytes=READ_BYTES
    ):
        for _, value in found:
            attempt = b""
            if value[:1] != b"\0":
                try:
                    attempt = decode(value).more.get(ATTEMPT, b"")
                except Exception:
                    continue  # a problem of its own, found in its own table
            counts[attempt] = counts.get(attempt, 0) + 1
        start = found[-1][0] + b"\0"
    return counts
