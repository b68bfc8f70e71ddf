"""The rows of queues: pipes with their counts, and leases of items that were popped."""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import OrderedTable, Write
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.queues import PIPE_BYTES
from txaware.store.columns import decode, value_head
from txaware.store.interfaces import pieces
from txaware.store.keys import LEASE, PIPE, ROW_KEY_BYTES

_PIPE = struct.Struct(">BBqqqQQQQQQQ20s")
_LEASE = struct.Struct(">QIqqB")
_RUN, _STRETCHES = struct.Struct(">10sH"), struct.Struct(">H")
# Stands for the number of pushes of a pipe that still takes some.
NOT_FINAL = -1
NO_TIME = -1
# The pipe whose row has the totals of all pipes that are gone.
TOTALS = 0
_LOCAL, _MANY, _INBOX = 1, 2, 4


class PipeKind(IntEnum):
    """The pushes that a pipe is for: of one pusher, of all, or for one due time."""

    PUSHER, ORDERED, DELAYED, TOTAL = range(4)


@attrs.define
class PopCounts:
    """The counts of a pipe's pops, or the totals of pipes that are gone."""

    popped: int = 0
    committed: int = 0
    rolled_back: int = 0
    expired_leases: int = 0
    expired: int = 0
    dead: int = 0

    @property
    def removed(self) -> int:
        """The number of items that are gone, one way or the other."""
        return self.committed + self.expired + self.dead

    def add(self, other: "PopCounts", times: int = 1) -> None:
        """Adds the counts of another pipe; takes them off with -1."""
        for name in attrs.fields_dict(PopCounts):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))


@attrs.frozen
class PipeRow:
    """A pipe as it is kept: `pushed` is `NOT_FINAL` while it takes pushes.

    All items up to `head` are gone, or have a lease row. `pusher` is the same for pipes
    that one pusher filled one after the other, and 0 for those of all.
    """

    kind: PipeKind
    priority: int
    created_ms: int
    due_ms: int
    pushed: int
    pusher: int
    counts: PopCounts
    head: MessageId

    def to_bytes(self) -> bytes:
        """Encodes the pipe for its row."""
        numbers = self.kind, self.priority, self.created_ms, self.due_ms
        return pipe_value(numbers, self.pushed, self.pusher, self.counts, self.head)

    @classmethod
    def from_bytes(cls, data: bytes) -> "PipeRow":
        """Reads a pipe that `to_bytes` wrote."""
        try:
            values = _PIPE.unpack(data)
            kind, priority, created, due, pushed, pusher, *counts, head = values
            return cls(
                PipeKind(kind),
                priority,
                created,
                due,
                pushed,
                pusher,
                PopCounts(*counts),
                MessageId(head),
            )
        except (struct.error, ValueError) as error:
            raise StoreCorrupted(f"a row of {len(data)} bytes is no pipe") from error


class PipeOutline(NamedTuple):
    """The row of a pipe as numbers; a `PipeRow` takes eight times as long to read.

    A start reads one for each pipe.
    """

    kind: int
    priority: int
    created_ms: int
    due_ms: int
    pushed: int
    pusher: int
    popped: int
    committed: int
    rolled_back: int
    expired_leases: int
    expired: int
    dead: int
    head: bytes

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Reads the row of a pipe."""
        try:
            return cls._make(_PIPE.unpack(data))
        except struct.error as error:
            raise StoreCorrupted(f"a row of {len(data)} bytes is no pipe") from error

    @property
    def is_final(self) -> bool:
        """True for a pipe that takes no more pushes, whose number it says."""
        return self.pushed != NOT_FINAL

    @property
    def removed(self) -> int:
        """The number of items that are gone, one way or the other."""
        return self.committed + self.expired + self.dead

    @property
    def counts(self) -> PopCounts:
        """The counts of its pops."""
        return PopCounts(*self[6:12])


@attrs.frozen
class LeaseRow:
    """Keeps of a popped item how often it was popped, and who has it until when.

    `token` is 0 for one that waits again, from `due_ms` on. `pointer` is that of the
    transaction that popped it; where that committed, the item is gone. `is_local` says
    that its popper lived in the process that owned the store, and `has_inbox` that a
    database of the popper's decides its transaction and says what was handled.

    The row of a run keeps that of many `items` of a pipe, which one popper popped at
    once for the first time. Each has the token of the one before plus one. Those that
    are gone count no more, nor those with a row of their own.
    """

    token: int
    deliveries: int
    until_ms: int
    due_ms: int
    is_local: bool
    pointer: int | None
    popper: str
    error: str
    items: tuple[MessageId, ...] = ()
    has_inbox: bool = False

    def to_bytes(self) -> bytes:
        """Encodes the lease; its pointer is a column, as in every row of one."""
        times = self.until_ms, self.due_ms
        flags = lease_flags(is_local=self.is_local, has_inbox=self.has_inbox)
        return lease_value(
            (self.token, self.deliveries, *times, flags),
            self.pointer,
            self.popper,
            self.error,
            self.items,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "LeaseRow":
        """Reads a lease that `to_bytes` wrote."""
        columns = decode(data)
        payload = columns.payload or b""
        items: tuple[MessageId, ...] = ()
        try:
            token, deliveries, until_ms, due_ms, flags = _LEASE.unpack_from(payload)
            rest = payload[_LEASE.size :]
            if flags & _MANY:
                items, rest = _unpacked(rest)
        except (struct.error, OverflowError) as error:
            raise StoreCorrupted(f"a row of {len(data)} bytes is no lease") from error
        popper, _, said = rest.partition(b"\0")
        return cls(
            token,
            deliveries,
            until_ms,
            due_ms,
            bool(flags & _LOCAL),
            columns.pointer,
            popper.decode(errors="replace"),
            said.decode(errors="replace"),
            items,
            bool(flags & _INBOX),
        )


def pipe_value(
    numbers: tuple[int, int, int, int],
    pushed: int,
    pusher: int,
    counts: PopCounts,
    head: MessageId,
) -> bytes:
    """Encodes a pipe: its kind, priority, begin and due time come first.

    Each step writes one, and a `PipeRow` would take as long again.
    """
    return _PIPE.pack(
        *numbers,
        pushed,
        pusher,
        counts.popped,
        counts.committed,
        counts.rolled_back,
        counts.expired_leases,
        counts.expired,
        counts.dead,
        head,
    )


def lease_flags(*, is_local: bool, has_inbox: bool) -> int:
    """Returns the flags of a lease for `lease_value`."""
    return is_local | (_INBOX if has_inbox else 0)


def lease_value(
    numbers: tuple[int, int, int, int, int],
    pointer: int | None,
    popper: str,
    error: str,
    items: Sequence[MessageId] = (),
) -> bytes:
    """Encodes a lease: its token, deliveries, end, due time and flags come first.

    Each pop writes one, and a `LeaseRow` would take as long again.
    """
    *times, flags = numbers
    if items:
        packed = _LEASE.pack(*times, flags | _MANY)
        parts = [value_head(pointer), packed, _packed(items)]
    else:
        parts = [value_head(pointer), _LEASE.pack(*times, flags)]
    parts += (popper.encode(), b"\0", error.encode())
    return b"".join(parts)


def _packed(items: Sequence[MessageId]) -> bytes:
    """Encodes items as stretches without a gap: the first key, and their number."""
    starts = [0]
    if _number_of(items[-1]) - _number_of(items[0]) != len(items) - 1:
        keys = [*map(_number_of, items)]
        starts += [at for at in range(1, len(keys)) if keys[at] != keys[at - 1] + 1]
    ends = [*starts[1:], len(items)]
    stretches = [
        _RUN.pack(items[start].row_key, end - start)
        for start, end in zip(starts, ends, strict=True)
    ]
    return _STRETCHES.pack(len(stretches)) + b"".join(stretches)


def _number_of(item: MessageId) -> int:
    return int.from_bytes(item[:ROW_KEY_BYTES], "big")


def _unpacked(data: bytes) -> tuple[tuple[MessageId, ...], bytes]:
    """Reads the items of a run; returns them, and the bytes behind them."""
    (count,) = _STRETCHES.unpack_from(data)
    items: list[MessageId] = []
    at = _STRETCHES.size
    for _ in range(count):
        key, length = _RUN.unpack_from(data, at)
        first = int.from_bytes(key, "big")
        items += [
            MessageId.of_row(number.to_bytes(ROW_KEY_BYTES, "big"))
            for number in range(first, first + length)
        ]
        at += _RUN.size
    return tuple(items), data[at:]


def lease_key(prefix: bytes, item: MessageId) -> bytes:
    """Returns the key of an item's lease, below the prefix of its pipe."""
    return LEASE + prefix + item


def run_key(prefix: bytes, first: MessageId) -> bytes:
    """Returns the key of a run of items: no item can have it."""
    return LEASE + prefix + MessageId.after_payloads(first.row_key)


def pipe_write(prefix: bytes, row: PipeRow | None) -> Write:
    """Makes the row of a pipe, or its deletion."""
    return PIPE + prefix, None if row is None else row.to_bytes()


def pipe_rows(table: OrderedTable, prefix: bytes) -> Iterator[tuple[int, PipeRow]]:
    """Reads the pipes of one generation of a queue, in the order of their ids."""
    for rows in pieces(table, PIPE + prefix):
        for key, value in rows:
            yield int.from_bytes(key, "big"), PipeRow.from_bytes(value)


def lease_rows(
    table: OrderedTable, prefix: bytes
) -> Iterator[tuple[int, MessageId, LeaseRow]]:
    """Reads the leases of one generation of a queue, by pipe and item."""
    for rows in pieces(table, LEASE + prefix):
        for key, value in rows:
            if len(key) != PIPE_BYTES + ID_BYTES:
                raise StoreCorrupted(f"a lease has the key {key.hex()}")
            pipe = int.from_bytes(key[:PIPE_BYTES], "big")
            yield pipe, MessageId(key[PIPE_BYTES:]), LeaseRow.from_bytes(value)
