"""A message or an item as a row in a user's database, and the port of its outbox."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import attrs

from txaware.errors import BadRequest
from txaware.model.interfaces import Payload
from txaware.model.labels import packed, unpacked
from txaware.model.messages import MessageId, Outgoing
from txaware.model.queues import MARK, PushOptions, row_name
from txaware.model.topics import DEFAULT_NAMESPACE, QueueName

TOKEN_BYTES = 8
# A batch stays below the buffer of a transaction, unless one block is larger.
MOST_BYTES = 6 << 20
# A block is carried over in one piece up to these bounds.
WHOLE_BYTES, WHOLE_ROWS = 64 << 20, 100_000

COLUMNS = """topic, payload, "key", headers, expire_after_s, token, written_ms, pusher,
    delay_s, priority"""
INSERT = f"""INSERT INTO txaware_outbox ({COLUMNS})
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
# Two rows may have had one place in an outbox after each other, never with one token.
Columns = tuple[
    *tuple[str, bytes, bytes | None, bytes | None, float | None],
    *tuple[bytes, int | None, str | None, float | None, int | None],
]


class Row(NamedTuple):
    """A row of an outbox: its place, and the columns of a message or an item.

    A `topic` with a dot before its name is the queue of that name, which no earlier
    version takes for a topic. All rows of a block have one token. An expiry and a delay
    count from the time when the row was written; rows of earlier versions have none.
    """

    place: int
    topic: str
    payload: bytes
    key: bytes | None
    headers: bytes | None
    expire_after_s: float | None
    token: bytes
    written_ms: int | None
    pusher: str | None
    delay_s: float | None
    priority: int | None


def new_token() -> bytes:
    """Returns a token for the rows of a block, which no other block has."""
    return os.urandom(TOKEN_BYTES)


def columns_of(topic: str, message: Payload, *, token: bytes, now_ms: int) -> Columns:
    """Returns the columns of a checked message."""
    return topic, *_content(message), token, now_ms, None, None, None


def columns_of_item(
    queue: str, item: Payload, options: PushOptions, *, token: bytes, now_ms: int
) -> Columns:
    """Returns the columns of a checked item; a pusher without a name is ""."""
    topic, delay_s = str(row_name(queue)), options["delay_s"] or None
    pusher, priority = options["pusher"], options["priority"]
    return topic, *_content(item), token, now_ms, pusher, delay_s, priority


def _content(
    message: Payload,
) -> tuple[bytes, bytes | None, bytes | None, float | None]:
    if not isinstance(message, Outgoing):
        return bytes(message), None, None, None
    headers = packed(message.headers) if message.headers else None
    key = None if message.key is None else bytes(message.key)
    return bytes(message.payload), key, headers, message.expire_after_s


@attrs.frozen
class OutboxDestination:
    """The topic or the queue that a row is for."""

    name: str
    is_queue: bool

    @classmethod
    def of(cls, topic: str) -> "OutboxDestination":
        """Reads a row's column `topic`."""
        namespace, _, name = topic.rpartition(":")
        if not name.startswith(MARK):
            return cls(topic, is_queue=False)
        within = f"{namespace}:" if namespace else ""
        try:
            queue = str(QueueName.parse(within + name.removeprefix(MARK)))
        except BadRequest:  # whoever pushes to it says so
            queue = within + name.removeprefix(MARK)
        return cls(queue, is_queue=True)

    @property
    def column(self) -> str:
        """The column `topic` of its rows."""
        if self.is_queue:
            return str(row_name(self.name))
        return self.name.removeprefix(f"{DEFAULT_NAMESPACE}:")

    def __str__(self) -> str:
        return f"{'queue' if self.is_queue else 'topic'} {self.name}"


def payload_of(row: Row, *, now_ms: int) -> Payload | None:
    """Returns the message or the item of a row; None for one that has expired."""
    key, headers, expire_after_s = row.key, row.headers, row.expire_after_s
    if key is None and headers is None and expire_after_s is None:
        return row.payload
    named = None if headers is None else unpacked(headers)
    if expire_after_s is not None and row.written_ms is not None:
        left_s = expire_after_s - (now_ms - row.written_ms) / 1000
        if left_s <= 0:
            return None
        expire_after_s = min(expire_after_s, left_s)
    return Outgoing(row.payload, key, named, expire_after_s)


@attrs.frozen
class SetAside:
    """The rows for one topic or queue that could not be carried over, all together.

    `topic` is the name of either. The `reason`, as it was told `since`, is that of the
    first of them.
    """

    topic: str
    is_queue: bool
    reason: str
    since: datetime
    count: int

    @property
    def destination(self) -> OutboxDestination:
        """The topic or queue."""
        return OutboxDestination(self.topic, self.is_queue)


@attrs.frozen
class SetAsideMessage:
    """One message or item that could not be carried over, and why."""

    payload: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    reason: str
    since: datetime


@attrs.define
class OutboxBatch:
    """Rows for the relay in their order, and how many wait behind them.

    `newly` tells of topics and queues of which rows were set aside just now, where none
    had been before.
    """

    rows: Sequence[Row] = ()
    rest: int = 0
    newly: Sequence[SetAside] = ()


Pause = Callable[[float], object]


class OutboxRows(Protocol):
    """The outbox and inbox tables of a database, over a connection of their own.

    The relay calls from one thread at a time; all but `take` may come from others.
    """

    @property
    def outbox_id(self) -> str:
        """The id of this outbox, which no other has."""

    @property
    def name(self) -> str:
        """The name of the database, for its people."""

    @property
    def tells_pieces(self) -> bool:
        """True where the ends of a batch tell all of its rows."""

    def has_rows(self) -> bool:
        """Tells whether a row is there, carried over or not."""

    def take(self, progress: bytes, *, limit: int) -> OutboxBatch:
        """Removes what a relay carried over last, or sets it aside; returns the next.

        `progress` is what that relay wrote down. When this returns, all that is on
        disk, and so is what it returns. Rows that are not there any more, or rows of
        others in their places, stay as they are. A block is not cut, unless it is
        larger than a batch may be.
        """

    def waiting(self) -> int:
        """Returns how many rows wait, those carried over a moment ago included."""

    def oldest_ms(self) -> int | None:
        """Returns when the first row that waits was written; None where none waits."""

    def wait(self, timeout_s: float, *, pause: Pause = time.sleep) -> bool:
        """Waits until others may have written rows; False after the time-out.

        What they wrote since the last wait counts, and before the first one. It sleeps
        by `pause`, which may return earlier, where it has to look again and again.
        """

    def set_aside_count(self) -> int:
        """Returns how many rows are set aside; some seconds old at most."""

    def set_aside(self) -> list[SetAside]:
        """Returns what is set aside, by topic and queue; the oldest first."""

    def set_aside_messages(
        self, destination: OutboxDestination, *, limit: int
    ) -> list[SetAsideMessage]:
        """Returns the first rows that are set aside for a topic or queue."""

    def put_back(self, destination: OutboxDestination, *, to: str | None = None) -> int:
        """Has all that is set aside for a topic or queue wait again, in its order.

        It waits for another one where the column `topic` of that is named. Returns how
        many rows these are.
        """

    def discard(self, destination: OutboxDestination) -> int:
        """Removes what is set aside for a topic or queue; returns how many rows."""

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far an inbox has come, as it is committed."""

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves an inbox outside of a block; on disk when it returns."""

    def close(self) -> None:
        """Closes the connection."""
