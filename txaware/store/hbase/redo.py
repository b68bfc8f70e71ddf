"""The redo record: all writes of a batch, which is in the store before its rows."""

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from zlib import crc32

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import Write
from txaware.store.hbase.cells import WHOLE
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.head import StoreHead
from txaware.store.hbase.scanner import scanner
from txaware.store.hbase.schema import META, REDO_ROWS
from txaware.store.keys import after

# Up to the first size a record is in the head itself, which saves a call. A larger one
# is in rows of the second size.
INLINE_BYTES, PIECE_BYTES = 8 << 10, 4 << 20
_SIZES = struct.Struct(">II")
_DELETED = 0xFFFFFFFF


class RedoLog:
    """The redo records; those of one owner are in two places in turns.

    A put that comes late can then only hit a place whose record is no longer needed, or
    is younger and hides it.
    """

    def __init__(self, connections: HBaseConnections) -> None:
        self._connections = connections
        self._table = connections.address.table(META)

    def keep(self, record: bytes, head: StoreHead) -> StoreHead:
        """Keeps a record in the head or in rows; answers the head with its place."""
        if len(record) <= INLINE_BYTES:
            return head.with_record(crc=crc32(record), inline=record)
        pieces = [
            record[at : at + PIECE_BYTES] for at in range(0, len(record), PIECE_BYTES)
        ]
        kept = head.with_record(
            crc=crc32(record), logged_by=head.owner, pieces=len(pieces)
        )
        for number, piece in enumerate(pieces):
            self._put(_key(kept, number), piece, kept.time_ms)
        return kept

    def read(self, head: StoreHead) -> bytes:
        """Reads the record of the last batch."""
        if not head.pieces:
            record = head.inline
        else:
            record = b"".join(
                self._piece(head, number) for number in range(head.pieces)
            )
        if crc32(record) != head.crc:
            raise StoreCorrupted(
                f"{self._connections.address}: the redo record of batch {head.batch} "
                f"is damaged"
            )
        return record

    def remove_all(self, *, time_ms: int) -> None:
        """Removes the records of all owners, up to the last settled batch."""
        self._connections.repeat(partial(self._remove, time_ms))

    def _remove(self, time_ms: int, client: Any) -> None:
        wanted = self._connections.structs.TScan(
            startRow=REDO_ROWS,
            stopRow=after(REDO_ROWS),
            filterString=b"KeyOnlyFilter()",
            caching=100,
        )
        with scanner(client, self._table, wanted) as more:
            while found := more(100):
                for one in found:
                    client.deleteAllRowTs(self._table, one.row, time_ms, {})

    def _put(self, key: bytes, piece: bytes, time_ms: int) -> None:
        def put(client: Any) -> None:
            mutation = self._connections.structs.Mutation(column=WHOLE, value=piece)
            client.mutateRowTs(self._table, key, [mutation], time_ms, {})

        self._connections.repeat(put)

    def _piece(self, head: StoreHead, number: int) -> bytes:
        def get(client: Any) -> Any:
            return client.getRowTs(
                self._table, _key(head, number), head.time_ms + 1, {}
            )

        found = self._connections.repeat(get)
        value: bytes = found[0].columns[WHOLE].value if found else b""
        return value


def _key(head: StoreHead, number: int) -> bytes:
    return _place(head.logged_by, head.batch & 1, number)


def _place(owner: bytes, parity: int, number: int) -> bytes:
    return REDO_ROWS + owner + bytes([parity]) + number.to_bytes(4, "big")


def encode_writes(writes: Sequence[Write]) -> bytes:
    """Encodes keys and values, one after the other."""
    parts: list[bytes] = []
    for key, value in writes:
        size = _DELETED if value is None else len(value)
        parts += (_SIZES.pack(len(key), size), key, value or b"")
    return b"".join(parts)


def decode_writes(data: bytes) -> Iterator[Write]:
    """Decodes the writes that `encode_writes` was given."""
    at = 0
    while at < len(data):
        if at + _SIZES.size > len(data):
            raise StoreCorrupted("a redo record is cut off")
        key_size, value_size = _SIZES.unpack_from(data, at)
        at += _SIZES.size
        value_at = at + key_size
        end = value_at + (0 if value_size == _DELETED else value_size)
        if end > len(data):
            raise StoreCorrupted("a redo record is cut off")
        yield data[at:value_at], None if value_size == _DELETED else data[value_at:end]
        at = end
