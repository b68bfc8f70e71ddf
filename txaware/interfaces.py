"""The ports: the service that every program talks to, and the table under it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol, cast

from coordinator.embedded.commit_log import Wait
from coordinator.embedded.group_commit import Then
from coordinator.transaction import Transaction
from txaware.clock import StoreClock
from txaware.messages import (
    Bounds,
    Message,
    MessageId,
    Page,
    PublishResponse,
    Receipt,
)
from txaware.requests import Payload, Pointer, Start
from txaware.topics import Topic

# A row to write: its key, and its value or None for a deletion.
Write = tuple[bytes, bytes | None]
Row = tuple[bytes, bytes]

# What a poll without a transaction delivers: everything, or what is committed.
Isolation = Literal["uncommitted", "committed"]
UNCOMMITTED: Isolation = "uncommitted"
COMMITTED: Isolation = "committed"


class _Unsaid(str):
    """What a call has by itself, and nobody said."""


# A block's transaction decides where the caller said nothing, and only there.
UNSAID = cast(Isolation, _Unsaid(UNCOMMITTED))


class MessagingService(Protocol):
    """Topics, and what is published to them and read from them.

    The same calls embedded, over HTTP and on HBase. Any number of threads may call. A
    topic is `name` or `namespace:name`. A call that raises `BadRequest`,
    `TopicNotFound` or `TransactionRefused` changed nothing.
    """

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> Topic:
        """Changes what is named and leaves the rest; a property set to None goes."""

    def topic(self, topic: str) -> Topic:
        """The topic as it stands."""

    def topics(self, namespace: str = "default") -> list[str]:
        """The names of a namespace's topics, in the order of their keys."""

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction answers what `rollback` takes.

        An empty list in a transaction publishes the reference to what was stored: what
        `receipts` name, or else all that this service answered and no reference named.
        """

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all who poll in a transaction."""

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: Isolation = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Page:
        """Messages from `start` on: an id, a time in ms, or None for the beginning.

        With a transaction it stops at the first row that its snapshot cannot decide;
        `isolation="committed"` does the same with a fresh snapshot. `wait_s` waits for
        the first message, without a transaction only.
        """

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """How far a group has come, as the transaction or a fresh snapshot sees it."""

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what this one had saved."""

    def bounds(self, topic: str) -> Bounds:
        """The first and the last id, committed or not, and where the next goes."""

    def wait(
        self,
        topic: str,
        *,
        start: Start,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        timeout_s: float,
    ) -> bool:
        """Waits until something is there to poll; False after the time-out."""


class Emptiness(Protocol):
    """Knows of ranges in which there is no row."""

    def may_have(self, prefix: bytes, start: bytes, stop: bytes | None) -> bool:
        """False where surely no row lies from `start` and before `stop`.

        `prefix` names a topic, with or without a generation.
        """


class OrderedTable(Protocol):
    """One ordered map from keys to values, which outlives the process or does not.

    Any number of threads may call. What `submit` took is readable, all of it or
    nothing, from some moment before its wait returns.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        reverse: bool = False,
    ) -> list[Row]:
        """Rows whose key begins with `prefix`, which is left off, in order.

        From `start` and before `stop`, at most `limit`, and no more once they hold
        `max_bytes`; backwards from `stop` when asked. One consistent view.
        """

    def submit(self, writes: Sequence[Write], then: Then | None = None) -> Wait:
        """Takes writes for the next batch; what it answers returns once they are kept.

        Batches keep the order of their submission. `then` is told how it ended, before
        anybody returns from waiting.
        """

    def hand_over(self, writes: Sequence[Write], then: Then) -> None:
        """Takes writes for the next batch; `then` is told, in whatever thread.

        For whoever must not wait, as an event loop. `then` takes no time, and raises
        nothing.
        """

    @property
    def clock(self) -> StoreClock:
        """The time of this table, for keys that rise."""

    @property
    def reads_wait(self) -> bool:
        """Whether a read may wait for a network; no event loop asks for one then."""

    def reserve_time(self) -> None:
        """Returns when no restart gives out a time again that was given out so far."""

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Takes rows of an open transaction: readable at once, kept with its commit.

        Once it has ended otherwise, they are kept with some later batch. False, and
        none taken, where they are too many for that: submit them.
        """

    def replace_held(self, key: bytes, value: bytes) -> bool:
        """Changes a row that is held; False where it is not held (any more)."""

    def compare_and_set(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        """Sets a value that is still `old`, and returns once that is kept."""

    def compact(self, start: bytes, stop: bytes) -> None:
        """Gives the space of deleted rows back to the disk."""

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """About how many bytes a range of whole keys takes; reads hardly anything.

        For plans alone: rows count as they are kept, compressed perhaps, deleted ones
        as long as their space is not given back, and the latest few MiB may be missing.
        """

    def outline(self, tag: bytes) -> Emptiness | None:
        """Which ranges of rows with that first byte are empty, of all topics at once.

        Of rows from before the call. None where to look into each costs hardly more.
        """

    def status(self) -> str:
        """`"OK"`, or a sentence about what is wrong."""

    def close(self) -> None:
        """Keeps what has to be kept and gives everything back."""


__all__ = [
    "COMMITTED",
    "UNCOMMITTED",
    "UNSAID",
    "Isolation",
    "Message",
    "MessagingService",
    "OrderedTable",
    "Payload",
    "Pointer",
    "Row",
    "Start",
    "Wait",
    "Write",
]
