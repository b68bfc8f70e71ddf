"""Keys and headers, the labels of messages: their limits, and headers as bytes."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Self, cast

import attrs

from txaware.errors import BadRequest
from txaware.model.message_fields import check_names, tagged_fields

MAX_KEY_BYTES = 1 << 10
MAX_HEADERS_BYTES = 1 << 16
MOST_LABEL_BYTES = MAX_KEY_BYTES + MAX_HEADERS_BYTES

_SIZES = struct.Struct(">HI")
NO_HEADERS = b""


@attrs.frozen
class Labels:
    """The keys and packed headers of some messages, in two lists of one length.

    `sizes` are those of the keys, if every message has one, and none has headers.
    """

    keys: Sequence[bytes | None]
    headers: Sequence[bytes]
    sizes: Sequence[int] | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def of_keys(cls, keys: Sequence[bytes], sizes: Sequence[int] | None = None) -> Self:
        """Returns the labels of messages that have a key each, and nothing else."""
        return cls(keys, [NO_HEADERS] * len(keys), sizes or compact([*map(len, keys)]))

    @classmethod
    def nothing(cls, count: int) -> Self:
        """Returns the labels of messages that have none."""
        return cls([None] * count, [NO_HEADERS] * count)

    @classmethod
    def joined(cls, parts: Iterable[tuple["Labels | None", int]]) -> "Labels | None":
        """Returns the labels of parts, each with its count; None if none has any."""
        listed = list(parts)
        if len(listed) == 1:
            return listed[0][0]
        if not any(labels for labels, _ in listed):
            return None
        each = [labels or cls.nothing(count) for labels, count in listed]
        keys = [*chain.from_iterable([labels.keys for labels in each])]
        sizes = [labels.sizes for labels in each if labels.sizes is not None]
        if len(sizes) == len(each):
            all_sizes = compact([*chain.from_iterable(sizes)])
            return cls(keys, [NO_HEADERS] * len(keys), all_sizes)
        return cls(keys, [*chain.from_iterable([labels.headers for labels in each])])

    def part(self, first: int, last: int) -> "Labels":
        """Returns the labels of some of the messages."""
        sizes = None if self.sizes is None else self.sizes[first:last]
        return Labels(self.keys[first:last], self.headers[first:last], sizes)

    def part_bytes(self, first: int, last: int) -> int:
        """Returns the size of the labels of some of the messages."""
        if self.sizes is not None:
            return sum(self.sizes[first:last])
        return self.part(first, last).size_bytes

    @property
    def is_mixed(self) -> bool:
        """True unless every message has a key, and none has headers."""
        if self.sizes is not None:
            return False
        return self.keys.count(None) > 0 or any(self.headers)

    @property
    def alone(self) -> bytes:
        """The packed headers that all messages have, where they have nothing else.

        Events of one class have the same, and so has all that one call publishes in a
        trace. Empty for any others.
        """
        first = self.headers[0] if self.sizes is None and self.headers else NO_HEADERS
        count = len(self.headers)
        if not first or self.headers.count(first) < count:
            return NO_HEADERS
        return first if self.keys.count(None) == count else NO_HEADERS

    @property
    def size_bytes(self) -> int:
        """The size of all keys and headers together."""
        if self.sizes is not None:
            return sum(self.sizes)
        return _sum_bytes(self.keys) + _sum_bytes(self.headers)


def compact(sizes: list[int]) -> Sequence[int]:
    """Returns sizes as bytes, which take the least time, if all are below 256."""
    try:
        return bytes(sizes)
    except ValueError:
        return sizes


def _sum_bytes(values: Sequence[bytes | None]) -> int:
    return sum(map(len, filter(None, values)))


def size_bytes_of(labels: Labels | None) -> int:
    """Returns the size of labels; 0 where there are none."""
    return 0 if labels is None else labels.size_bytes


def part_of(labels: Labels | None, first: int, last: int) -> Labels | None:
    """Returns the labels of some messages; None where there are none."""
    return None if labels is None else labels.part(first, last)


def labels_or_none(
    keys: Sequence[bytes | None], headers: Sequence[bytes]
) -> Labels | None:
    """Returns the labels of some messages; None where none of them has any."""
    if any(headers):
        return Labels(keys, headers)
    if None not in keys:
        return Labels.of_keys(cast(Sequence[bytes], keys)) if keys else None
    return Labels(keys, headers) if is_any_said(keys) else None


def label_bytes(key: bytes | None, headers: bytes) -> int:
    """Returns the size of the labels of one message."""
    return len(key or b"") + len(headers)


def is_any_said(values: Sequence[object]) -> bool:
    """Tells whether any of some values is not None."""
    return values.count(None) < len(values)


def checked_keys(keys: list[bytes | None]) -> list[bytes | None]:
    """Returns keys as they are; raises `BadRequest` for anything that is no key."""
    types = {*map(type, keys)}
    if not types <= {bytes, type(None)}:
        return checked_keys([_key(key) for key in keys])
    if bytes in types:
        check_key_bytes(max(map(len, filter(None, keys)), default=0))
    return keys


def check_key_bytes(largest: int) -> None:
    """Raises `BadRequest` for a key of so many bytes if these are too many."""
    if largest > MAX_KEY_BYTES:
        raise BadRequest(
            f"a key has up to {MAX_KEY_BYTES} bytes, and this one {largest}"
        )


def _key(key: object) -> bytes | None:
    if key is not None and not isinstance(key, bytes):
        raise BadRequest(f"a key is bytes or None, not {key!r:.100}")
    return None if key is None else bytes(key)


class FixedHeaders(dict[str, bytes]):
    """Headers that many messages have alike: they are packed once."""

    __slots__ = ("packed",)

    def __init__(self, headers: Mapping[str, bytes]) -> None:
        super().__init__(headers)
        self.packed = packed(headers)


def packed(headers: object) -> bytes:
    """Packs a dict of text to bytes in its order; `BadRequest` for anything else."""
    if headers is None:
        return NO_HEADERS
    if headers.__class__ is FixedHeaders:
        return headers.packed
    if not isinstance(headers, Mapping):
        raise BadRequest(f"headers are a dict of str to bytes, not {headers!r:.100}")
    parts: list[bytes] = []
    for name, value in headers.items():
        encoded = _name(name)
        if not isinstance(value, bytes):
            raise BadRequest(
                f"the header {name!r:.100} is bytes, not {type(value).__name__}"
            )
        parts += (_SIZES.pack(len(encoded), len(value)), encoded, value)
    return checked_size(b"".join(parts))


def packed_fields(headers: object, more: object) -> bytes:
    """Packs headers, and behind them, without a name, values of fields with a tag."""
    data = packed(headers)
    return checked_size(b"".join((data, *_packed_more(more)))) if more else data


def _packed_more(more: object) -> Iterator[bytes]:
    if not isinstance(more, Mapping):
        raise BadRequest(f"more are fields by their names, not {more!r:.100}")
    check_names(more)
    for field in tagged_fields():
        value = more.get(field.name)
        if value is None:
            continue
        if not isinstance(value, bytes):
            raise BadRequest(f"{field.name} is bytes, not {value!r:.100}")
        tagged = (field.tag or b"") + value
        yield _SIZES.pack(0, len(tagged)) + tagged


def packed_bytes(headers: Mapping[str, bytes]) -> int:
    """Returns the size that headers have when they are packed."""
    return sum(
        _SIZES.size + len(name.encode()) + len(value) for name, value in headers.items()
    )


def checked_size(headers: bytes) -> bytes:
    """Returns packed headers as they are; raises `BadRequest` if they are too many."""
    if len(headers) > MAX_HEADERS_BYTES:
        raise BadRequest(
            f"the headers of a message take up to {MAX_HEADERS_BYTES} bytes, with "
            f"{_SIZES.size} more for each, and these take {len(headers)}"
        )
    return headers


def _name(name: object) -> bytes:
    if not isinstance(name, str):
        raise BadRequest(f"the name of a header is a str, not {name!r:.100}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"the name of a header is no text: {name!r:.100}") from error
    if not 0 < len(encoded) < MAX_HEADERS_BYTES:
        raise BadRequest(
            f"the name of a header has 1 to {MAX_HEADERS_BYTES - 1} bytes, and this "
            f"one {len(encoded)}"
        )
    return encoded


def unpacked(data: bytes) -> dict[str, bytes]:
    """Returns packed headers as a dict; raises `BadRequest` for any other bytes."""
    try:
        return {name.decode(): value for name, value in _entries(data) if name}
    except UnicodeDecodeError as error:
        raise BadRequest(f"{len(data)} bytes are no headers: {error}") from error


def more_of(data: bytes) -> dict[str, bytes]:
    """Returns the values of fields with a tag, which lie behind packed headers."""
    names = {field.tag: field.name for field in tagged_fields()}
    if not names:
        return {}
    found = [value for name, value in _entries(data) if not name]
    return {names[one[:1]]: one[1:] for one in found if one[:1] in names}


def repacked(data: bytes) -> bytes:
    """Packs packed headers anew, which checks them."""
    return packed_fields(unpacked(data), more_of(data))


def _entries(data: bytes) -> list[tuple[bytes, bytes]]:
    entries = []
    at = 0
    try:
        while at < len(data):
            name_bytes, value_bytes = _SIZES.unpack_from(data, at)
            at += _SIZES.size + name_bytes + value_bytes
            start = at - value_bytes
            entries.append((data[start - name_bytes : start], data[start:at]))
    except struct.error as error:
        raise BadRequest(f"{len(data)} bytes are no headers: {error}") from error
    if at != len(data):
        raise BadRequest(f"{len(data)} bytes are no headers: they are cut off")
    return entries


def check_labels(key: bytes | None, headers: bytes | None) -> None:
    """Raises `BadRequest` unless these are columns of a message; None is no column."""
    checked_keys([key])
    if headers is None:
        return
    if repacked(headers) != headers:
        raise BadRequest(f"{len(headers)} bytes name no header, or one of them twice")
    if not headers:
        raise BadRequest("a column of headers has none")


class ItemForm(NamedTuple):
    """The bytes before an id, and those before a payload of a size.

    Items are cut into blocks of about `block_bytes`.
    """

    name: str
    id_head: bytes
    size_head: Callable[[int], bytes]
    block_bytes: int

    def item(self, message_id: bytes, payload: bytes) -> bytes:
        """Encodes one id and its payload; the id has all its 20 bytes."""
        return b"".join(
            (self.id_head, message_id, self.size_head(len(payload)), payload)
        )
