"""The payload table: payloads stored ahead of their commit, by transaction."""

from collections.abc import Collection, Iterator

from txaware.interfaces import OrderedTable, Row
from txaware.keys import payload_prefix
from txaware.store.columns import (
    ATTEMPT,
    EXPIRY,
    Columns,
    decode,
    decode_expiry,
    value_head,
)
from txaware.store.ranges import pieces


class PayloadTable:
    """The rows of stored payloads; those of a transaction in a topic share a prefix.

    The rest of a key has ten bytes.
    """

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def rows(
        self, prefix: bytes, pointer: int, *, start: bytes = b"", piece: int = 1000
    ) -> Iterator[tuple[bytes, Columns]]:
        """Reads all rows from `start` on, a bounded number at a time."""
        whole = payload_prefix(prefix, pointer)
        for found in pieces(self._table, whole, start=start, limit=piece):
            for key, value in found:
                yield key, decode(value)

    def payloads(
        self,
        prefix: bytes,
        pointer: int,
        *,
        start: bytes,
        attempts: Collection[bytes] | None,
        now_ms: int,
        piece: int,
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Reads the payloads of a reference from `start` on: keys and payloads.

        They come a bounded number at a time. `attempts` None means all attempts.
        """
        whole = payload_prefix(prefix, pointer)
        heads = {_head(attempt) for attempt in attempts or ()}
        size = len(next(iter(heads), b""))
        for rows in pieces(self._table, whole, start=start, limit=piece):
            # Most rows have an attempt and no other column, and need no decoding.
            payloads = [value[size:] for _, value in rows if value[:size] in heads]
            if len(payloads) == len(rows):
                yield [key for key, _ in rows], payloads
                continue
            found = list(_wanted(rows, attempts, now_ms))
            yield [key for key, _ in found], [payload for _, payload in found]

    def counts(self, prefix: bytes, pointer: int) -> dict[bytes, int]:
        """Counts the rows that each attempt has stored."""
        counts: dict[bytes, int] = {}
        for _, columns in self.rows(prefix, pointer):
            attempt = columns.more.get(ATTEMPT, b"")
            counts[attempt] = counts.get(attempt, 0) + 1
        return counts


def _head(attempt: bytes) -> bytes:
    return value_head(None, more={ATTEMPT: attempt} if attempt else {})


def _wanted(
    rows: list[Row], attempts: Collection[bytes] | None, now_ms: int
) -> Iterator[Row]:
    """Picks the payloads of these attempts that have not expired."""
    for key, value in rows:
        columns = decode(value)
        if attempts is not None and columns.more.get(ATTEMPT, b"") not in attempts:
            continue
        expiry = columns.more.get(EXPIRY)
        if expiry is None or decode_expiry(expiry) > now_ms:
            yield key, columns.payload or b""
