"""Message rows as they are read: decoded once, many at a time, and never changed."""

from collections.abc import Mapping, Sequence

import attrs

from txaware.interfaces import Row
from txaware.messages import Message, MessageId
from txaware.tables.columns import (
    MORE,
    PLAIN,
    POINTED,
    REFERENCE,
    decode,
)

_NO_PAYLOAD_ROW = bytes(10)
_NOTHING: Mapping[int, Mapping[bytes, bytes]] = {}


@attrs.frozen
class Block:
    """Rows in order, one list for each thing known of them.

    `messages` has None for a reference. `pointers` is None where no row has one.
    `more` are further columns, by the index of their row.
    """

    keys: Sequence[bytes]
    messages: Sequence[Message | None]
    pointers: Sequence[int | None] | None
    more: Mapping[int, Mapping[bytes, bytes]]
    size_bytes: int

    def __len__(self) -> int:
        return len(self.keys)


def decode_block(rows: Sequence[Row]) -> Block:
    """The block of some rows of a message table, keyed by time and sequence."""
    # Most topics have rows of one kind; these two loops make a poll twice as fast.
    tags = {value[0] for _, value in rows}
    keys = [key for key, _ in rows]
    size_bytes = sum([len(value) for _, value in rows])
    if tags == {PLAIN}:
        return Block(keys, _messages(rows, 1), None, _NOTHING, size_bytes)
    if tags == {POINTED}:
        pointers = [int.from_bytes(value[1:9], "big", signed=True) for _, value in rows]
        return Block(keys, _messages(rows, 9), pointers, _NOTHING, size_bytes)
    return _mixed(rows, keys, size_bytes)


def _messages(rows: Sequence[Row], at: int) -> list[Message | None]:
    new, none = tuple.__new__, _NO_PAYLOAD_ROW
    return [new(Message, (MessageId(key + none), value[at:])) for key, value in rows]


def _mixed(rows: Sequence[Row], keys: Sequence[bytes], size_bytes: int) -> Block:
    messages: list[Message | None] = []
    pointers: list[int | None] = []
    more: dict[int, Mapping[bytes, bytes]] = {}
    for index, (key, value) in enumerate(rows):
        columns = decode(value)
        pointers.append(columns.pointer)
        if columns.payload is None:
            messages.append(None)
        else:
            messages.append(Message(MessageId(key + _NO_PAYLOAD_ROW), columns.payload))
        if value[0] & MORE or value[0] & 3 == REFERENCE:
            more[index] = columns.more
    known = None if all(pointer is None for pointer in pointers) else pointers
    return Block(keys, messages, known, more, size_bytes)
