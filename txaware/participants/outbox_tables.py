"""The outbox and inbox tables in a database, over a connection of the relay's."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from txaware.model.messages import MessageId
from txaware.participants import set_aside_rows
from txaware.participants.database_link import DatabaseLink
from txaware.participants.database_tables import made_tables
from txaware.participants.outbox_progress import Mark, Progress
from txaware.participants.outbox_row import (
    MOST_BYTES,
    WHOLE_BYTES,
    WHOLE_ROWS,
    OutboxBatch,
    OutboxDestination,
    Pause,
    Row,
    SetAside,
    SetAsideMessage,
)
from txaware.participants.set_aside_rows import CountedLately
from txaware.participants.sql_dialect import Execute
from txaware.publish.publisher import OVERHEAD_BYTES

MOST_ROWS = 10_000
POSITION = "SELECT position FROM txaware_inbox WHERE consumer_group = ? AND topic = ?"
_HAS_ROWS = "SELECT 1 FROM txaware_outbox LIMIT 1"
_SIZES = """SELECT id, token, octet_length(payload) FROM txaware_outbox
    ORDER BY id LIMIT ?"""
_SIZES_OF_BLOCK = """SELECT id, token, octet_length(payload) FROM txaware_outbox
    WHERE token = ? ORDER BY id LIMIT ?"""
# The place of a row, its token, and the bytes of its payload.
Size = tuple[int, bytes, int]


class OutboxTables(ABC):
    """The tables of one database; they are made if they are not there."""

    tells_pieces = False

    def __init__(self, link: DatabaseLink) -> None:
        self._link = link
        self._count = CountedLately()
        self.name = link.name
        try:
            self.outbox_id = made_tables(link)
        except BaseException:
            link.close()
            raise

    def has_rows(self) -> bool:
        """Tells whether a row is there, carried over or not."""
        return (
            self._link.ask(lambda execute: execute(_HAS_ROWS, ()).fetchone())
            is not None
        )

    def take(self, progress: bytes, *, limit: int) -> OutboxBatch:
        """Removes what a relay carried over last, or sets it aside; returns the next.

        What others have committed before is on disk then, too.
        """
        last = Progress.read(progress, tells_pieces=self.tells_pieces)

        def work(execute: Execute) -> OutboxBatch:
            self._remove(execute, last)
            newly = set_aside_rows.set_aside_refused(execute, last.refused)
            rows, is_all = self._next(execute, limit)
            rest = 0 if is_all else set_aside_rows.waiting(execute) - len(rows)
            return OutboxBatch(rows, rest, newly)

        if last.refused:
            self._count.forget()
        return self._link.change(work)

    def waiting(self) -> int:
        """Returns how many rows wait, those carried over a moment ago included."""
        return self._link.ask(set_aside_rows.waiting)

    def oldest_ms(self) -> int | None:
        """Returns when the first row that waits was written; None where none waits."""
        return self._link.ask(set_aside_rows.oldest_ms)

    @abstractmethod
    def wait(self, timeout_s: float, *, pause: Pause = time.sleep) -> bool:
        """Waits until others may have written rows; False after the time-out."""

    def set_aside_count(self) -> int:
        """Returns how many rows are set aside; some seconds old at most."""
        count = set_aside_rows.set_aside_count
        return self._count.get(lambda: self._link.ask(count))

    def set_aside(self) -> list[SetAside]:
        """Returns what is set aside, by topic and queue; the oldest first."""
        return self._link.ask(set_aside_rows.entries)

    def set_aside_messages(
        self, destination: OutboxDestination, *, limit: int
    ) -> list[SetAsideMessage]:
        """Returns the first rows that are set aside for a topic or queue."""
        topic, messages = destination.column, set_aside_rows.messages
        return self._link.ask(lambda execute: messages(execute, topic, limit=limit))

    def put_back(self, destination: OutboxDestination, *, to: str | None = None) -> int:
        """Has all that is set aside for a topic or queue wait again, in its order."""
        topic, put_back = destination.column, set_aside_rows.put_back
        self._count.forget()
        return self._link.change(
            lambda execute: put_back(execute, topic, to=to or topic)
        )

    def discard(self, destination: OutboxDestination) -> int:
        """Removes what is set aside for a topic or queue; returns how many rows."""
        topic, discard = destination.column, set_aside_rows.discard
        self._count.forget()
        return self._link.change(lambda execute: discard(execute, topic))

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""
        parameters = (group, topic)
        return id_of(
            self._link.ask(lambda execute: execute(POSITION, parameters).fetchall())
        )

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves an inbox outside of a block; on disk when it returns."""

        dialect = self._link.dialect

        def work(execute: Execute) -> None:
            if dialect.enter:
                execute(dialect.enter, (group, topic))
            execute(dialect.save, (bytes(position), group, topic))

        self._link.change(work)

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _remove(self, execute: Execute, last: Progress) -> None:
        """Removes what was carried over."""
        self._remove_marks(execute, last.carried)

    @abstractmethod
    def _remove_marks(self, execute: Execute, marks: Sequence[Mark]) -> None:
        """Removes rows; those of others in their places stay."""

    @abstractmethod
    def _next(self, execute: Execute, limit: int) -> tuple[list[Row], bool]:
        """Returns the first rows, of whole blocks, and whether these are all."""


class ConcurrentOutbox(OutboxTables):
    """The tables of a database to which many transactions add rows at once.

    They commit in another order than they draw the places of their rows.
    """

    @abstractmethod
    def _at(self, execute: Execute, places: Sequence[int]) -> Sequence[Any]:
        """Reads the rows at some places, in order; `COLUMNS` behind their place."""

    @abstractmethod
    def _going_on(
        self, execute: Execute, last: int, tokens: Sequence[bytes]
    ) -> Sequence[bytes]:
        """Returns those of some blocks that have rows behind a place."""

    def _next(self, execute: Execute, limit: int) -> tuple[list[Row], bool]:
        """Returns the first rows, of whole blocks, and whether these are all."""
        places, is_all = self._whole_blocks(execute, min(limit, MOST_ROWS))
        return [*map(Row._make, self._at(execute, places) if places else ())], is_all

    def _whole_blocks(self, execute: Execute, limit: int) -> tuple[list[int], bool]:
        """Returns the places of the first rows of whole blocks.

        Rows of one block may have those of others between them. A block that does not
        fit is left to the next batch; if nothing else fits, the first one is taken as a
        whole, or as much of it as one batch may ever be.
        """
        sizes: Sequence[Size] = execute(_SIZES, (limit + 1,)).fetchall()
        count = min(limit, _fitting(sizes, MOST_BYTES))
        if count == len(sizes):
            return [place for place, *_ in sizes], True
        taken = sizes[:count]
        tokens = list({bytes(token) for _, token, _ in taken})
        longer = {*map(bytes, self._going_on(execute, taken[-1][0], tokens))}
        whole = [place for place, token, _ in taken if bytes(token) not in longer]
        if whole:
            return whole, False
        parameters = (taken[0][1], WHOLE_ROWS)
        block: Sequence[Size] = execute(_SIZES_OF_BLOCK, parameters).fetchall()
        return [place for place, *_ in block[: _fitting(block, WHOLE_BYTES)]], False


def id_of(rows: Sequence[Any]) -> MessageId | None:
    """Returns the position in the rows that were found."""
    found = rows[0][0] if rows else None
    return None if found is None else MessageId(bytes(found))


def _fitting(sizes: Sequence[Size], most_bytes: int) -> int:
    """Returns how many of some rows stay below so many bytes; at least one."""
    size_bytes = 0
    for at, (_, _, payload_bytes) in enumerate(sizes):
        size_bytes += payload_bytes + OVERHEAD_BYTES
        if size_bytes > most_bytes:
            return max(1, at)
    return len(sizes)
