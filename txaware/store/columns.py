"""The columns of a row as one value, whose first byte tells which columns it has.

`message_rows` makes the rows of messages from what is published.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import cast

import attrs

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import Write
from txaware.model.labels import NO_HEADERS, Labels
from txaware.model.requests import Payloads

# As in CDAP's LevelDB tables: 0 payload, 1 pointer and payload, 2 pointer only.
PLAIN, POINTED, REFERENCE = 0, 1, 2
# Our own flag: more columns precede the payload, each with name byte and size.
MORE = 4

EXPIRY, ATTEMPT, RECEIPTS, PRODUCED = b"e", b"a", b"r", b"s"
# A batch of compressed messages, of which the payload is. No name of a message row is
# before this one.
PACKED = b"b"
# The labels of a message. Columns lie in the order of their names, so a key is last.
HEADERS, KEY = b"h", b"y"

_POINTER = struct.Struct(">q")
_POINTED_HEAD = struct.Struct(">Bq").pack
_PLAIN_HEAD = bytes([PLAIN])
_PLAIN_WITH_ONE = bytes([PLAIN | MORE, 1])
_MORE = struct.Struct(">cI")
# The count of columns, the name of the only one, and the high half of its size.
_KEY_ALONE = b"\1" + KEY + bytes(2)
_BEHIND_POINTER = {PLAIN | MORE: 1, POINTED | MORE: 9}
# A slice that is made once takes two thirds of the time of one in a loop.
_pointer_bytes = itemgetter(slice(1, 9))
_behind_tag = itemgetter(slice(1, None))
_behind_pointer = itemgetter(slice(9, None))


class KeySlices:
    """Finds the key, and the payload behind it, in values of one tag.

    `keys` and `payloads` are by the size of the key, up to the largest. `head` is all
    before the key, of `head_bytes`; the six last of them are behind the pointer.
    """

    def __init__(self, tag: int, *, most: int = 255) -> None:
        first = self.head_bytes = _BEHIND_POINTER[tag] + len(_KEY_ALONE) + 2
        self.head = itemgetter(slice(first))
        self.keys = [slice(first, first + size) for size in range(most + 1)]
        self.payloads = [slice(first + size, None) for size in range(most + 1)]


_KEY_SLICES = {tag: KeySlices(tag) for tag in _BEHIND_POINTER}


@attrs.frozen
class Columns:
    """The columns of a row: `pointer` is t, `payload` is p, `more` are all others."""

    pointer: int | None = None
    payload: bytes | None = None
    more: Mapping[bytes, bytes] = attrs.field(factory=dict)


def value_head(
    pointer: int | None, *, reference: bool = False, more: Mapping[bytes, bytes] = {}
) -> bytes:
    """Encodes a value up to its payload, the same for all messages of a request."""
    if not reference and not more:  # nearly always
        return _PLAIN_HEAD if pointer is None else _POINTED_HEAD(POINTED, pointer)
    tag = REFERENCE if reference else PLAIN if pointer is None else POINTED
    parts = [bytes([tag | MORE if more else tag])]
    if pointer is not None:
        parts.append(_POINTER.pack(pointer))
    if more:
        parts.append(bytes([len(more)]))
        for name, value in more.items():
            parts += (_MORE.pack(name, len(value)), value)
    return b"".join(parts)


class KeyedHeads(dict[int, bytes]):
    """The bytes before the key of a value, by the size of the key; each made once.

    To find out all sizes beforehand would take as long as half of the values.
    """

    def __init__(self, pointer: int | None, more: Mapping[bytes, bytes]) -> None:
        self._pointer = pointer
        self._more = more

    def __missing__(self, size: int) -> bytes:
        head = value_head(self._pointer, more={**self._more, KEY: bytes(size)})
        self[size] = head[: len(head) - size]
        return self[size]


_PLAIN_HEADS = KeyedHeads(None, {})


def keyed_values(
    keys: Sequence[bytes],
    payloads: Sequence[bytes],
    *,
    pointer: int | None,
    more: Mapping[bytes, bytes] = {},
    sizes: Sequence[int] | None = None,
    heads: KeyedHeads | None = None,
) -> Iterator[bytes]:
    """Encodes values that have a key each; `sizes` of these may be known already.

    `heads` are those of the same pointer and columns, for who has several parts.
    """
    sizes = [*map(len, keys)] if sizes is None else sizes
    if heads is None:
        is_plain = pointer is None and not more
        heads = _PLAIN_HEADS if is_plain else KeyedHeads(pointer, more)
    # Without a step in Python for each value.
    return map(
        b"".join, zip(map(heads.__getitem__, sizes), keys, payloads, strict=True)
    )


@attrs.frozen
class KeyedValues:
    """The columns of some values that have a key each, and nothing beside it."""

    pointers: list[int] | None
    keys: list[bytes]
    payloads: list[bytes]
    sizes: Sequence[int]


def plain_payloads(values: Sequence[bytes]) -> list[bytes]:
    """Decodes values that have a payload and nothing else."""
    return [*map(_behind_tag, values)]


def pointed_payloads(values: Sequence[bytes]) -> list[bytes]:
    """Decodes the payloads of values that have a pointer beside it."""
    return [*map(_behind_pointer, values)]


def pointers_of(values: Sequence[bytes]) -> list[int]:
    """Reads the pointers of values that all have one."""
    data = b"".join(map(_pointer_bytes, values))
    if len(data) != 8 * len(values):
        raise StoreCorrupted("a row is cut off before its pointer ends")
    pointers = array("q", data)
    if sys.byteorder == "little":
        pointers.byteswap()
    return pointers.tolist()


def _pointers_in(heads: bytes, step: int) -> list[int]:
    """Reads the pointers of heads that follow one another, a byte of all at a time."""
    data = bytearray(8 * (len(heads) // step))
    for place in range(8):
        data[place::8] = heads[place + 1 :: step]
    pointers = array("q", bytes(data))
    if sys.byteorder == "little":
        pointers.byteswap()
    return pointers.tolist()


def decode_keyed(values: Sequence[bytes]) -> KeyedValues | None:
    """Decodes values at once; None unless all of them have a key and nothing else.

    A row with a key has to cost as little as one without: `decode` takes ten times as
    long.
    """
    tag, count = values[0][0], len(values)
    slices = _KEY_SLICES.get(tag)
    if slices is None:
        return None
    # What stands before each key, for all values at once.
    heads, step = b"".join(map(slices.head, values)), slices.head_bytes
    first = step - 6
    named = [heads[place::step] for place in (0, *range(first, first + 4))]
    if len(heads) != step * count or named != [
        bytes([tag]) * count,
        b"\1" * count,
        KEY * count,
        bytes(count),
        bytes(count),
    ]:
        return None  # there are other columns, or a key of 64 KiB
    high, low = heads[step - 2 :: step], heads[step - 1 :: step]
    sizes: Sequence[int] = low
    if any(high):
        sizes = [(more << 8) + size for more, size in zip(high, low, strict=True)]
        slices = KeySlices(tag, most=max(sizes))
    at = slices.keys
    keys = [value[at[size]] for value, size in zip(values, sizes, strict=True)]
    at = slices.payloads
    payloads = [value[at[size]] for value, size in zip(values, sizes, strict=True)]
    if not all(payloads) and [*map(len, keys)] != [*sizes]:
        return None  # one of them is cut off
    pointers = None if tag == PLAIN | MORE else _pointers_in(heads, step)
    return KeyedValues(pointers, keys, payloads, sizes)


def key_span(value: bytes) -> tuple[int, int]:
    """Returns where the key of a value begins and ends, if it has nothing else.

    For any other value both are 0. The payload follows the key.
    """
    at = _BEHIND_POINTER.get(value[0], 0)
    if not at or value[at : at + 4] != _KEY_ALONE:
        return 0, 0
    start = at + 6
    end = start + int.from_bytes(value[at + 4 : start], "big")
    return (start, end) if end <= len(value) else (0, 0)


def decode(value: bytes) -> Columns:
    """Decodes the columns of any value."""
    try:
        kind, at, pointer = value[0] & 3, 1, None
        if kind != PLAIN:
            (pointer,) = _POINTER.unpack_from(value, 1)
            at = 9
        more: dict[bytes, bytes] = {}
        if value[0] & MORE:
            at, more = _decode_more(value, at)
        if value[0] > (REFERENCE | MORE) or kind == PLAIN | POINTED | REFERENCE:
            raise StoreCorrupted(f"a row has an unknown tag: {value[:1].hex()}")
        return Columns(pointer, None if kind == REFERENCE else value[at:], more)
    except (IndexError, struct.error) as error:
        raise StoreCorrupted(f"a row of {len(value)} bytes is cut off") from error


def _decode_more(value: bytes, at: int) -> tuple[int, dict[bytes, bytes]]:
    more = {}
    count, at = value[at], at + 1
    for _ in range(count):
        name, size = _MORE.unpack_from(value, at)
        at += _MORE.size + size
        if at > len(value):
            raise StoreCorrupted("a column is longer than its row")
        more[name] = value[at - size : at]
    return at, more


def with_column(value: bytes, name: bytes, data: bytes) -> bytes:
    """Returns the value of the same row with one more column, in the order of names."""
    if value[:1] == _PLAIN_HEAD:  # nearly always, and a fifth of the time
        return _PLAIN_WITH_ONE + _MORE.pack(name, len(data)) + data + value[1:]
    columns = decode(value)
    more = dict(sorted({**columns.more, name: data}.items()))
    is_reference = columns.payload is None
    head = value_head(columns.pointer, reference=is_reference, more=more)
    return head + (columns.payload or b"")


def is_reference(value: bytes) -> bool:
    """Tells whether a message row has no payload of its own."""
    return value[0] & 3 == REFERENCE


def pointer_of(value: bytes) -> int | None:
    """Reads column t alone."""
    if value[0] & 3 == PLAIN:
        return None
    pointer: int = _POINTER.unpack_from(value, 1)[0]
    return pointer


def negated(value: bytes) -> bytes:
    """Returns the value of the same row, rolled back."""
    (pointer,) = _POINTER.unpack_from(value, 1)
    return value[:1] + _POINTER.pack(-abs(pointer)) + value[9:]


_EXPIRY = struct.Struct(">q")
_RECEIPT = struct.Struct(">BI")


def encode_expiry(time_ms: int) -> bytes:
    """Encodes column e."""
    return _EXPIRY.pack(time_ms)


def decode_expiry(data: bytes) -> int:
    """Reads column e."""
    time_ms: int = _EXPIRY.unpack(data)[0]
    return time_ms


def encode_receipts(counts: Mapping[bytes, int]) -> bytes:
    """Encodes column r: attempts, and the number of rows of each."""
    return b"".join(
        _RECEIPT.pack(len(attempt), count) + attempt
        for attempt, count in counts.items()
    )


def decode_receipts(data: bytes) -> dict[bytes, int]:
    """Reads column r."""
    counts, at = {}, 0
    while at < len(data):
        size, count = _RECEIPT.unpack_from(data, at)
        at += _RECEIPT.size + size
        counts[data[at - size : at]] = count
    return counts


def message_rows(
    prefix: bytes,
    payloads: Payloads,
    keys: list[bytes],
    *,
    pointer: int | None = None,
    more: Mapping[bytes, bytes] = MappingProxyType({}),
    heads: KeyedHeads | None = None,
) -> list[Write]:
    """Returns the rows of a request, as fast as most of them allow."""
    labels = payloads.labels
    said, expires = NO_HEADERS, payloads.expire_after_s is not None
    if labels is not None and not expires:
        said = labels.alone
    if expires or (labels is not None and labels.is_mixed and not said):
        return _mixed_rows(prefix, payloads, keys, pointer=pointer, more=more)
    if labels is None or said:
        head = value_head(pointer, more={**more, HEADERS: said} if said else more)
        return [
            (prefix + key, head + payload)
            for key, payload in zip(keys, payloads.payloads, strict=True)
        ]
    values = keyed_values(
        cast(list[bytes], labels.keys),
        payloads.payloads,
        pointer=pointer,
        more=more,
        sizes=labels.sizes,
        heads=heads,
    )
    return [*zip([prefix + key for key in keys], values, strict=True)]


def _mixed_rows(
    prefix: bytes,
    payloads: Payloads,
    keys: list[bytes],
    *,
    pointer: int | None,
    more: Mapping[bytes, bytes],
) -> list[Write]:
    """Returns rows each of which has its own columns."""
    count = len(payloads)
    labels = payloads.labels or Labels.nothing(count)
    after_s = payloads.expire_after_s or [None] * count
    columns = zip(labels.headers, labels.keys, after_s, strict=True)
    return [
        (
            prefix + key,
            value_head(pointer, more=_columns(key, more, *each)) + payload,
        )
        for key, payload, each in zip(keys, payloads.payloads, columns, strict=True)
    ]


def _columns(
    key: bytes,
    more: Mapping[bytes, bytes],
    headers: bytes,
    label: bytes | None,
    after_s: float | None,
) -> dict[bytes, bytes]:
    """Returns the columns of a row beside pointer and payload, by their names."""
    columns = dict(more)
    if after_s is not None:
        time_ms = int.from_bytes(key[:8], "big")
        columns[EXPIRY] = encode_expiry(time_ms + int(after_s * 1000))
    if headers:
        columns[HEADERS] = headers
    if label is not None:
        columns[KEY] = label
    return columns
