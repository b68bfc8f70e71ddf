"""Searches topics for messages by key, header, text and time, and consumes nothing."""

from collections.abc import Iterator

import attrs

from coordinator.transaction import Transaction
from txaware.model.interfaces import OrderedTable
from txaware.model.labels import unpacked
from txaware.model.messages import NO_PAYLOAD_ROW, MessageId
from txaware.model.reports import Peeked, SearchPage
from txaware.model.search import Search
from txaware.service.monitor.inspection import Inspection
from txaware.service.topic_handles import TopicHandle
from txaware.service.visibility import ForeignPointers
from txaware.store.columns import HEADERS, KEY, RECEIPTS
from txaware.store.message_table import Block
from txaware.store.payload_table import PayloadTable

# One call looks at so many rows at most, and at so many bytes.
MOST_ROWS, MOST_BYTES = 10_000, 16 << 20


class MessageSearch(Inspection):
    """Reads rows as they are, and those that their transactions stored ahead."""

    def __init__(self, table: OrderedTable, foreign_pointers: ForeignPointers) -> None:
        super().__init__(table, foreign_pointers)
        self._payloads = PayloadTable(table)

    def page(
        self,
        place: TopicHandle,
        snapshot: Transaction,
        search: Search,
        *,
        start: MessageId,
        limit: int,
    ) -> SearchPage:
        """Returns the rows that fit, of as many as one call looks at.

        `next` is where the following call goes on, None at the end.
        """
        found, looked, left_bytes = list[Peeked](), 0, MOST_BYTES
        for row in self._rows(place, snapshot, start):
            if search.until is not None and row.id.publish_time_ms >= search.until:
                break
            if len(found) == limit or looked == MOST_ROWS or left_bytes <= 0:
                return SearchPage(found, row.id, looked)
            looked += 1
            left_bytes -= row.size_bytes
            if search.fits(row.key, row.headers, row.payload or b""):
                found.append(row)
        return SearchPage(found, None, looked)

    def _rows(
        self, place: TopicHandle, snapshot: Transaction, start: MessageId
    ) -> Iterator[Peeked]:
        for block in self._blocks(place, start.row_key):
            for index in range(len(block)):
                row = self._peeked(block, index, snapshot)
                if row.payload is not None:
                    yield row
                    continue
                is_first = block.keys[index] == start.row_key
                after = start.payload_key if is_first else NO_PAYLOAD_ROW
                yield from self._stored_of(place, block, index, row, after)

    def _stored_of(
        self,
        place: TopicHandle,
        block: Block,
        index: int,
        reference: Peeked,
        start: bytes,
    ) -> Iterator[Peeked]:
        """Yields what a reference stands for, from a key on."""
        receipts = block.more.get(index, {}).get(RECEIPTS)
        pointer = reference.pointer or 0
        for key, columns in self._payloads.named_rows(
            place.topic.prefix, pointer, receipts, start=start
        ):
            yield attrs.evolve(
                reference,
                id=MessageId(block.keys[index] + key),
                payload=columns.payload or b"",
                key=columns.more.get(KEY),
                headers=unpacked(columns.more.get(HEADERS, b"")),
            )
