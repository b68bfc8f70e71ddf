"""A consumer whose position is a row of the user's database, beside what it writes."""

from typing import Protocol

from txaware.consume.consumer import is_ahead
from txaware.consume.start_places import StartAt, place_of
from txaware.interfaces import COMMITTED
from txaware.messages import MessageId, Page
from txaware.messaging import Messaging
from txaware.topics import TopicName, checked_group


class Positions(Protocol):
    """The database that has the positions, in the transaction of the open block."""

    def require_block(self, call: str) -> None:
        """Raises `MisusedTransaction` where no block of it is open here."""

    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as the block sees it."""

    def committed_position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far it has come, as it is committed."""

    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""


class Inbox:
    """A reader of one topic that handles each message once.

    Its position commits with the rows of the database. It sees what has committed, and
    stops at the first message whose transaction is open.
    """

    def __init__(
        self,
        messaging: Messaging,
        positions: Positions,
        topic: str,
        *,
        group: str,
        start: StartAt = None,
        inclusive: bool = True,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.group = checked_group(group)
        self._messaging = messaging
        self._positions = positions
        self._start = place_of(messaging, self.topic, start, inclusive=inclusive)

    def poll(self, limit: int = 100) -> Page:
        """Returns the next messages, at most `limit`; an empty page if there are none.

        Several polls in one block go on from each other.
        """
        self._positions.require_block("poll")
        position = self._positions.position(self.group, self.topic) or self._start
        page = self._messaging.poll(
            self.topic,
            start=position,
            inclusive=position is None,
            limit=limit,
            isolation=COMMITTED,
        )
        if is_ahead(page, position):
            self._positions.save_position(self.group, self.topic, page.next)
        return page

    @property
    def position(self) -> MessageId | None:
        """The message after which the next block goes on; None is the beginning."""
        saved = self._positions.committed_position(self.group, self.topic)
        return saved or self._start

    def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; False after the time-out.

        Call it before the block.
        """
        position = self.position
        return self._messaging.wait(
            self.topic,
            start=position,
            inclusive=position is None,
            isolation=COMMITTED,
            timeout_s=timeout_s,
        )

    def __repr__(self) -> str:
        return f"<Inbox of {self.topic} for group {self.group}>"
