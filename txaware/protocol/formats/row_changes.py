"""Changes of a table's rows in Avro, for values that JSON would make too large."""

from collections.abc import Iterable

from txaware.model.avro_items import long_bytes
from txaware.model.requests import checked_pointer
from txaware.model.rows import RowChange
from txaware.protocol.formats.avro_reading import Cursor, read
from txaware.protocol.formats.avro_writing import array, data_bytes, optional

# The most that a row takes in such a body beside its key and its value, and the rest of
# the body.
BESIDE_ROW_BYTES = 64


def encode_changes(pointer: int, changes: Iterable[RowChange]) -> bytes:
    """Writes the changes that a transaction saves."""
    return long_bytes(pointer) + array([*map(_change_bytes, changes)])


def read_changes(body: bytes) -> tuple[int, list[RowChange]]:
    """Reads the transaction's pointer and its changes."""
    return read(body, _changes, what="the changes")


def expire_after_ms(change: RowChange) -> int | None:
    """Returns after how many ms a row expires, at least 1; None for never."""
    after_s = change.expire_after_s
    return None if after_s is None else max(1, int(after_s * 1000))


def expire_after_s(after_ms: int | None) -> float | None:
    """Returns these ms as a change has them."""
    return None if after_ms is None else after_ms / 1000


def _change_bytes(change: RowChange) -> bytes:
    return b"".join(
        (
            data_bytes(change.key),
            optional(change.value, data_bytes),
            optional(expire_after_ms(change), long_bytes),
        )
    )


def _changes(cursor: Cursor) -> tuple[int, list[RowChange]]:
    pointer = checked_pointer(cursor.number())
    return pointer, [_change(cursor) for some in cursor.blocks() for _ in range(some)]


def _change(cursor: Cursor) -> RowChange:
    return RowChange(
        cursor.data(),
        cursor.data() if cursor.branch(2) else None,
        expire_after_s(cursor.number() if cursor.branch(2) else None),
    )
