"""Versioned rows: one for each transaction that wrote a name, the greatest visible one.

The key of a version ends with the pointer of its transaction. Its value has that, too,
negative once rolled back; a value without a payload says that nothing is there.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import attrs

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.settings import Settings
from txaware.model.topics import TopicName
from txaware.store.columns import (
    EXPIRY,
    POINTED,
    decode,
    decode_expiry,
    encode_expiry,
    pointer_of,
    value_head,
)
from txaware.store.interfaces import FindsLast, negate
from txaware.store.keys import POINTER_BYTES, after, pointer_key
from txaware.store.row_kinds import PointerAt, RowKind

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

# The newest version is nearly always the one that its reader sees.
FIRST_LOOK, MOST_ROWS = 1, 1000
# The last part of a key that is greater than every pointer's.
ABOVE_POINTERS = b"\xff" * POINTER_BYTES
# The bytes of a value before its payload, where it has no other column.
BEHIND_POINTER = 1 + POINTER_BYTES


class Codec(NamedTuple, Generic[T]):
    """Writes values as bytes, and reads them: `ValueError` says what is wrong."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]


def _of_no_topic(_: object) -> None:
    return None


@attrs.frozen(eq=False, kw_only=True)
class VersionedKind(RowKind, Generic[K, V]):
    """A kind of versioned row: how its names and its values are written.

    `key` is for what stands between the first byte and the pointer. It lets no name
    begin with another one. A check says of a row that it is a `noun`, and of a value
    that cannot be read that there is a problem of the kind `problem`; the topic that
    `topic` names has to exist, and `owner` names what needs an invalid transaction to
    be remembered.

    Where it `may_delete`, a version without a payload deletes what is there.

    `reason` is the field of `CleanUp` that counts removed versions. After `trim_after`
    writes of a name its versions are looked through. All of a name go `kept_s` seconds
    after its last write, but for ever stays what that is None or 0 for. Where
    `is_listed`, a clean-up reads only what was written since, not all rows.
    """

    key: Codec[K]
    value: Codec[V]
    noun: str
    problem: str = "value"
    topic: Callable[[K], TopicName | None] = _of_no_topic
    owner: Callable[[K], str] = str
    may_delete: bool = True
    reason: str = "table_versions"
    trim_after: int = 16
    kept_s: Callable[[K, Settings], float | None] | None = None
    is_listed: bool = False
    pointer_at: PointerAt = PointerAt.VALUE
    is_rolled_back: bool = True

    def prefix_of(self, name: K) -> bytes:
        """Returns the beginning of the keys of all versions of a name."""
        return self.table + self.key.encode(name)

    def name_of(self, row: bytes) -> K:
        """Returns the name from the beginning of its keys; else a `ValueError`."""
        name = self.key.decode(row[1:])
        if self.prefix_of(name) != row:
            raise ValueError("nobody writes it so")
        return name

    def key_of(self, name: K, pointer: int) -> bytes:
        """Returns the whole key of a version."""
        return self.table + self.key.encode(name) + pointer_key(pointer)

    def write(
        self, name: K, pointer: int, value: V | None, *, expires_ms: int | None = None
    ) -> Write:
        """Makes a version; None for the value deletes what is there."""
        key = self.key_of(name, pointer)
        if value is not None and expires_ms is None:  # nearly always
            return key, value_head(pointer) + self.value.encode(value)
        more = {} if expires_ms is None else {EXPIRY: encode_expiry(expires_ms)}
        head = value_head(pointer, reference=value is None, more=more)
        return key, head if value is None else head + self.value.encode(value)

    def row(self, key: bytes, version: bytes) -> tuple[K, V | None]:
        """Returns the name and the value of a version by its whole key."""
        return self.name_of(without_pointer(key)), self.read(version)

    def read(self, version: bytes) -> V | None:
        """Returns the value of a version, expired or not; None if it deletes."""
        payload = payload_at(version, 0)
        try:
            return None if payload is None else self.value.decode(payload)
        except ValueError as error:
            raise StoreCorrupted(f"a {self.noun} cannot be read: {error}") from error


def payload_at(version: bytes, now_ms: int) -> bytes | None:
    """Returns the payload of a version; None if it deletes, or has expired by now."""
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


class JudgesVersions(Protocol):
    """A reader, as far as it decides about versions."""

    def verdict(self, pointer: int | None) -> int:
        """Returns 0 for what the reader gets."""


class VersionedRows:
    """The versions of all kinds, which their reader judges by the pointers."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table
        self._last_value: Callable[[bytes, bytes], bytes | None] | None
        self._last_value = table.last_value if isinstance(table, FindsLast) else None

    def newest(self, prefix: bytes) -> bytes | None:
        """Returns the newest version of a name, if one look finds it; else None."""
        if self._last_value is None:
            return None
        return self._last_value(prefix, prefix + ABOVE_POINTERS)

    def newest_first(self, prefix: bytes) -> Iterator[bytes]:
        """Reads the versions of one name, from the greatest pointer down."""
        stop, limit = None, FIRST_LOOK
        while rows := self._table.scan(prefix, stop=stop, limit=limit, reverse=True):
            for _, value in rows:
                yield value
            stop, limit = rows[-1][0], MOST_ROWS

    def visible(
        self, prefix: bytes, judge: JudgesVersions, *, but: int | None = None
    ) -> bytes | None:
        """Returns the newest version that the judge delivers, or None.

        That of the transaction `but` does not count.
        """
        try:
            newest = self.newest(prefix)
            if newest is not None:
                pointer = pointer_of(newest) or 0
                if abs(pointer) != but and not judge.verdict(pointer):
                    return newest
            for version in self.newest_first(prefix):
                pointer = pointer_of(version) or 0
                if abs(pointer) != but and not judge.verdict(pointer):
                    return version
        except (IndexError, struct.error) as error:
            raise StoreCorrupted(
                f"a version of the row {prefix.hex()} is cut off; txaware check tells "
                f"more"
            ) from error
        return None

    def has_any(self, prefix: bytes) -> bool:
        """Tells whether a name was ever written, visible or not."""
        if self.newest(prefix) is not None:
            return True
        return bool(self._table.scan(prefix, limit=1))

    def take_back(self, keys: Iterable[bytes]) -> None:
        """Negates versions, named by whole keys, as far as they were written."""
        found = [(key, self._table.get(key)) for key in keys]
        self.negate(found)

    def negate(self, writes: Iterable[Write]) -> None:
        """Negates versions that were written, or that a batch to come writes."""
        rows = [(key, value) for key, value in writes if value is not None]
        if rows:
            negate(self._table, rows)

    def first_of_each(
        self, prefix: bytes, cut: Callable[[bytes], bytes], *, stop: bytes | None = None
    ) -> Iterator[Row]:
        """Reads the first row of each beginning that `cut` makes of a key.

        Keys come whole; `stop` is without the prefix. Where a beginning has few rows,
        one look reads many of them; where it has many, a look finds the next one.
        """
        start, limit, last = b"", 1, None
        while rows := self._table.scan(prefix, start=start, stop=stop, limit=limit):
            firsts = 0
            for end, value in rows:
                key = prefix + end
                beginning = cut(key)
                if beginning != last:
                    firsts, last = firsts + 1, beginning
                    yield key, value
            start = after(beginning)[len(prefix) :]
            limit = min(4 * limit, MOST_ROWS) if 2 * firsts >= len(rows) else 1


def without_pointer(version: bytes) -> bytes:
    """Returns the beginning of the keys of all versions of the same name."""
    return version[:-POINTER_BYTES]


# Any kind, where its names and values are passed on.
AnyKind = VersionedKind[Any, Any]
