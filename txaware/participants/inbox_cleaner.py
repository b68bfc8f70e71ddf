"""Removes the notes of handled items from a database once the items have ended."""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextvars import Context
from functools import cached_property
from typing import Protocol

from coordinator.fork_guard import guard
from coordinator.retry import retry_on_conflict
from txaware.errors import NotAuthorized, QueueNotFound
from txaware.messaging import Messaging
from txaware.participants.background_work import BackgroundWork
from txaware.participants.database_link import DatabaseLink
from txaware.participants.outbox_relay import PROGRESS
from txaware.participants.sql_dialect import Execute, any_of

log = logging.getLogger(__name__)

# The row of `PROGRESS` with the name of the store, drawn by who first asks for it.
STORE = b"store"
BATCH_ITEMS = 1_000

# A queue, and an item in it.
Noted = tuple[str, str]


class NotedItems(Protocol):
    """The notes of handled items in a database, over a connection of their own.

    Calls come from one thread at a time.
    """

    def has_any(self) -> bool:
        """Tells whether an item is noted, of any store."""

    def take(
        self, store: str, gone: Sequence[Noted], *, after: Noted, limit: int
    ) -> list[Noted]:
        """Removes items that are gone; returns the next notes in their order.

        When it returns, the removal is on disk, and so is all that it returns.
        """

    def sync(self) -> None:
        """Has all on disk that the database has committed by now."""

    def close(self) -> None:
        """Closes the connection."""


class InboxCleaner:
    """The cleaner of one inbox, in a thread of its own once it has been started.

    An item that a crash left with a note is ended, too. A note stays for as long as its
    item may come again: while it is in work, or was never popped in this life of it.
    `expects_notes` tells whether the last block in this process had some.
    """

    def __init__(self, messaging: Messaging, items: NotedItems) -> None:
        self._messaging = messaging
        self._items = items
        self._lock = threading.Lock()
        self._is_closed = False
        self._count = 0
        self.expects_notes = False
        self._background = BackgroundWork(self.clean, name=repr(self))
        guard(self)

    @cached_property
    def store(self) -> str:
        """The name of the store, which the notes of its items have with them."""
        return Context().run(_named, self._messaging)  # outside of the open block

    def clean(self) -> int:
        """Removes the notes of items that have ended; returns how many these were."""
        count = 0
        with self._lock:
            self._count = 0
            if self._is_closed or not self._items.has_any():
                return 0
            gone: list[Noted] = []
            after = ("", "")
            while found := self._items.take(
                self.store, gone, after=after, limit=BATCH_ITEMS
            ):
                gone, after = self._ended(found), found[-1]
                count += len(gone)
        return count

    def has_noted(self, count: int, *, in_background: bool) -> None:
        """Learns of items whose block has ended; cleans soon, and before they are many.

        Otherwise the thread looks every second.
        """
        self._count += count
        if in_background and not self._background.is_running:
            self._background.start()
        elif self._count >= BATCH_ITEMS:
            self._background.wake()

    def sync(self) -> None:
        """Has all on disk that the database has committed by now."""
        with self._lock:
            self._items.sync()

    def close(self) -> None:
        """Removes what may go, if it works in the background, and ends."""
        was_running = self._background.is_running
        self._background.close()
        if was_running:
            try:
                self.clean()
            except Exception as error:
                log.warning("%r leaves notes: %s", self, error)
        with self._lock:
            self._is_closed = True
            self._items.close()

    def __repr__(self) -> str:
        return f"<InboxCleaner of {self._items!r}>"

    def _ended(self, noted: list[Noted]) -> list[Noted]:
        """Ends what waits again of these items; returns those that are gone."""
        by_queue: dict[str, list[str]] = defaultdict(list)
        for queue, item in noted:
            by_queue[queue].append(item)
        gone: list[Noted] = []
        for queue, items in by_queue.items():
            left: set[str] = set()
            try:
                left.update(self._messaging.end_handled(queue, items))
            except QueueNotFound:
                pass  # with all its items
            except NotAuthorized as error:
                log.warning("notes of queue %s stay in %r: %s", queue, self, error)
                continue
            gone += [(queue, item) for item in items if item not in left]
        return gone


@retry_on_conflict
def _named(messaging: Messaging) -> str:
    table = messaging.table(PROGRESS)
    with messaging.transaction():
        name = table.get(STORE)
        if name is None:
            name = os.urandom(8).hex().encode()
            table.put(STORE, name)
        return bytes(name).decode()


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
