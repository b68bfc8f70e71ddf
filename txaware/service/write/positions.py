"""Saves the positions of groups, and reads them by a snapshot, like messages."""

from collections.abc import Callable, Iterable

from coordinator.interfaces import Loading
from txaware.errors import Unavailable
from txaware.model.interfaces import OrderedTable, Write
from txaware.model.messages import MessageId
from txaware.model.topics import TopicName
from txaware.service.visibility import DELIVER, Visibility
from txaware.store.position_table import PositionTable, position_write
from txaware.store.ranges import negate


class RowCargo:
    """Rows that their commit carries: the move of a group, or changes of a table.

    `then` is called once the commit has happened.
    """

    def __init__(
        self, writes: list[Write], then: Callable[[], object] | None = None
    ) -> None:
        self._writes = writes
        self._then = then

    def loading(self) -> Loading:
        """Yields the rows, whose order does not matter."""
        yield self._writes, _nothing

    def count(self) -> None:
        """Notes that the rows are visible."""
        if self._then is not None:
            self._then()


def _nothing(_: Unavailable | None) -> None:
    """Does nothing: nobody waits for such rows alone."""


class Positions:
    """The saved positions; the one with the greatest visible pointer counts."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table
        self._positions = PositionTable(table)

    def has_any(self, group: str, topic: TopicName) -> bool:
        """Tells whether a group has saved any position, visible or not."""
        return next(self._positions.newest_first(group, topic), None) is not None

    def position(
        self, group: str, topic: TopicName, judge: Visibility
    ) -> MessageId | None:
        """Returns the group's position as the judge's reader sees it, or None."""
        for row in self._positions.newest_first(group, topic):
            if judge.verdict(row.pointer) == DELIVER:
                return row.position
        return None

    def take_back(self, group: str, topic: TopicName, pointer: int) -> None:
        """Negates the position that a transaction saved, if there is one."""
        key, _ = position_write(group, topic, pointer, MessageId(bytes(20)))
        value = self._table.get(key)
        if value is not None:
            self.negate([(key, value)])

    def negate(self, writes: Iterable[Write]) -> None:
        """Negates rows that were written, or that a batch to come writes."""
        rows = [(key, value) for key, value in writes if value is not None]
        negate(self._table, rows)
