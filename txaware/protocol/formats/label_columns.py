"""The keys and headers of many messages, as columns of one record in Avro.

All keys lie in one value, and all packed headers in another. Each has its places: where
every one of them begins, and where the last one ends. A byte for each message tells
whether it has a key, so that an empty key is not taken for none.
"""

import struct
from collections.abc import Sequence
from io import BytesIO
from itertools import accumulate
from operator import sub
from typing import cast

from txaware.errors import BadRequest
from txaware.model.labels import (
    NO_HEADERS,
    Labels,
    check_key_bytes,
    checked_keys,
    packed,
    unpacked,
)
from txaware.protocol.formats.avro_reading import Cursor
from txaware.protocol.formats.avro_writing import data_bytes, optional

PLACE_BYTES = 4


def write_labels(labels: Labels | None) -> bytes:
    """Writes a union of null and the labels of some messages."""
    return optional(labels, _label_columns)


def _label_columns(labels: Labels) -> bytes:
    keys, headers = labels.keys, labels.headers
    known, listed = b"", cast(Sequence[bytes], keys)
    columns: tuple[bytes, ...] = (b"", b"")
    if labels.sizes is None:
        if None in keys:
            known = bytes([key is not None for key in keys])
            listed = [key or b"" for key in keys]
        if any(headers):
            columns = places_of([*map(len, headers)]), b"".join(headers)
    sizes = [*map(len, listed)] if labels.sizes is None else labels.sizes
    columns = known, places_of(sizes), b"".join(listed), *columns
    return b"".join(map(data_bytes, columns))


def places_of(sizes: Sequence[int]) -> bytes:
    """Returns where each value begins, and the last one ends, in 32 bits each."""
    return struct.pack(f"<{len(sizes) + 1}i", *accumulate(sizes, initial=0))


def read_labels(cursor: Cursor, count: int) -> Labels | None:
    """Reads the labels of so many messages, or null."""
    if not cursor.branch(2):
        return None
    known = cursor.data()
    values, sizes = _cut(cursor, count, cursor.data(), cursor.data())
    keys: Sequence[bytes | None] = values
    if known:
        if len(known) != count or max(known) > 1:
            raise BadRequest(f"{cursor.what} does not tell which message has a key")
        keys = [key if has else None for key, has in zip(values, known, strict=True)]
    places, data = cursor.data(), cursor.data()
    if places or data:
        return Labels(keys, _cut(cursor, count, places, data)[0])
    return Labels(keys, [NO_HEADERS] * count, None if known else sizes)


def _cut(
    cursor: Cursor, count: int, data: bytes, values: bytes
) -> tuple[list[bytes], list[int]]:
    """Returns the values of a column, and their sizes."""
    if len(data) != PLACE_BYTES * (count + 1):
        raise BadRequest(f"{cursor.what} has labels of other messages than its own")
    places = struct.unpack(f"<{count + 1}i", data)
    if places[0] or places[-1] != len(values):
        raise BadRequest(f"{cursor.what} has labels that do not fill their value")
    sizes = [*map(sub, places[1:], places)]
    if min(sizes, default=0) < 0:
        raise BadRequest(f"{cursor.what} has labels whose places do not rise")
    # A read takes half the time of a slice that is made for each.
    return [*map(BytesIO(values).read, sizes)], sizes


def checked_labels(labels: Labels | None) -> Labels | None:
    """Returns labels as a publish may have them; `BadRequest` for any others."""
    if labels is None:
        return None
    headers = labels.headers
    if labels.sizes is not None:
        check_key_bytes(max(labels.sizes, default=0))
        return labels
    keys = checked_keys([*labels.keys])
    if any(headers):
        headers = [packed(unpacked(each)) for each in headers]
    return Labels(keys, headers)
