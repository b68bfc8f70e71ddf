"""The records that the embedded coordinator writes to its journal, and their bytes."""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter
from typing import Any

import attrs

from coordinator.errors import JournalCorrupted
from coordinator.pointers import Pointers, as_pointers


@attrs.frozen
class Started:
    """The record that a transaction began."""

    transaction_id: int
    expires_ms: int
    long: bool = False
    outlives_process: bool = False


@attrs.frozen
class Checkpointed:
    """The record that a transaction goes on with another pointer."""

    transaction_id: int
    pointer: int


@attrs.frozen
class Committed:
    """The record that a transaction committed, and the `keys` it changed."""

    transaction_id: int
    keys: Collection[bytes] = ()


@attrs.frozen
class Seen:
    """The record that transactions from `commit_pointer` on see a commit."""

    transaction_id: int
    commit_pointer: int


@attrs.frozen
class Aborted:
    """The record that a transaction ended with nothing left of it."""

    transaction_id: int


@attrs.frozen
class Invalidated:
    """The record that nobody will ever see the writes made with these pointers."""

    ended_ms: int
    pointers: Pointers = attrs.field(converter=as_pointers)


@attrs.frozen
class Truncated:
    """The record that these pointers are no longer remembered as invalid."""

    pointers: Pointers = attrs.field(converter=as_pointers)


@attrs.frozen
class Prepared:
    """The record that a transaction ends only by `name`, whatever ends its process.

    Nobody else may commit its `keys` until then.
    """

    transaction_id: int
    since_ms: int
    name: str
    principal: str | None = None
    keys: Collection[bytes] = ()


@attrs.frozen
class Reserved:
    """The record that no pointer above `limit` was given out yet."""

    limit: int


@attrs.frozen
class Reached:
    """The first pointer ever given out, and the highest with a record of its own."""

    first: int
    highest: int


@attrs.frozen
class Lost:
    """The record that a crash left no record of the pointers `first` to `last`."""

    first: int
    last: int


@attrs.frozen
class Lived:
    """The record that the life of this id gave out pointers from `first` on.

    `last` is 0 until the next life begins. `salt` is what all its pointers end in, less
    than `MOST_PER_MS` away; with `EVERY` all pointers between the two count. `place`
    names where its journal was kept: see `Journal`.
    """

    life: int
    first: int
    last: int
    salt: int
    place: bytes


@attrs.frozen
class Decided:
    """The record that somebody decided what counts as the outcome of a pointer.

    It is one of the numbers in `coordinator/embedded/lives.py`.
    """

    pointer: int
    life: int
    outcome: int


@attrs.frozen
class Closed:
    """The record of an orderly end: the last pointer given out was `last`."""

    last: int


Record = (
    Started
    | Checkpointed
    | Committed
    | Seen
    | Aborted
    | Invalidated
    | Truncated
    | Prepared
    | Reserved
    | Reached
    | Lost
    | Closed
    | Lived
    | Decided
)

# One byte of kind, four of length, then the fields in order, big-endian.
_PREFIX = struct.Struct(">BI")
_COMMITTED, _INVALIDATED, _TRUNCATED, _PREPARED = 3, 6, 7, 12
_FIXED: dict[int, tuple[type[Any], struct.Struct]] = {
    1: (Started, struct.Struct(">qq??")),
    2: (Checkpointed, struct.Struct(">qq")),
    4: (Seen, struct.Struct(">qq")),
    5: (Aborted, struct.Struct(">q")),
    8: (Reserved, struct.Struct(">q")),
    9: (Reached, struct.Struct(">qq")),
    10: (Lost, struct.Struct(">qq")),
    11: (Closed, struct.Struct(">q")),
    13: (Lived, struct.Struct(">Qqqi16s")),
    14: (Decided, struct.Struct(">qQb")),
}
_NUMBER = struct.Struct(">q")
_NUMBERS = struct.Struct(">qq")
_SIZE = struct.Struct(">I")
_COMMITTED_ALONE = struct.Struct(_PREFIX.format + "q")


def _fixed_encoder(
    number: int, kind: type[Any], layout: struct.Struct
) -> Callable[[Any], bytes]:
    pack = struct.Struct(_PREFIX.format + layout.format.lstrip(">")).pack
    size = layout.size
    names = [field.name for field in attrs.fields(kind)]
    if len(names) == 1:
        (only,) = names
        return lambda record: pack(number, size, getattr(record, only))
    values = attrgetter(*names)
    return lambda record: pack(number, size, *values(record))


def _prefixed(number: int, body: bytes) -> bytes:
    return _PREFIX.pack(number, len(body)) + body


def _committed(record: Committed) -> bytes:
    if not record.keys:
        return _COMMITTED_ALONE.pack(_COMMITTED, _NUMBER.size, record.transaction_id)
    head = _NUMBER.pack(record.transaction_id)
    return _prefixed(_COMMITTED, head + _sized(record.keys))


def _sized(texts: Iterable[bytes]) -> bytes:
    """Returns each text behind its size."""
    return b"".join([_SIZE.pack(len(text)) + text for text in texts])


def _prepared(record: Prepared) -> bytes:
    head = _NUMBERS.pack(record.transaction_id, record.since_ms)
    names = (record.name.encode(), (record.principal or "").encode())
    return _prefixed(_PREPARED, head + _sized(names) + _sized(record.keys))


def _invalidated(record: Invalidated) -> bytes:
    body = _NUMBER.pack(record.ended_ms) + record.pointers.to_bytes()
    return _prefixed(_INVALIDATED, body)


def _truncated(record: Truncated) -> bytes:
    return _prefixed(_TRUNCATED, record.pointers.to_bytes())


_ENCODERS: dict[type[Any], Callable[[Any], bytes]] = {
    kind: _fixed_encoder(number, kind, layout)
    for number, (kind, layout) in _FIXED.items()
}
_ENCODERS |= {
    Committed: _committed,
    Invalidated: _invalidated,
    Truncated: _truncated,
    Prepared: _prepared,
}


def encode_records(records: Iterable[Record]) -> bytes:
    """Returns the bytes of the records, one after the other."""
    data = bytearray()
    for record in records:
        data += _ENCODERS[record.__class__](record)
    return bytes(data)


def decode_records(data: bytes) -> Iterator[Record]:
    """Yields the records in `data`; raises `JournalCorrupted` if it cannot be read."""
    at = 0
    try:
        while at < len(data):
            number, size = _PREFIX.unpack_from(data, at)
            at += _PREFIX.size
            body = data[at : at + size]
            if len(body) < size:
                raise JournalCorrupted(f"a record of {size} bytes has {len(body)}")
            yield _decode(number, body)
            at += size
    except (struct.error, ValueError) as error:
        raise JournalCorrupted(f"no record can be read at byte {at}") from error


def _decode(number: int, body: bytes) -> Record:
    if number in _FIXED:
        kind, layout = _FIXED[number]
        record: Record = kind(*layout.unpack(body))
        return record
    if number == _COMMITTED:
        keys = tuple(_texts(body, at=_NUMBER.size))
        return Committed(_NUMBER.unpack_from(body)[0], keys)
    if number == _INVALIDATED:
        pointers = Pointers.from_bytes(body[_NUMBER.size :])
        return Invalidated(_NUMBER.unpack_from(body)[0], pointers)
    if number == _TRUNCATED:
        return Truncated(Pointers.from_bytes(body))
    if number == _PREPARED:
        pointer, since_ms = _NUMBERS.unpack_from(body)
        name, principal, *changed = _texts(body, at=_NUMBERS.size)
        named = name.decode(), principal.decode() or None
        return Prepared(pointer, since_ms, *named, tuple(changed))
    raise JournalCorrupted(
        f"a record of kind {number}, which this version does not know"
    )


def _texts(body: bytes, *, at: int) -> Iterator[bytes]:
    while at < len(body):
        (size,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size + size
        if at > len(body):
            raise JournalCorrupted("a text is longer than its record")
        yield body[at - size : at]
