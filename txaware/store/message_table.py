"""The message table: all messages of all topics, in the order of their delivery."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import itemgetter

import attrs

from txaware.model.interfaces import OrderedTable, Row
from txaware.model.labels import (
    NO_HEADERS,
    ItemForm,
    Labels,
    labels_or_none,
    part_of,
    size_bytes_of,
)
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
    value_head,
)
from txaware.store.interfaces import negate, pieces
from txaware.store.keys import MESSAGE
from txaware.store.packed_rows import (
    PackedSpan,
    first_key,
    is_packed,
    packed_of,
    stop_with_batches,
    unpacked_row,
)

_DECIDING = {EXPIRY, RECEIPTS}
_tag = itemgetter(0)


class Encoded:
    """The ids and payloads of messages in a form, with the end of each item.

    They are encoded at the first use of a form. A reference has an empty item. Threads
    that use them first at the same time encode the same twice.
    """

    __slots__ = ("_behind", "_found", "_keys", "_payloads")

    def __init__(
        self,
        keys: Sequence[bytes],
        payloads: Sequence[bytes | None],
        *,
        behind: bytes = NO_PAYLOAD_ROW,
    ) -> None:
        """Encodes nothing yet; `behind` is the end of each id, after the key."""
        self._keys = keys
        self._payloads = payloads
        self._behind = behind
        self._found: dict[str, tuple[bytes, Sequence[int]]] = {}

    @property
    def size_bytes(self) -> int:
        """The size in memory, about, as it is now."""
        found = [*self._found.values()]
        return sum([len(data) + 8 * len(ends) for data, ends in found])

    def is_in(self, form: ItemForm) -> bool:
        """Tells whether they were encoded in a form before."""
        return form.name in self._found

    def cut(self, form: ItemForm, first: int, last: int) -> list[tuple[int, bytes]]:
        """Cuts a range of items into blocks, each with the number of its items."""
        data, ends = self._found.get(form.name) or self._make(form)
        pieces = []
        while first < last:
            full = ends[first] + form.block_bytes
            at = bisect_left(ends, full, first + 1, last)
            pieces.append((at - first, data[ends[first] : ends[at]]))
            first = at
        return pieces

    def _make(self, form: ItemForm) -> tuple[bytes, Sequence[int]]:
        heads: dict[int, bytes] = {}
        items: list[bytes] = []
        id_head = form.id_head
        for key, payload in zip(self._keys, self._payloads, strict=True):
            if payload is None:
                items.append(b"")
                continue
            size = len(payload)
            head = heads.get(size)
            if head is None:
                head = heads[size] = self._behind + form.size_head(size)
            items.append(id_head + key + head + payload)
        ends = array("L", accumulate(map(len, items), initial=0))
        made = self._found[form.name] = b"".join(items), ends
        return made


_NOTHING: Mapping[int, Mapping[bytes, bytes]] = {}


def _encoded(block: "Block") -> Encoded:
    return Encoded(block.keys, block.payloads)


@attrs.frozen
class Block:
    """Rows in order, with one list for each column.

    `payloads` has None for a reference. `pointers` is None if no row has one, `labels`
    is None if no row has a key or headers. `more` are the other columns that decide
    about a delivery, by the index of their row; every reference has an entry. `encoded`
    belongs to the block that this one is a part of, from `encoded_from` on. `spans` are
    the batches that lie in it from the first to the last message.

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
    spans: Sequence[PackedSpan] = ()

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


def part(block: Block, first: int, last: int) -> Block:
    """Returns some rows of a block, as a block."""
    more = {
        index - first: columns
        for index, columns in block.more.items()
        if first <= index < last
    }
    pointers = block.pointers
    payloads = block.payloads[first:last]
    labels = part_of(block.labels, first, last)
    size_bytes = sum([len(payload) for payload in payloads if payload is not None])
    return Block(
        block.keys[first:last],
        payloads,
        None if pointers is None else pointers[first:last],
        more,
        size_bytes + size_bytes_of(labels),
        block.encoded,
        block.encoded_from + first,
        labels,
        tuple(
            span._replace(first=span.first - first)
            for span in block.spans
            if span.first >= first and span.last <= last
        ),
    )


def joined(blocks: Sequence[Block]) -> Block:
    """Returns blocks that follow each other as one."""
    if len(blocks) == 1:
        return blocks[0]
    pointers: list[int | None] | None = None
    if any(block.pointers is not None for block in blocks):
        each = [block.pointers or [None] * len(block) for block in blocks]
        pointers = [*chain.from_iterable(each)]
    more: dict[int, Mapping[bytes, bytes]] = {}
    spans: list[PackedSpan] = []
    count = 0
    for block in blocks:
        more.update({count + at: columns for at, columns in block.more.items()})
        spans += [span._replace(first=span.first + count) for span in block.spans]
        count += len(block)
    return Block(
        [*chain.from_iterable([block.keys for block in blocks])],
        [*chain.from_iterable([block.payloads for block in blocks])],
        pointers,
        more,
        sum([block.size_bytes for block in blocks]),
        labels=Labels.joined([(block.labels, len(block)) for block in blocks]),
        spans=spans,
    )


def decode_with_batches(
    rows: Sequence[Row], *, start: bytes, stop: bytes, limit: int, max_bytes: int
) -> Block:
    """Makes a block of the messages from `start` to before `stop`, unpacking batches.

    Once there are `limit`, or their size is `max_bytes`, what follows is left out, so
    that no more is unpacked. The size of the block is no less than that of its rows.
    """
    blocks: list[Block] = []
    singles: list[Row] = []
    count = size_bytes = 0
    for key, value in rows:
        if count >= limit or size_bytes >= max_bytes or first_key(key, value) >= stop:
            break
        if is_packed(value):
            if singles:
                blocks.append(decode_block(singles))
                singles = []
            blocks.append(_batch_block(key, value, start, stop))
            count, size_bytes = (
                count + len(blocks[-1]),
                size_bytes + max(len(value), blocks[-1].size_bytes),
            )
        else:
            singles.append((key, value))
            count, size_bytes = count + 1, size_bytes + len(value)
    if singles or not blocks:
        blocks.append(decode_block(singles))
    block = joined(blocks)
    return block if len(blocks) == 1 else attrs.evolve(block, size_bytes=size_bytes)


def _batch_block(key: bytes, value: bytes, start: bytes, stop: bytes) -> Block:
    """Makes a block of the messages of a batch that lie within a range."""
    keys, payloads = unpacked_row(key, value)
    span = PackedSpan(0, key, packed_of(value))
    size_bytes = max(len(value), payloads.size_bytes)
    block = Block(
        keys,
        payloads.payloads,
        None,
        _NOTHING,
        size_bytes,
        labels=payloads.labels,
        spans=(span,),
    )
    first, last = bisect_left(keys, start), bisect_left(keys, stop)
    return block if last - first == len(keys) else part(block, first, last)


def _outermost(rows: list[Row], start: bytes, stop: bytes, *, at: int) -> Row | None:
    """Returns the row of a message of one row, the first or the last in a range."""
    if not rows or not is_packed(rows[0][1]):
        return rows[0] if rows and rows[0][0] < stop else None
    block = _batch_block(*rows[0], start, stop)
    if not len(block):
        return None
    value = value_head(None) + (block.payloads[at] or b"")
    return block.keys[at], value


class MessageTable:
    """The rows of all messages; those of one topic's generation share a prefix.

    The rest of a key has ten bytes. A batch of compressed messages is read as these,
    but for `rows`.
    """

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def read(
        self, prefix: bytes, *, start: bytes, stop: bytes, limit: int, max_bytes: int
    ) -> Block:
        """Reads rows from `start` to before `stop`; an empty block is the end."""
        has_batches = self._table.has_batches
        rows = self._table.scan(
            MESSAGE + prefix,
            start=start,
            stop=stop_with_batches(stop) if has_batches else stop,
            limit=limit,
            max_bytes=max_bytes,
        )
        if not self._table.has_batches:  # asked again: one may have come meanwhile
            return decode_block(rows)
        return decode_with_batches(
            rows, start=start, stop=stop, limit=limit, max_bytes=max_bytes
        )

    def first(self, prefix: bytes, *, start: bytes, stop: bytes) -> Row | None:
        """Returns the first row of a range, or of the first message of a batch."""
        end = stop_with_batches(stop) if self._table.has_batches else stop
        rows = self._table.scan(MESSAGE + prefix, start=start, stop=end, limit=1)
        return _outermost(rows, start, stop, at=0)

    def last(self, prefix: bytes, *, start: bytes, stop: bytes) -> Row | None:
        """Returns the last row of a range, or of the last message of a batch."""
        scan, prefix = self._table.scan, MESSAGE + prefix
        end = stop_with_batches(stop) if self._table.has_batches else stop
        if end > stop:  # there may be a batch that it ends within
            rows = scan(prefix, start=stop, stop=end, limit=1)
            if (found := _outermost(rows, start, stop, at=-1)) is not None:
                return found
        rows = scan(prefix, start=start, stop=stop, limit=1, reverse=True)
        return _outermost(rows, start, stop, at=-1)

    def rows(self, prefix: bytes, *, start: bytes, stop: bytes) -> Iterator[Row]:
        """Reads all rows of a range as they are, a bounded number at a time."""
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
