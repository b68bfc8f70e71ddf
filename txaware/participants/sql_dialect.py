"""What databases say in different words; all other SQL of ours is written once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from txaware.participants.database_steps import Steps, in_thread

# Runs a statement of ours; returns a cursor.
Execute = Callable[[str, Sequence[Any]], Any]


class SqlDialect(ABC):
    """Speaks to one database, over any of its drivers.

    Statements of ours have `?` for values and `"` around names that need it.
    """

    # The types of columns, by what they are for.
    types: Mapping[str, str]
    # Asks for the names of our tables and of their columns, as far as they are there.
    columns: str
    # Writes a row of the outbox; and one of a transaction that the program began.
    insert: str
    insert_alone: str
    # Writes the row of a group that others wait for; "" where one block at a time does.
    enter: str
    # Moves a group, once it was entered.
    save = (
        "UPDATE txaware_inbox SET position = ? WHERE consumer_group = ? AND topic = ?"
    )
    # Write a note of an item and the row of the state, where there is none.
    note: str
    state: str
    # Has a read of a position wait for other blocks, and others for this one.
    lock = ""
    # Has programs that make the tables in a transaction do so one after the other.
    alone = ""
    # False where making a table commits the transaction that is open.
    makes_tables_within = True

    def own(self, sql: str) -> str:
        """Returns a statement of ours in the words of the driver."""
        return sql

    @abstractmethod
    def cursor(self, connection: Any) -> Steps[Any]:
        """Makes a cursor whose rows are tuples, whatever the program has chosen."""

    def executed(self, connection: Any, own: str, values: Sequence[Any]) -> Steps[Any]:
        """Runs a statement in the words of the driver; returns such a cursor."""
        cursor = yield from self.cursor(connection)
        yield cursor.execute(own, values)
        return cursor

    @abstractmethod
    def is_outside(self, connection: Any) -> bool:
        """Tells whether a statement would be in no transaction, and commit."""

    def rows(self, connection: Any, sql: str, *values: object) -> Steps[list[Any]]:
        """Reads rows as tuples; a statement without rows has none."""
        cursor = yield from self.executed(connection, self.own(sql), values)
        return list((yield cursor.fetchall())) if cursor.description else []

    def change(self, connection: Any, sql: str, *values: object) -> Steps[int]:
        """Changes rows; returns how many, as far as the driver tells."""
        cursor = yield from self.executed(connection, self.own(sql), values)
        return int(cursor.rowcount)

    def change_many(
        self, connection: Any, sql: str, rows: Sequence[Sequence[Any]]
    ) -> Steps[None]:
        """Runs a statement for each of some rows."""
        if len(rows) == 1:  # for many a driver does more
            yield from self.executed(connection, self.own(sql), rows[0])
        else:
            cursor = yield from self.cursor(connection)
            yield cursor.executemany(self.own(sql), rows)

    def executing(self, connection: Any) -> Execute:
        """Returns what runs statements over a connection that blocks."""

        def execute(sql: str, values: Sequence[Any]) -> Any:
            cursor = in_thread(self.cursor(connection))
            cursor.execute(self.own(sql), values)
            return cursor

        return execute


def any_of(values: Collection[object]) -> str:
    """Returns the condition that a column has one of some values, which follow."""
    return f"IN ({', '.join('?' * len(values))})"
