"""Message rows as they are read: decoded once, many at a time, and never changed."""

from collections.abc import Mapping, Sequence

import attrs

from txaware.interfaces import Row
from txaware.messages import NO_PAYLOAD_ROW, Message, MessageId
from txaware.store.columns import MORE, PLAIN, POINTED, decode, is_reference
from txaware.store.encoded import Encoded

_NOTHING: Mapping[int, Mapping[bytes, bytes]] = {}


def _encoded(block: "Block") -> Encoded:
    return Encoded(block.keys, block.payloads)


@attrs.frozen
class Block:
    """Rows in order, one list for each thing known of them.

    `payloads` has None for a reference. `pointers` is None where no row has one.
    `more` are further columns, by the index of their row. Messages are made when they
    are asked for: kept by the hundred thousand, they would be most of what the garbage
    collector has to look at (a third of the time of a poll), and bytes it never does.
    `encoded` belongs to the block that this one is a part of, from `encoded_from` on.
    """

    keys: Sequence[bytes]
    payloads: Sequence[bytes | None]
    pointers: Sequence[int | None] | None
    more: Mapping[int, Mapping[bytes, bytes]]
    size_bytes: int
    encoded: Encoded = attrs.field(default=attrs.Factory(_encoded, takes_self=True))
    encoded_from: int = 0

    def __len__(self) -> int:
        return len(self.keys)

    def message(self, index: int) -> Message | None:
        """The message of a row; None for a reference."""
        payload = self.payloads[index]
        if payload is None:
            return None
        return Message(MessageId.of_row(self.keys[index]), payload)

    def messages(self, first: int, last: int) -> list[Message]:
        """The messages of some rows, none of which is a reference."""
        new, none = tuple.__new__, NO_PAYLOAD_ROW
        return [
            new(Message, (MessageId(key + none), payload))
            for key, payload in zip(
                self.keys[first:last], self.payloads[first:last], strict=True
            )
        ]


def decode_block(rows: Sequence[Row]) -> Block:
    """The block of some rows of a message table, keyed by time and sequence."""
    # Most topics have rows of one kind; these two loops make a poll twice as fast.
    tags = {value[0] for _, value in rows}
    keys = [key for key, _ in rows]
    size_bytes = sum([len(value) for _, value in rows])
    if tags == {PLAIN}:
        payloads = [value[1:] for _, value in rows]
        return Block(keys, payloads, None, _NOTHING, size_bytes)
    if tags == {POINTED}:
        pointers = [int.from_bytes(value[1:9], "big", signed=True) for _, value in rows]
        payloads = [value[9:] for _, value in rows]
        return Block(keys, payloads, pointers, _NOTHING, size_bytes)
    return _mixed(rows, keys, size_bytes)


def _mixed(rows: Sequence[Row], keys: Sequence[bytes], size_bytes: int) -> Block:
    payloads: list[bytes | None] = []
    pointers: list[int | None] = []
    more: dict[int, Mapping[bytes, bytes]] = {}
    for index, (_, value) in enumerate(rows):
        columns = decode(value)
        pointers.append(columns.pointer)
        payloads.append(columns.payload)
        if value[0] & MORE or is_reference(value):
            more[index] = columns.more
    known = None if all(pointer is None for pointer in pointers) else pointers
    return Block(keys, payloads, known, more, size_bytes)
