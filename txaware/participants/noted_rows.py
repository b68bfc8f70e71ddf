"""The notes of handled items in a database, over a connection of their own."""

from collections import defaultdict
from collections.abc import Sequence

from txaware.participants.database_link import DatabaseLink
from txaware.participants.inbox_cleaner import Noted
from txaware.participants.sql_dialect import Execute, any_of

NOTED = "SELECT item FROM txaware_inbox_items WHERE store = ? AND queue = ? AND item "
FORGET = "DELETE FROM txaware_inbox_items WHERE store = ? AND queue = ? AND item "
_ANY = "SELECT 1 FROM txaware_inbox_items LIMIT 1"
_NEXT = """SELECT queue, item FROM txaware_inbox_items
    WHERE store = ? AND (queue, item) > (?, ?) ORDER BY queue, item LIMIT ?"""


class NotedRows:
    """The table of one database, which is there."""

    def __init__(self, link: DatabaseLink) -> None:
        self._link = link

    def has_any(self) -> bool:
        """Tells whether an item is noted, of any store."""
        return self._link.ask(lambda execute: execute(_ANY, ()).fetchone() is not None)

    def take(
        self, store: str, gone: Sequence[Noted], *, after: Noted, limit: int
    ) -> list[Noted]:
        """Removes items that are gone; returns the next notes in their order."""
        by_queue: dict[str, list[str]] = defaultdict(list)
        for queue, item in gone:
            by_queue[queue].append(item)

        def work(execute: Execute) -> list[Noted]:
            for queue, items in by_queue.items():
                execute(FORGET + any_of(items), (store, queue, *items))
            return [*execute(_NEXT, (store, *after, limit)).fetchall()]

        return self._link.change(work)

    def sync(self) -> None:
        """Has all on disk that was committed by now: a later commit is synced."""
        self._link.change(lambda execute: None)

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def __repr__(self) -> str:
        return f"<NotedRows over {self._link!r}>"
