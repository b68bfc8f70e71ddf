"""The payload table: payloads stored ahead of their commit, by transaction."""

from collections.abc import Collection, Iterator

import attrs

from txaware.model.interfaces import OrderedTable, Row
from txaware.model.labels import (
    NO_HEADERS,
    Labels,
    labels_or_none,
    part_of,
    size_bytes_of,
)
from txaware.model.messages import Message, MessageId, messages_of
from txaware.store.columns import (
    ATTEMPT,
    EXPIRY,
    HEADERS,
    KEY,
    Columns,
    decode,
    decode_expiry,
    decode_receipts,
    value_head,
)
from txaware.store.interfaces import pieces
from txaware.store.keys import payload_prefix


@attrs.frozen
class StoredPayloads:
    """Some payloads of a reference, by the keys of their rows below its prefix."""

    keys: list[bytes]
    payloads: list[bytes]
    labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size_bytes(self) -> int:
        """The size of all payloads together, with their keys and headers."""
        return sum(map(len, self.payloads)) + size_bytes_of(self.labels)

    def part(self, first: int, last: int) -> "StoredPayloads":
        """Returns some of them."""
        labels = part_of(self.labels, first, last)
        return StoredPayloads(self.keys[first:last], self.payloads[first:last], labels)

    def keyed(self) -> "StoredPayloads":
        """Returns those that have a key."""
        labels = self.labels
        if labels is None:
            return StoredPayloads([], [])
        kept = [place for place, key in enumerate(labels.keys) if key is not None]
        return StoredPayloads(
            [self.keys[place] for place in kept],
            [self.payloads[place] for place in kept],
            labels_or_none(
                [labels.keys[place] for place in kept],
                [labels.headers[place] for place in kept],
            ),
        )

    def messages(self, row_key: bytes, partition: int = 0) -> list[Message]:
        """Makes the messages that the reference in a row stands for."""
        ids = [MessageId(row_key + key) for key in self.keys]
        return messages_of(ids, self.payloads, self.labels, partition)


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

    def named_rows(
        self,
        prefix: bytes,
        pointer: int,
        receipts: bytes | None,
        *,
        start: bytes = b"",
        piece: int = 1000,
    ) -> Iterator[tuple[bytes, Columns]]:
        """Reads the rows that a reference names, by its column of receipts.

        A reference without that column names all.
        """
        rows = self.rows(prefix, pointer, start=start, piece=piece)
        if receipts is None:
            return rows
        attempts = decode_receipts(receipts)
        return (row for row in rows if row[1].more.get(ATTEMPT, b"") in attempts)

    def payloads(
        self,
        prefix: bytes,
        pointer: int,
        *,
        start: bytes,
        attempts: Collection[bytes] | None,
        now_ms: int,
        piece: int,
    ) -> Iterator[StoredPayloads]:
        """Reads the payloads of a reference from `start` on.

        They come a bounded number at a time. `attempts` None means all attempts.
        """
        whole = payload_prefix(prefix, pointer)
        heads = {_head(attempt) for attempt in attempts or ()}
        size = len(next(iter(heads), b""))
        for rows in pieces(self._table, whole, start=start, limit=piece):
            # Most rows have an attempt and no other column, and need no decoding.
            payloads = [value[size:] for _, value in rows if value[:size] in heads]
            if len(payloads) == len(rows):
                yield StoredPayloads([key for key, _ in rows], payloads)
            else:
                yield _wanted(rows, attempts, now_ms)

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
) -> StoredPayloads:
    """Picks the payloads of these attempts that have not expired."""
    keys: list[bytes] = []
    payloads: list[bytes] = []
    labels: list[bytes | None] = []
    headers: list[bytes] = []
    for key, value in rows:
        columns = decode(value)
        more = columns.more
        if attempts is not None and more.get(ATTEMPT, b"") not in attempts:
            continue
        expiry = more.get(EXPIRY)
        if expiry is None or decode_expiry(expiry) > now_ms:
            keys.append(key)
            payloads.append(columns.payload or b"")
            labels.append(more.get(KEY))
            headers.append(more.get(HEADERS, NO_HEADERS))
    return StoredPayloads(keys, payloads, labels_or_none(labels, headers))
