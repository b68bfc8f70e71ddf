"""Consumers: they poll a topic in order, in transactions and outside them."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from sys import modules
from typing import Any, Generic, cast

from coordinator import tracing
from coordinator.brief_errors import briefly
from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.consume.cursors import Group, GroupCursor, LocalCursor
from txaware.errors import MisusedTransaction, PartitionNeeded, TopicNotFound
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.encoding import Decode, decoder
from txaware.model.interfaces import COMMITTED, UNCOMMITTED, Isolation, MessagingService
from txaware.model.messages import (
    BlockedBy,
    MessageId,
    Page,
    Places,
    T,
    end_of,
    page_of,
)
from txaware.model.partitions import full_name
from txaware.model.start_places import (
    BEGINNING,
    Position,
    ReadPlace,
    StartAt,
    partition_names,
    place_in_partition,
    place_of,
)
from txaware.model.topics import checked_group

logger = logging.getLogger(__name__)


class ExpiredUnseen:
    """The warning that messages of a topic expired before a consumer saw them.

    It looks at each page of one consumer, and warns once for each position. A page says
    only that its start lies before the messages that are kept. Nothing was missed if
    the consumer stood there, at the end of the topic, after that time.
    """

    def __init__(self, name: str, clock_ms: ClockMs) -> None:
        self._name = name
        self._clock_ms = clock_ms
        self._at_end: MessageId | None = None
        self._at_end_ms = 0
        self._warned: MessageId | None = None

    def look(self, position: Position | None, page: Page) -> None:
        """Judges a page that was polled from `position`, unless it is of partitions."""
        if isinstance(page.next, dict) or isinstance(position, dict):
            return
        # A consumer at the beginning asks for what is there, not for what was.
        if page.skipped_before is not None and position not in (None, BEGINNING):
            self._judge(position, page.skipped_before)
        if not page and page.blocked_by is None:
            self._at_end = max(page.next, position or page.next)
            self._at_end_ms = self._clock_ms()

    def _judge(self, position: MessageId | None, skipped_before_ms: int) -> None:
        seen_ms = self._at_end_ms if position == self._at_end else 0
        if seen_ms >= skipped_before_ms or position == self._warned:
            return
        self._warned = position
        logger.warning(
            "%s stands at %s, and what was published there before %d (ms) has "
            "expired: messages may be gone that it never saw",
            self._name,
            position,
            skipped_before_ms,
        )


class Consumer(Generic[T]):
    """A reader of one topic, which gets each message once, in order.

    In a transaction of this thread or task, `poll` sees its snapshot, and the position
    moves with its commit or goes back with its rollback. Outside a transaction, `poll`
    sees what is committed, or everything with `isolation="uncommitted"`.

    Without a group the consumer begins at `start`, remembers its position in memory,
    and serves one transaction at a time. With a group the service keeps the position,
    and the members share it: each transaction reads it anew, and outside transactions
    `commit()` saves it. A group without a position begins at `start`.

    Any number of threads may call. A poll stops at the first message whose transaction
    is open; `blocked_by` names that transaction, and nothing is passed over.

    Of a topic of several partitions it reads all, each in its order. Its position is
    then an id for each partition, and a group has one in each.
    """

    def __init__(
        self,
        service: MessagingService,
        coordinator: Coordinator,
        topic: str,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        shares_journal: bool = False,
        clock_ms: ClockMs = system_clock_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        name = full_name(topic)
        self._service = service
        self._coordinator = coordinator
        self._topic = name
        self._isolation = isolation
        self._name = f"the consumer of {name}"
        self._blocked_by: BlockedBy | None = None
        self._lock = threading.Lock()
        self._expired = ExpiredUnseen(self._name, clock_ms)
        # So many partitions pages had; a topic that is made anew may have fewer.
        self._had = 0
        begin = self._position_of(start, inclusive=inclusive)
        self._cursor: LocalCursor | GroupCursor
        if group is None:
            self._cursor = LocalCursor(begin, name=self._name, clock_s=clock_s)
        else:
            self._name += f" in group {checked_group(group)}"
            shared = Group(service, group, name, begin, shares_journal)
            self._cursor = GroupCursor(shared, coordinator, clock_s=clock_s)
        guard(self)

    @property
    def position(self) -> Any:
        """The message after which the next poll goes on; None is the beginning.

        Given to another consumer as `start`, it needs `inclusive=False`.
        """
        with self._lock:
            return self._place().position

    @property
    def has_group(self) -> bool:
        """True where others share the position, which a commit saves."""
        return isinstance(self._cursor, GroupCursor)

    @property
    def blocked_by(self) -> BlockedBy | None:
        """The row that stopped the last poll before the end of the topic, if any."""
        return self._blocked_by

    @briefly
    def poll(self, limit: int = 100) -> Page[T]:
        """Returns the next messages, at most `limit`; an empty page if there are none.

        Several polls in one transaction go on from each other.
        """
        return cast(Page[T], self._poll_bytes(limit))

    def _poll_bytes(self, limit: int) -> Page:
        context = current_transaction(self._coordinator)
        if context is None:
            with self._lock:
                return self._poll(self._cursor.outside(), limit, None)
        with self._lock:
            place: ReadPlace = self._cursor.within(context)
        return self._poll(place, limit, context.transaction)

    @briefly
    def seek(self, start: StartAt, *, inclusive: bool = True) -> None:
        """Goes on from another place; in a transaction, only if it commits."""
        position = self._position_of(start, inclusive=inclusive)
        with self._lock:
            self._place().move(BEGINNING if position is None else position)

    @briefly
    def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; False after the time-out.

        Call it before the transaction, whose snapshot cannot see what commits after
        its beginning. While the topic is blocked, it sleeps. Where only a transaction
        can go on, the consumer of a group gets True after the time-out.
        """
        self.require_outside("wait", current_transaction(self._coordinator))
        options = self.wait_options()
        return self._service.wait(**options, timeout_s=timeout_s) or self.may_go_on(
            options["start"]
        )

    def wait_options(self) -> dict[str, Any]:
        """Returns what `wait` asks the service for, from the place outside blocks."""
        with self._lock:
            position = self._cursor.outside().position
        return {
            "topic": self._topic,
            "start": position,
            "inclusive": position is None,
            "isolation": self._isolation,
        }

    def may_go_on(self, position: Position | None) -> bool:
        """Tells whether a transaction of the group sees what others have to stop at.

        `wait` asks this after its time-out. Where this service did not give out the
        pointer of a row, the snapshot of a transaction decides whether it is visible.
        """
        if isinstance(self._cursor, LocalCursor) or self._is_at_end(position):
            return False
        page = self._service.poll(
            self._topic,
            start=position,
            inclusive=position is None,
            limit=1,
            isolation=self._isolation,
        )
        blocked_by = page.blocked_by
        if blocked_by is None:
            return bool(page)
        return self._coordinator.snapshot().is_visible(blocked_by.pointer)

    def _is_at_end(self, position: Position | None) -> bool:
        """Tells whether no row, nor a part of one, follows a position."""
        if not isinstance(position, dict):
            with suppress(PartitionNeeded):
                return self._is_at_end_of(self._topic, position)
        names = partition_names(self._service, self._topic)
        return all(
            self._is_at_end_of(name, place_in_partition(position, number))
            for number, name in names.items()
        )

    def _is_at_end_of(self, topic: str, position: MessageId | None) -> bool:
        last = self._service.bounds(topic).last
        if last is None or position is None:
            return last is None
        return position == last or position.row_key > last.row_key

    @briefly
    def commit(self) -> None:
        """Saves the group's position after polls outside transactions.

        The save is a short transaction of its own. It raises `TransactionConflict` when
        another member moved the group since this one polled. Nothing is saved then, the
        other member may have polled the same messages, and the next poll goes on from
        the saved position. After any other error, polls go on and this may be called
        again.
        """
        self.require_outside("commit", current_transaction(self._coordinator))
        with self._lock:
            self._cursor.commit()

    def save_in(self, context: TransactionContext) -> None:
        """Saves the group's position with the commit of a transaction.

        It is for polls outside transactions, and any thread. If the transaction is
        rolled back, the next poll goes on from the saved position.
        """
        with self._lock:
            self._cursor.save_in(context)

    def rollback(self) -> None:
        """Forgets polls outside transactions that were not committed."""
        self.require_outside("rollback", current_transaction(self._coordinator))
        with self._lock:
            self._cursor.forget()

    def __repr__(self) -> str:
        return f"<Consumer: {self._name}>"

    def _position_of(self, start: StartAt, *, inclusive: bool) -> Position | None:
        return place_of(
            self._service,
            self._topic,
            start,
            inclusive=inclusive,
            isolation=self._isolation,
        )

    def _place(self) -> ReadPlace:
        context = current_transaction(self._coordinator)
        if context is None:
            return self._cursor.outside()
        return self._cursor.within(context)

    def _poll(self, place: ReadPlace, limit: int, tx: Transaction | None) -> Page:
        position = place.position
        operation = tracing.begin_operation() if tracing.API in modules else None
        try:
            page = self._page(position, limit, tx)
        except TopicNotFound:
            if not isinstance(position, dict) or max(position) >= self._had:
                raise
            position = self._still_there(position)
            place.move(BEGINNING if position is None else position)
            page = self._page(position, limit, tx)
        if isinstance(page.next, dict):
            self._had = max(self._had, *(number + 1 for number in page.next))
        if operation is not None and page:
            operation.received("poll", self._topic, [one.headers for one in page])
        self._blocked_by = page.blocked_by
        self._expired.look(position, page)
        if is_ahead(page, position):
            place.move(page.next)
        return page

    def _page(
        self, position: Position | None, limit: int, tx: Transaction | None
    ) -> Page:
        return self._service.poll(
            self._topic,
            start=position,
            inclusive=position is None,
            limit=limit,
            transaction=tx,
            isolation=self._isolation if tx is None else UNCOMMITTED,
        )

    def _still_there(self, position: Places) -> Places | None:
        """Returns the places in the partitions that the topic has now.

        One that was made anew may have fewer than pages of before had.
        """
        count = self._service.topic(self._topic).partitions
        return {n: one for n, one in position.items() if n < count} or None

    def require_outside(self, call: str, transaction: object) -> None:
        """Refuses a call where a transaction is open, of the thread or of its task."""
        if transaction is not None:
            raise MisusedTransaction(
                f"{call} of {self._name} comes outside transactions, and {transaction} "
                f"is open here"
            )


def is_ahead(page: Page, position: Position | None) -> bool:
    """Tells whether a page went past anything.

    If it did not, the position stays, since one that moves disturbs other members. A
    page without messages may still end ahead, where the time to live begins.
    """
    if page or position is None:
        return bool(page)
    if isinstance(page.next, dict):
        return any(
            place > place_in_partition(position, number)
            for number, place in page.next.items()
        )
    if isinstance(position, dict):  # the topic has become one of one partition
        position = place_in_partition(position, 0)
    if page.skipped_before is not None:
        position = max(position, MessageId.of(page.skipped_before).before())
    return bool(page.next > position)


def consumer_of(
    decode: Decode[T] | None, *arguments: Any, **options: Any
) -> Consumer[T]:
    """Returns a consumer, which decodes where it is told how."""
    if decode is None:
        return Consumer(*arguments, **options)
    return DecodingConsumer(*arguments, decode=decode, **options)


class DecodingConsumer(Consumer[T]):
    """A `Consumer` whose messages have the value that `decode` makes of a payload.

    A payload that cannot be decoded raises what `decode` raised. Outside a transaction
    the consumer then stands where it stood; in one, the rollback takes it back.
    """

    def __init__(self, *arguments: Any, decode: Decode[T], **options: Any) -> None:
        self._decode = decoder(decode)
        super().__init__(*arguments, **options)

    @briefly
    def poll(self, limit: int = 100) -> Page[T]:
        """Returns the next messages, decoded."""
        before = self.position
        page = self._poll_bytes(limit)
        try:
            decoded = [message.decoded(self._decode) for message in page]
        except BaseException:
            self.seek(before, inclusive=False)
            raise
        return page_of(decoded, end_of(page))
