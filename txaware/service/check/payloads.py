"""Checks payload rows, marks and positions."""

from array import array
from bisect import bisect_left

from txaware.errors import BadRequest
from txaware.model.markers import checked_producer_marker, is_producer_marker
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.topics import TopicName, checked_group
from txaware.service.check.commits import CommitCheck
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
    POSITION,
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
            _check_key_pointer(judging, PAYLOAD + key, pointer)
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


def _check_key_pointer(judging: Judging, key: bytes, pointer: int) -> None:
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
        _check_key_pointer(judging, MARK + key, pointer)
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


def check_positions(scan: CheckScan, judging: Judging) -> None:
    """Checks that positions are in known topics, with the pointer of their key."""
    commits = CommitCheck(judging)
    for key, value in scan.table(POSITION):
        judging.findings.counts["positions"] += 1
        name = _position_topic(judging, key)
        if name is None:
            continue
        position = _check_position(judging, key, value, name)
        group = key[: key.index(b":")].decode("ascii")
        if position is not None and is_producer_marker(group):
            commits.check(key, group, name, value, position)


def _position_topic(judging: Judging, key: bytes) -> TopicName | None:
    try:
        text = key[:-POINTER_BYTES].decode("ascii")
        group, namespace, topic, rest = text.split(":")
        is_marker = is_producer_marker(group)
        if is_marker:
            name = checked_producer_marker(group, TopicName(topic, namespace))
        else:
            checked_group(group)
            name = TopicName.parse(f"{namespace}:{topic}")
        if rest:
            raise ValueError(f"{rest!r} stands behind the topic's name")
    except (ValueError, BadRequest) as error:
        judging.problem("key", POSITION + key, f"no position has that key: {error}")
        return None
    if not is_marker and judging.topic(name.key) is None:
        judging.problem("topic", POSITION + key, f"{name} is no topic of this data")
        return None
    return name


def _check_position(
    judging: Judging, key: bytes, value: bytes, name: TopicName
) -> MessageId | None:
    """Returns the position; None where it cannot be read."""
    columns = judging.columns(POSITION + key, value)
    if columns is None:
        return None
    named = int.from_bytes(key[-POINTER_BYTES:], "big")
    _check_key_pointer(judging, POSITION + key, named)
    pointer, position = columns.pointer, columns.payload
    if pointer is None or abs(pointer) != named:
        judging.problem(
            "pointer",
            POSITION + key,
            f"the key names transaction {named}, and the row {pointer}",
        )
    elif pointer > 0 and pointer in judging.uncommitted.invalid:
        judging.findings.needs(str(name), pointer)
    judging.suspect(POSITION + key, named)
    if position is None or len(position) != ID_BYTES:
        judging.problem("position", POSITION + key, "a position has 20 bytes")
        return None
    return MessageId(position)
