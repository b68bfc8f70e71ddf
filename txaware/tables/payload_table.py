"""The payload table: what was stored ahead of its commit, by transaction."""

from collections.abc import Collection, Iterator

from txaware.interfaces import OrderedTable
from txaware.messages import Message, MessageId
from txaware.rowkeys import payload_prefix
from txaware.tables.columns import ATTEMPT, EXPIRY, Columns, decode, decode_expiry
from txaware.tables.ranges import pieces


class PayloadTable:
    """Rows of one transaction in one topic have one prefix, and keys of ten bytes."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def rows(
        self, prefix: bytes, pointer: int, *, start: bytes = b"", piece: int = 1000
    ) -> Iterator[tuple[bytes, Columns]]:
        """All rows from `start` on, a bounded number at a time."""
        whole = payload_prefix(prefix, pointer)
        for found in pieces(self._table, whole, start=start, limit=piece):
            for key, value in found:
                yield key, decode(value)

    def messages(
        self,
        prefix: bytes,
        pointer: int,
        *,
        row_key: bytes,
        start: bytes,
        attempts: Collection[bytes] | None,
        now_ms: int,
        piece: int,
    ) -> Iterator[Message]:
        """What a reference stands for, from `start` on; `attempts` None means all."""
        for key, columns in self.rows(prefix, pointer, start=start, piece=piece):
            if attempts is not None and columns.more.get(ATTEMPT, b"") not in attempts:
                continue
            expiry = columns.more.get(EXPIRY)
            if expiry is not None and decode_expiry(expiry) <= now_ms:
                continue
            yield Message(MessageId(row_key + key), columns.payload or b"")

    def counts(self, prefix: bytes, pointer: int) -> dict[bytes, int]:
        """How many rows each attempt has stored."""
        counts: dict[bytes, int] = {}
        for _, columns in self.rows(prefix, pointer):
            attempt = columns.more.get(ATTEMPT, b"")
            counts[attempt] = counts.get(attempt, 0) + 1
        return counts
