"""Batches of messages, compressed as a whole: packed, and unpacked with a check.

Unpacked, a batch is columns: the size of each payload (4), one byte that says which of
the next two there are, the size of each key and one more (2, 0 for none), the size of
each message's headers (4), and behind them all payloads, all keys and all headers.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

import attrs

from txaware.errors import BadRequest
from txaware.model.compression import (
    MOST_PACKED_MESSAGES,
    MOST_UNPACKED_BYTES,
    Compression,
    Packed,
)
from txaware.model.labels import (
    NO_HEADERS,
    Labels,
    check_key_bytes,
    is_any_said,
    labels_or_none,
    repacked,
)
from txaware.model.requests import Payloads

_KEYS, _HEADERS = 1, 2


def pack(payloads: Payloads, compression: Compression) -> Packed | None:
    """Compresses messages that were checked; None where they are to go as they are.

    That is what expires by itself, is too much for one batch, or gets no smaller.
    """
    count = len(payloads)
    if payloads.expire_after_s is not None or not 0 < count <= MOST_PACKED_MESSAGES:
        return None
    labels = payloads.labels or Labels.nothing(count)
    flags, sizes, keys, headers = 0, b"", labels.keys, labels.headers
    if is_any_said(keys):
        flags |= _KEYS
        sizes = _packed("H", [0 if key is None else len(key) + 1 for key in keys])
    if any(headers):
        flags |= _HEADERS
        sizes += _packed("I", [*map(len, headers)])
    parts = [_packed("I", [*map(len, payloads.payloads)]), bytes([flags]), sizes]
    parts += payloads.payloads
    parts += filter(None, keys)
    parts += headers
    data = b"".join(parts)
    if len(data) > MOST_UNPACKED_BYTES:
        return None
    packed = compression.compress(data)
    if len(packed) >= len(data):
        return None
    return Packed(compression.name, count, len(data), packed)


def unpack(packed: Packed) -> Payloads:
    """Returns the messages of a batch, each of them checked, but for its size.

    Raises `BadRequest` for what is damaged.
    """
    columns = _BatchColumns(packed.unpacked())
    count = packed.count
    sizes, flags = columns.sizes("I", count), columns.take(1)[0]
    if flags & ~(_KEYS | _HEADERS):
        raise BadRequest("a compressed batch has columns that nobody knows")
    key_sizes = columns.sizes("H", count) if flags & _KEYS else ()
    header_sizes = columns.sizes("I", count) if flags & _HEADERS else ()
    payloads = columns.values(sizes)
    labels, size_bytes = None, sum(sizes)
    if flags:
        labels = _labels(columns, key_sizes, header_sizes, count)
        size_bytes += 0 if labels is None else labels.size_bytes
    columns.check_end()
    return Payloads(payloads, size_bytes, None, labels, packed)


def _labels(
    columns: "_BatchColumns",
    key_sizes: Sequence[int],
    header_sizes: Sequence[int],
    count: int,
) -> Labels | None:
    keys: list[bytes | None] = [None] * count
    headers: list[bytes] = [NO_HEADERS] * count
    if key_sizes:
        check_key_bytes(max(key_sizes) - 1)
        if 0 in key_sizes:
            found = columns.values([max(0, size - 1) for size in key_sizes])
            of_keys = zip(found, key_sizes, strict=True)
            keys = [key if size else None for key, size in of_keys]
        else:
            keys = [*columns.values([size - 1 for size in key_sizes])]
    if header_sizes:
        headers = columns.values(header_sizes)
        if [*map(repacked, headers)] != headers:
            raise BadRequest("a message of a compressed batch has wrong headers")
    return labels_or_none(keys, headers)


def _packed(form: str, sizes: Sequence[int]) -> bytes:
    return struct.pack(f">{len(sizes)}{form}", *sizes)


@attrs.define
class _BatchColumns:
    """The columns of a batch, which are taken from its beginning to its end."""

    data: bytes
    at: int = 0

    def take(self, size_bytes: int) -> bytes:
        """Returns the next bytes."""
        at, self.at = self.at, self.at + size_bytes
        if self.at > len(self.data):
            raise BadRequest(f"a compressed batch is cut off at {len(self.data)} bytes")
        return self.data[at : self.at]

    def sizes(self, form: str, count: int) -> Sequence[int]:
        """Returns so many sizes."""
        data = self.take(struct.calcsize(f">{count}{form}"))
        return struct.unpack(f">{count}{form}", data)

    def values(self, sizes: Sequence[int]) -> list[bytes]:
        """Returns the next values, of these sizes."""
        data = self.take(sum(sizes))
        return [
            data[first:last] for first, last in pairwise(accumulate(sizes, initial=0))
        ]

    def check_end(self) -> None:
        """Raises where bytes are left."""
        if self.at != len(self.data):
            raise BadRequest("a compressed batch has bytes behind its messages")
