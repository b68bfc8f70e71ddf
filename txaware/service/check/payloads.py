"""Checks payload rows, and the marks of references."""

from array import array
from bisect import bisect_left

from txaware.service.check.groups import (
    PAYLOAD_TAIL_BYTES,
    Judging,
    RowGroup,
    grouped,
    is_plain_value,
    read_receipts,
)
from txaware.service.check.messages import Named, stored_counts
from txaware.service.check.table_scan import CheckScan
from txaware.store.keys import (
    MARK,
    PAYLOAD,
    POINTER_BYTES,
    ROW_KEY_BYTES,
    payload_prefix,
)

NO_POINTERS: "array[int]" = array("q")
MAX_POINTER = 2**63 - 1
MARKS = (b"o", b"c", b"d")


def check_payloads(scan: CheckScan, judging: Judging, named: Named) -> None:
    """Checks payload rows; counts those that no reference names."""
    counts, group_of = (
        judging.findings.counts,
        grouped(judging, PAYLOAD, PAYLOAD_TAIL_BYTES),
    )
    pointers = {prefix: array("q", sorted(found)) for prefix, found in named.items()}
    before, pointer, latest_ms, is_named = b"", 0, 0, False
    last_key = b""
    for key, value in scan.table(PAYLOAD):
        group = group_of(key)
        if group is None:
            continue
        counts["payloads"] += 1
        if key[:-ROW_KEY_BYTES] != before:
            _leave_payloads(judging, last_key, pointer, latest_ms)
            before, latest_ms = key[:-ROW_KEY_BYTES], 0
            pointer = int.from_bytes(before[-POINTER_BYTES:], "big")
            is_named = _contains(pointers.get(group.prefix, NO_POINTERS), pointer)
            check_key_pointer(judging, PAYLOAD + key, pointer)
        if not is_named:
            counts["payloads without a reference"] += 1
        last_key = key
        latest_ms = max(latest_ms, int.from_bytes(key[-ROW_KEY_BYTES:-2], "big"))
        if not is_plain_value(value):
            columns = judging.columns(PAYLOAD + key, value)
            if columns is not None and columns.payload is None:
                judging.problem("value", PAYLOAD + key, "a payload row has no payload")
    _leave_payloads(judging, last_key, pointer, latest_ms)


def _leave_payloads(
    judging: Judging, last_key: bytes, pointer: int, latest_ms: int
) -> None:
    if last_key:
        judging.check_time(PAYLOAD, last_key, latest_ms)
        judging.suspect(PAYLOAD + last_key, pointer)


def _contains(ascending: "array[int]", pointer: int) -> bool:
    place = bisect_left(ascending, pointer)
    return place < len(ascending) and ascending[place] == pointer


def check_key_pointer(judging: Judging, key: bytes, pointer: int) -> None:
    """Checks that a pointer in a key may be that of a transaction."""
    if not 0 < pointer <= MAX_POINTER:
        judging.problem("pointer", key, f"{pointer} is nobody's pointer")


def check_marks(scan: CheckScan, judging: Judging) -> None:
    """Checks that the marks of references agree with the stored payloads."""
    group_of = grouped(judging, MARK, POINTER_BYTES)
    for key, value in scan.table(MARK):
        judging.findings.counts["marks"] += 1
        group = group_of(key)
        if group is None:
            continue
        pointer = int.from_bytes(key[-POINTER_BYTES:], "big")
        check_key_pointer(judging, MARK + key, pointer)
        try:
            if value[:1] not in MARKS:
                raise ValueError(f"a mark is not {value[:1]!r}")
            named = read_receipts(value[1:])
        except ValueError as error:
            judging.problem("value", MARK + key, str(error))
            continue
        is_over = value[:1] == b"d" or not group.is_current or group.is_of_queue
        if not is_over and pointer not in judging.uncommitted:
            _check_mark(judging, group, key, pointer, named)


def _check_mark(
    judging: Judging, group: RowGroup, key: bytes, pointer: int, named: dict[bytes, int]
) -> None:
    if not named:
        return
    stored = stored_counts(judging.rows, payload_prefix(group.prefix, pointer))
    for attempt, count in named.items():
        if stored.get(attempt, 0) != count:
            value = judging.rows.get(MARK + key)
            if value is None or value[:1] == b"d":
                return
            judging.problem(
                "mark",
                MARK + key,
                f"a reference of transaction {pointer} in {group.topic.topic} named "
                f"{count} rows of attempt {attempt.hex() or '-'}, and "
                f"{stored.get(attempt, 0)} are stored",
            )
