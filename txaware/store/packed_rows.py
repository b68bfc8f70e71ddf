"""Rows that hold a batch of messages, compressed: made, and read as single messages.

All messages of a batch are of one millisecond, and its row has the key of the last one.
So whoever reads from a message on comes to the row, and what is removed by time goes as
a whole. The others have the keys before it, without a gap.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from txaware.errors import BadRequest, MissingExtra, StoreCorrupted, Unavailable
from txaware.model.compression import (
    Packed,
    compression_at,
    number_of_compression,
)
from txaware.model.interfaces import Row, Write
from txaware.model.packed_batches import unpack
from txaware.model.requests import Payloads
from txaware.store.columns import MORE, PACKED, PLAIN, decode, value_head
from txaware.store.keys import ROW_KEY_BYTES, row_key

# How it is compressed, how many messages there are, and their size unpacked.
_PACKED = struct.Struct(">BII")
_PACKED_TAG = PLAIN | MORE
# The tag, the number of columns, and the name of the first one; no name is before it.
_NAME_AT = 2
_LAST_TIME = b"\xff" * 8


class PackedSpan(NamedTuple):
    """A batch among single messages: the place of its first one, and its row's key."""

    first: int
    row_key: bytes
    packed: Packed

    @property
    def last(self) -> int:
        """The place behind its last message."""
        return self.first + self.packed.count


def packed_rows(prefix: bytes, packed: Packed, keys: list[bytes]) -> list[Write]:
    """Returns the one row of a batch whose messages have these keys."""
    number = number_of_compression(packed.compression)
    column = _PACKED.pack(number, packed.count, packed.size_bytes)
    head = value_head(None, more={PACKED: column})
    return [(prefix + keys[-1], head + packed.data)]


def is_packed(value: bytes) -> bool:
    """Tells whether a message row holds a batch."""
    return value[0] == _PACKED_TAG and value[_NAME_AT : _NAME_AT + 1] == PACKED


def packed_of(value: bytes) -> Packed:
    """Returns the batch of a row that has one; `StoreCorrupted` for a damaged one."""
    columns = decode(value)
    try:
        number, count, size_bytes = _PACKED.unpack(columns.more[PACKED])
        name = compression_at(number)
    except (struct.error, KeyError) as error:
        raise StoreCorrupted(
            f"a row of {len(value)} bytes has a batch that nobody can unpack: {error}"
        ) from error
    return Packed(name, count, size_bytes, columns.payload or b"")


def unpacked_row(key: bytes, value: bytes) -> tuple[list[bytes], Payloads]:
    """Returns the messages of a row that holds a batch, and their keys."""
    packed = packed_of(value)
    try:
        payloads = unpack(packed)
    except BadRequest as error:
        raise StoreCorrupted(f"the batch at {key.hex()} is damaged: {error}") from error
    except MissingExtra as error:
        raise Unavailable(f"the batch at {key.hex()} cannot be read: {error}") from (
            error
        )
    return [*_keys_to(key, packed.count)], payloads


def _keys_to(last: bytes, count: int) -> Iterator[bytes]:
    """Yields the keys of a batch up to its last one."""
    time, first = last[:8], int.from_bytes(key_before(last, count - 1)[8:], "big")
    for sequence in range(first, first + count):
        yield time + sequence.to_bytes(2, "big")


def key_before(key: bytes, count: int) -> bytes:
    """Returns the key so many messages before another one of the same batch."""
    sequence = int.from_bytes(key[8:], "big") - count
    if count < 0 or sequence < 0:
        raise StoreCorrupted(f"no batch of {count + 1} messages ends at {key.hex()}")
    return key[:8] + sequence.to_bytes(2, "big")


def first_key(key: bytes, value: bytes) -> bytes:
    """Returns the key of the first message of a row; `key` is that of the last."""
    return key_before(key, packed_of(value).count - 1) if is_packed(value) else key


def message_keys(rows: Sequence[Row]) -> Iterator[bytes]:
    """Yields the key of each message of rows, without unpacking any."""
    for key, value in rows:
        if is_packed(value):
            yield from _keys_to(key, packed_of(value).count)
        else:
            yield key


def count_messages(rows: Sequence[Row], *, start: bytes) -> int:
    """Returns how many messages rows have from `start` on, without unpacking any.

    The rows are those of a range that begins there, perhaps within a batch, and ends
    within none.
    """
    return sum([_count_from(key, value, start) for key, value in rows])


def _count_from(key: bytes, value: bytes, start: bytes) -> int:
    if not is_packed(value):
        return 1
    count = packed_of(value).count
    if key_before(key, count - 1) >= start:
        return count
    last = int.from_bytes(key[8:], "big")
    is_behind = len(start) > ROW_KEY_BYTES
    return last - int.from_bytes(start[8:ROW_KEY_BYTES], "big") + 1 - is_behind


def stop_with_batches(stop: bytes) -> bytes:
    """Returns the key to read up to, for a batch that a range ends within."""
    time = stop[:8]
    if len(stop) < ROW_KEY_BYTES or time == _LAST_TIME or stop == time + bytes(2):
        return stop
    return row_key(int.from_bytes(time, "big") + 1)
