"""The versions of users' rows: one for each transaction that changed a key.

The key of a version is the table, the user's key, and the pointer. The user's key is
written so that order stays: zero bytes are followed by 0xff, and two zeros end it.
"""

from collections.abc import Callable, Iterator

from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.rows import KeyRange, RowChange
from txaware.model.topics import TableName
from txaware.store.columns import (
    EXPIRY,
    POINTED,
    decode,
    decode_expiry,
    encode_expiry,
    value_head,
)
from txaware.store.keys import POINTER_BYTES, TABLE, after, pointer_key

# That of `FindsLast`, where the table has it.
LastValue = Callable[[bytes, bytes], bytes | None]
# The last part of a key that is greater than every pointer's.
ABOVE_POINTERS = b"\xff" * POINTER_BYTES
# A zero byte in a key, and the end of a key.
ZERO, END = b"\0\xff", b"\0\0"
# The bytes of a version's key that follow the user's key.
BEHIND_KEY = len(END) + POINTER_BYTES
# The bytes of a version's value, where it has no other column, before the payload.
BEHIND_POINTER = 1 + POINTER_BYTES
# The newest version is nearly always the one that its reader sees.
FIRST_LOOK, MOST_ROWS = 1, 1000


def escaped(key: bytes) -> bytes:
    """Returns a user's key so that no other one continues it, in the same order."""
    return key.replace(b"\0", ZERO)


def versions_prefix(table: TableName, key: bytes) -> bytes:
    """Returns the beginning of the keys of all versions of one row."""
    return TABLE + table.key + escaped(key) + END


def unescaped(key: bytes) -> bytes:
    """Returns the user's key that `escaped` was given."""
    return key.replace(ZERO, b"\0")


def name_of(version: bytes) -> TableName:
    """Returns the table's name, from the whole key of a version."""
    namespace, name, _ = version[1:].split(b":", 2)
    return TableName(name.decode("ascii"), namespace.decode("ascii"))


def version_write(
    table: TableName, pointer: int, change: RowChange, now_ms: int
) -> Write:
    """Makes the version that a change writes; one without a payload deletes the row."""
    more = {}
    if change.expire_after_s is not None:
        more[EXPIRY] = encode_expiry(now_ms + int(change.expire_after_s * 1000))
    head = value_head(pointer, reference=change.value is None, more=more)
    key = versions_prefix(table, change.key) + pointer_key(pointer)
    return key, head if change.value is None else head + change.value


def value_at(version: bytes, now_ms: int) -> bytes | None:
    """Returns the value of a version; None if it deletes its row, or has expired."""
    if version[0] == POINTED:
        return version[BEHIND_POINTER:]
    columns = decode(version)
    expiry = columns.more.get(EXPIRY)
    if expiry is not None and decode_expiry(expiry) <= now_ms:
        return None
    return columns.payload


def expires(version: bytes) -> bool:
    """Tells whether a version has a time at which it expires."""
    return EXPIRY in decode(version).more


class TableVersions:
    """The versions of all tables' rows, which their reader judges by the pointers."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table
        self._last_value: LastValue | None = getattr(table, "last_value", None)

    def newest(self, prefix: bytes) -> bytes | None:
        """Returns the newest version of a row, if one look finds it; else None."""
        if self._last_value is None:
            return None
        return self._last_value(prefix, prefix + ABOVE_POINTERS)

    def newest_first(self, prefix: bytes) -> Iterator[bytes]:
        """Reads the versions of one row, from the greatest pointer down."""
        stop, limit = None, FIRST_LOOK
        while rows := self._table.scan(prefix, stop=stop, limit=limit, reverse=True):
            for _, value in rows:
                yield value
            stop, limit = rows[-1][0], MOST_ROWS

    def within(
        self, table: TableName, keys: KeyRange, *, at_once: int
    ) -> Iterator[list[Row]]:
        """Reads the versions of a range in order, without the name of the table."""
        prefix = TABLE + table.key
        start, stop = bounds_of(keys)
        while rows := self._table.scan(prefix, start=start, stop=stop, limit=at_once):
            yield rows
            start = rows[-1][0] + b"\0"

    def names(self) -> Iterator[TableName]:
        """Lists every table that has a row, with one look for each."""
        start = b""
        while rows := self._table.scan(TABLE, start=start, limit=1):
            found = name_of(TABLE + rows[0][0])
            yield found
            start = after(found.key)


def bounds_of(keys: KeyRange) -> tuple[bytes, bytes | None]:
    """Returns where the versions of a range begin and stop, in the order of keys."""
    start, stop = escaped(keys.prefix), None
    if keys.prefix.rstrip(b"\xff"):
        stop = after(start)
    if keys.start is not None:
        start = max(start, escaped(keys.start))
    if keys.stop is not None:
        before = escaped(keys.stop)
        stop = before if stop is None else min(stop, before)
    return start, stop
