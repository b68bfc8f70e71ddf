"""Looks into topics without consuming anything."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TypeVar

from coordinator.transaction import Transaction
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import BlockedBy, Bounds, MessageId
from txaware.model.reports import Peeked, TopicReport
from txaware.service.topic_handles import TopicHandle
from txaware.service.visibility import ForeignPointers
from txaware.store.interfaces import pieces
from txaware.store.keys import PAYLOAD
from txaware.store.message_table import Block, MessageTable

T = TypeVar("T")

# Called now and then by what takes long; what it raises ends that.
GoOn = Callable[[], object]
PLAIN, COMMITTED, IN_PROGRESS = "plain", "committed", "in progress"
INVALID, ROLLED_BACK = "invalid", "rolled back"
_END = b"\xff" * 10


class Inspection:
    """Reads the tables as they are; judges by the snapshot it is given."""

    def __init__(self, table: OrderedTable, foreign_pointers: ForeignPointers) -> None:
        self._table = table
        self._foreign_pointers = foreign_pointers
        self._messages = MessageTable(table)

    def peek(
        self, place: TopicHandle, snapshot: Transaction, *, start: bytes, limit: int
    ) -> list[Peeked]:
        """Returns rows from `start` on, whatever became of their transactions."""
        peeked: list[Peeked] = []
        for block in self._blocks(place, start):
            for index in range(len(block)):
                if len(peeked) == limit:
                    return peeked
                peeked.append(self._peeked(block, index, snapshot))
        return peeked

    def report(
        self,
        place: TopicHandle,
        snapshot: Transaction,
        bounds: Bounds,
        *,
        go_on: GoOn | None = None,
    ) -> TopicReport:
        """Counts everything; that takes a while in a large topic."""
        messages = references = size_bytes = rolled_back = 0
        oldest: bytes | None = None
        newest = b""
        in_progress: dict[int, int] = {}
        state = cache(partial(self._state, snapshot))
        for block in _asking(go_on, self._blocks(place, b"")):
            oldest, newest = oldest or block.keys[0], block.keys[-1]
            count = block.payloads.count(None)
            references, messages = references + count, messages + len(block) - count
            size_bytes += sum(len(p) for p in block.payloads if p is not None)
            for key, pointer in zip(block.keys, block.pointers or (), strict=False):
                if state(pointer) == ROLLED_BACK:
                    rolled_back += 1
                elif pointer is not None and state(pointer) == IN_PROGRESS:
                    in_progress.setdefault(pointer, int.from_bytes(key[:8], "big"))
        stored, stored_bytes = self._stored(place, go_on)
        return TopicReport(
            messages,
            references,
            stored,
            size_bytes + stored_bytes,
            rolled_back,
            int.from_bytes(oldest[:8], "big") if oldest else None,
            int.from_bytes(newest[:8], "big") if newest else None,
            list(in_progress),
            next((BlockedBy(p, since_ms) for p, since_ms in in_progress.items()), None),
            bounds,
        )

    def _blocks(self, place: TopicHandle, start: bytes) -> Iterator[Block]:
        prefix = place.topic.prefix
        while len(
            block := self._messages.read(
                prefix, start=start, stop=_END, limit=1000, max_bytes=1 << 20
            )
        ):
            yield block
            start = block.keys[-1] + b"\0"

    def _stored(self, place: TopicHandle, go_on: GoOn | None) -> tuple[int, int]:
        count = size_bytes = 0
        stored = pieces(self._table, PAYLOAD + place.topic.prefix)
        for rows in _asking(go_on, stored):
            count += len(rows)
            size_bytes += sum([len(value) - 1 for _, value in rows])
        return count, size_bytes

    def _peeked(self, block: Block, index: int, snapshot: Transaction) -> Peeked:
        key, message = block.keys[index], block.message(index)
        pointer = block.pointers[index] if block.pointers is not None else None
        return Peeked(
            MessageId.of_row(key),
            None if message is None else message.payload,
            None if pointer is None else abs(pointer),
            self._state(snapshot, pointer),
            None if message is None else message.key,
            {} if message is None else message.headers,
        )

    def _state(self, snapshot: Transaction, pointer: int | None) -> str:
        if pointer is None:
            return PLAIN
        if pointer < 0:
            return ROLLED_BACK
        if self._foreign_pointers.has(pointer):  # as for a poll
            return IN_PROGRESS
        if pointer in snapshot.invalids:
            return INVALID
        return COMMITTED if snapshot.is_visible(pointer) else IN_PROGRESS


def _asking(go_on: GoOn | None, pieces: Iterator[T]) -> Iterator[T]:
    for piece in pieces:
        yield piece
        if go_on is not None:
            go_on()
