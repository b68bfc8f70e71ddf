"""The notes of handled items in a PostgreSQL."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txaware.participants.inbox_cleaner import Noted
from txaware.participants.postgres_link import PostgresLink

if TYPE_CHECKING:
    from psycopg import Connection

# Where another transaction notes one of them, this waits for its end.
NOTE = """INSERT INTO txaware_inbox_items
    SELECT %s, %s, item FROM unnest(%s::text[]) AS item ORDER BY item
    ON CONFLICT DO NOTHING RETURNING item"""
NOTED = """SELECT item FROM txaware_inbox_items
    WHERE store = %s AND queue = %s AND item = ANY(%s)"""
FORGET = """DELETE FROM txaware_inbox_items
    WHERE store = %s AND queue = %s AND item = ANY(%s)"""
# A commit that is not synced could be lost when its items have ended.
SYNCED = """SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') = 'off'"""
_ANY = "SELECT 1 FROM txaware_inbox_items LIMIT 1"
_REMOVE = """DELETE FROM txaware_inbox_items AS row
    USING unnest(%s::text[], %s::text[]) AS gone (queue, item)
    WHERE row.store = %s AND row.queue = gone.queue AND row.item = gone.item"""
_NEXT = """SELECT queue, item FROM txaware_inbox_items
    WHERE store = %s AND (queue, item) > (%s, %s) ORDER BY queue, item LIMIT %s"""


class PostgresNotedItems:
    """The table of one database, which is there."""

    def __init__(self, link: PostgresLink) -> None:
        self._link = link

    def has_any(self) -> bool:
        """Tells whether an item is noted, of any store."""
        found = self._link.run(lambda link: link.execute(_ANY).fetchone())
        return found is not None

    def take(
        self, store: str, gone: Sequence[Noted], *, after: Noted, limit: int
    ) -> list[Noted]:
        """Removes items that are gone; returns the next notes in their order."""
        columns = [[one[at] for one in gone] for at in (0, 1)]

        def work(link: "Connection[Any]") -> list[Noted]:
            with link.transaction():
                _sync(link)
                if gone:
                    link.execute(_REMOVE, (*columns, store))
                return link.execute(_NEXT, (store, *after, limit)).fetchall()

        return self._link.run(work)

    def sync(self) -> None:
        """Has all on disk that was committed by now: a later commit is synced."""

        def work(link: "Connection[Any]") -> None:
            with link.transaction():
                _sync(link)

        self._link.run(work)

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def __repr__(self) -> str:
        return "<PostgresNotedItems>"


def _sync(link: "Connection[Any]") -> None:
    link.execute("SET LOCAL synchronous_commit = on")
    link.execute("UPDATE txaware_state SET reads = reads + 1")
