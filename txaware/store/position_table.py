"""The position table: the positions of groups, a row for each transaction."""

from collections.abc import Iterator
from typing import NamedTuple

from txaware.model.interfaces import OrderedTable, Write
from txaware.model.markers import PRODUCERS, counts_tries, is_marker
from txaware.model.messages import MessageId
from txaware.model.topics import TopicName
from txaware.store.columns import decode, value_head
from txaware.store.keys import (
    POINTER_BYTES,
    POSITION,
    after,
    pointer_key,
    position_prefix,
)

FIRST_LOOK, MOST_ROWS = 2, 256


class PositionRow(NamedTuple):
    """A position, and the pointer that it was saved with: negative when taken back."""

    key: bytes
    pointer: int
    position: MessageId


class PositionTable:
    """The rows of all positions, which their reader judges by the pointers.

    The row with the greatest pointer that the reader may see counts.
    """

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def newest_first(self, group: str, topic: TopicName) -> Iterator[PositionRow]:
        """Reads all positions of a group in a topic, from the greatest pointer down."""
        prefix = position_prefix(group, topic)
        stop, limit = None, FIRST_LOOK
        while rows := self._table.scan(prefix, stop=stop, limit=limit, reverse=True):
            for key, value in rows:
                columns = decode(value)
                yield PositionRow(
                    prefix + key,
                    columns.pointer or 0,
                    MessageId(columns.payload or b""),
                )
            stop, limit = rows[-1][0], MOST_ROWS

    def groups(self) -> Iterator[tuple[str, TopicName]]:
        """Lists every group and topic that has a position, with one look for each.

        Markers are left out, since no consumer has them.
        """
        start, stop = b"", PRODUCERS.encode("ascii")
        while rows := self._table.scan(POSITION, start=start, stop=stop, limit=1):
            name = rows[0][0][:-POINTER_BYTES]
            group, namespace, topic, _ = name.decode("ascii").split(":")
            position = MessageId(decode(rows[0][1]).payload or b"")
            if not is_marker(group) and not counts_tries(position):
                yield group, TopicName(topic, namespace)
            start = after(name)


def position_write(
    group: str, topic: TopicName, pointer: int, position: MessageId
) -> Write:
    """Makes the row that saves a position."""
    key = position_prefix(group, topic) + pointer_key(pointer)
    return key, value_head(pointer) + position
