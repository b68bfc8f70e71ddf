"""The keys and headers of many messages, as columns of one record in Avro.

All keys lie in one value, and all packed headers in another. Each has its places: where
every one of them begins, and where the last one ends. A byte for each message tells
whether it has a key, so that an empty key is not taken for none.
"""

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import cast

from txaware.errors import BadRequest
from txaware.http.wire.avro_reading import Cursor
from txaware.http.wire.avro_writing import data_bytes, optional
from txaware.labels import NO_HEADERS, Labels, checked_keys, packed, unpacked

PLACE_BYTES = 4


def write_labels(labels: Labels | None) -> bytes:
    """Writes a union of null and the labels of some messages."""
    return optional(labels, _label_columns)


def _label_columns(labels: Labels) -> bytes:
    keys, headers = labels.keys, labels.headers
    known, listed = b"", cast(Sequence[bytes], keys)
    if None in keys:
        known = bytes([key is not None for key in keys])
        listed = [key or b"" for key in keys]
    packed_headers = _column(headers) if any(headers) else (b"", b"")
    return b"".join(map(data_bytes, (known, *_column(listed), *packed_headers)))


def _column(values: Sequence[bytes]) -> tuple[bytes, bytes]:
    return places_of(values), b"".join(values)


def places_of(values: Sequence[bytes]) -> bytes:
    """Returns where each value begins, and the last one ends, in 32 bits each."""
    places = array("i", accumulate(map(len, values), initial=0))
    if sys.byteorder == "big":
        places.byteswap()
    return places.tobytes()


def read_labels(cursor: Cursor, count: int) -> Labels | None:
    """Reads the labels of so many messages, or null."""
    if not cursor.branch(2):
        return None
    known = cursor.data()
    values = _read_column(cursor, count)
    keys: Sequence[bytes | None] = values
    if known:
        if len(known) != count or max(known) > 1:
            raise BadRequest(f"{cursor.what} does not tell which message has a key")
        keys = [key if has else None for key, has in zip(values, known, strict=True)]
    headers = _read_column(cursor, count, missing=NO_HEADERS)
    return Labels(keys, headers)


def _read_column(
    cursor: Cursor, count: int, *, missing: bytes | None = None
) -> list[bytes]:
    data, values = cursor.data(), cursor.data()
    if missing is not None and not data and not values:
        return [missing] * count
    if len(data) != PLACE_BYTES * (count + 1):
        raise BadRequest(f"{cursor.what} has labels of other messages than its own")
    places = array("i", data)
    if sys.byteorder == "big":
        places.byteswap()
    if places[0] or places[-1] != len(values):
        raise BadRequest(f"{cursor.what} has labels that do not fill their value")
    rising = places.tolist()
    if rising != sorted(rising):
        raise BadRequest(f"{cursor.what} has labels whose places do not rise")
    return [values[start:end] for start, end in pairwise(rising)]


def checked_labels(labels: Labels | None) -> Labels | None:
    """Returns labels as a publish may have them; `BadRequest` for any others."""
    if labels is None:
        return None
    headers = labels.headers
    keys = checked_keys([*labels.keys])
    if not labels.is_mixed:
        return Labels.of_keys(cast(list[bytes], keys))
    if any(headers):
        headers = [packed(unpacked(each)) for each in headers]
    return Labels(keys, headers)
