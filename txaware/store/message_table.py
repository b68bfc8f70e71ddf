"""The message table: all messages of all topics, in the order of their delivery."""

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import attrs

from txaware.model.encoded_items import Encoded
from txaware.model.interfaces import OrderedTable, Row
from txaware.model.labels import NO_HEADERS, Labels, labels_or_none, part_of
from txaware.model.messages import NO_PAYLOAD_ROW, Message, MessageId, messages_of
from txaware.store.columns import (
    EXPIRY,
    HEADERS,
    KEY,
    PLAIN,
    POINTED,
    RECEIPTS,
    decode,
    decode_keyed,
    key_span,
    plain_payloads,
    pointed_payloads,
    pointer_of,
    pointers_of,
)
from txaware.store.keys import MESSAGE
from txaware.store.ranges import negate, pieces

_DECIDING = {EXPIRY, RECEIPTS}
_tag = itemgetter(0)
_NOTHING: Mapping[int, Mapping[bytes, bytes]] = {}


def _encoded(block: "Block") -> Encoded:
    return Encoded(block.keys, block.payloads)


@attrs.frozen
class Block:
    """Rows in order, with one list for each column.

    `payloads` has None for a reference. `pointers` is None if no row has one, `labels`
    is None if no row has a key or headers. `more` are the other columns that decide
    about a delivery, by the index of their row; every reference has an entry. `encoded`
    belongs to the block that this one is a part of, from `encoded_from` on.

    Messages are made when they are asked for. A hundred thousand of them would be most
    of the objects that the garbage collector looks at (a third of the time of a poll);
    it never looks at bytes.
    """

    keys: Sequence[bytes]
    payloads: Sequence[bytes | None]
    pointers: Sequence[int | None] | None
    more: Mapping[int, Mapping[bytes, bytes]]
    size_bytes: int
    encoded: Encoded = attrs.field(default=attrs.Factory(_encoded, takes_self=True))
    encoded_from: int = 0
    labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def message(self, index: int) -> Message | None:
        """Makes the message of a row; None for a reference."""
        payload = self.payloads[index]
        if payload is None:
            return None
        return self.messages(index, index + 1)[0]

    def messages(self, first: int, last: int, partition: int = 0) -> list[Message]:
        """Makes the messages of a range of rows, none of which is a reference."""
        keys, end = self.keys[first:last], NO_PAYLOAD_ROW
        payloads: Sequence[bytes] = self.payloads[first:last]  # type: ignore[assignment]
        if partition:
            ids = map(MessageId, [key + end for key in keys])
            part = part_of(self.labels, first, last)
            return messages_of(ids, payloads, part, partition)
        new, none = tuple.__new__, NO_HEADERS  # one loop is faster than two
        labels = self.labels
        if labels is not None and labels.sizes is not None:
            given = labels.keys[first:last]
            return [
                new(Message, (MessageId(key + end), payload, label, none))
                for key, payload, label in zip(keys, payloads, given, strict=True)
            ]
        if labels is not None:
            labels = labels.part(first, last)
            columns = zip(keys, payloads, labels.keys, labels.headers, strict=True)
            return [
                new(Message, (MessageId(key + end), payload, label, headers))
                for key, payload, label, headers in columns
            ]
        return [
            new(Message, (MessageId(key + end), payload, None, none))
            for key, payload in zip(keys, payloads, strict=True)
        ]


def decode_block(rows: Sequence[Row]) -> Block:
    """Makes a block of rows of a message table, keyed by time and sequence."""
    # Most topics have rows of one kind; without a call for each, polls are faster.
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    size_bytes = sum(map(len, values))
    found = decode_keyed(values) if values else None
    if found is not None:
        labels = Labels.of_keys(found.keys, found.sizes)
        payloads = found.payloads
        return Block(
            keys, payloads, found.pointers, _NOTHING, size_bytes, labels=labels
        )
    tags = {*map(_tag, values)}
    if tags == {PLAIN}:
        return Block(keys, plain_payloads(values), None, _NOTHING, size_bytes)
    if tags == {POINTED}:
        payloads, pointers = pointed_payloads(values), pointers_of(values)
        return Block(keys, payloads, pointers, _NOTHING, size_bytes)
    return _mixed(rows, keys, size_bytes)


def _mixed(rows: Sequence[Row], keys: Sequence[bytes], size_bytes: int) -> Block:
    payloads: list[bytes | None] = []
    pointers: list[int | None] = []
    label_keys: list[bytes | None] = [None] * len(rows)
    headers = [NO_HEADERS] * len(rows)
    more: dict[int, Mapping[bytes, bytes]] = {}
    for index, (_, value) in enumerate(rows):
        if value[0] == POINTED:  # as most rows are, also beside some others
            pointers.append(int.from_bytes(value[1:9], "big", signed=True))
            payloads.append(value[9:])
            continue
        start, end = key_span(value)
        if end:  # the first row of a producer's request has a mark, and no other one
            pointers.append(pointer_of(value))
            payloads.append(value[end:])
            label_keys[index] = value[start:end]
            continue
        columns = decode(value)
        pointers.append(columns.pointer)
        payloads.append(columns.payload)
        label_keys[index] = columns.more.get(KEY)
        headers[index] = columns.more.get(HEADERS, NO_HEADERS)
        deciding = {
            name: columns.more[name] for name in _DECIDING & columns.more.keys()
        }
        if deciding or columns.payload is None:
            more[index] = deciding
    known = None if all(pointer is None for pointer in pointers) else pointers
    return Block(
        keys,
        payloads,
        known,
        more,
        size_bytes,
        labels=labels_or_none(label_keys, headers),
    )


class MessageTable:
    """The rows of all messages; those of one topic's generation share a prefix.

    The rest of a key has ten bytes.
    """

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def read(
        self, prefix: bytes, *, start: bytes, stop: bytes, limit: int, max_bytes: int
    ) -> Block:
        """Reads rows from `start` to before `stop`; an empty block is the end."""
        return decode_block(
            self._table.scan(
                MESSAGE + prefix,
                start=start,
                stop=stop,
                limit=limit,
                max_bytes=max_bytes,
            )
        )

    def first(self, prefix: bytes, *, start: bytes, stop: bytes) -> Row | None:
        """Returns the first row of a range."""
        rows = self._table.scan(MESSAGE + prefix, start=start, stop=stop, limit=1)
        return rows[0] if rows else None

    def last(self, prefix: bytes, *, start: bytes, stop: bytes) -> Row | None:
        """Returns the last row of a range."""
        rows = self._table.scan(
            MESSAGE + prefix, start=start, stop=stop, limit=1, reverse=True
        )
        return rows[0] if rows else None

    def rows(self, prefix: bytes, *, start: bytes, stop: bytes) -> Iterator[Row]:
        """Reads all rows of a range, a bounded number at a time."""
        for rows in pieces(self._table, MESSAGE + prefix, start=start, stop=stop):
            yield from rows

    def to_negate(
        self, prefix: bytes, pointer: int, *, start: bytes, stop: bytes
    ) -> list[Row]:
        """Returns the rows of a range with exactly that pointer, as they are now."""
        return [
            (key, value)
            for key, value in self.rows(prefix, start=start, stop=stop)
            if pointer_of(value) == pointer
        ]

    def negate(self, prefix: bytes, rows: Sequence[Row]) -> None:
        """Marks rows as rolled back; on disk when it returns, or held as they were."""
        negate(self._table, [(MESSAGE + prefix + key, value) for key, value in rows])
