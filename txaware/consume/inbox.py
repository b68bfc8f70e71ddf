"""A consumer whose position is a row of the user's database, beside what it writes."""

from abc import ABC, abstractmethod

from coordinator import tracing
from coordinator.interfaces import Participant
from txaware.consume.consumer import is_ahead
from txaware.model.interfaces import COMMITTED, MessagingService
from txaware.model.messages import BlockedBy, MessageId, Page
from txaware.model.partitions import full_name, parsed_rows
from txaware.model.start_places import BEGINNING, StartAt, of_one, place_of
from txaware.model.topics import checked_group


class KeepsPositions(Participant, ABC):
    """A database that has the positions of the blocks that it decides."""

    @abstractmethod
    def require_block(self, call: str) -> None:
        """Raises `MisusedTransaction` where no block of it is open here."""

    @abstractmethod
    def position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far a group has come, as the block sees it."""

    @abstractmethod
    def committed_position(self, group: str, topic: str) -> MessageId | None:
        """Returns how far it has come, as it is committed."""

    @abstractmethod
    def save_position(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group, with the block."""

    @abstractmethod
    def save_apart(self, group: str, topic: str, position: MessageId) -> None:
        """Moves a group outside of a block; on disk when it returns."""

    @abstractmethod
    def is_away(self, error: BaseException) -> bool:
        """Tells whether an error says that the database is away, or locked."""


class Inbox:
    """A reader of one topic, or partition, that handles each message once.

    Its position commits with the rows of the database. It sees what has committed, and
    stops at the first message whose transaction is open.
    """

    def __init__(
        self,
        service: MessagingService,
        positions: KeepsPositions,
        topic: str,
        *,
        group: str,
        start: StartAt = None,
        inclusive: bool = True,
    ) -> None:
        self.topic = full_name(topic)
        self.group = checked_group(group)
        # Partition 0 goes on where the topic was when it had no other one.
        self._place = (self.group, str(parsed_rows(topic)))
        self._service = service
        self._positions = positions
        self._blocked_by: BlockedBy | None = None
        position = place_of(service, self.topic, start, inclusive=inclusive)
        self._start = of_one(position, self.topic)

    def poll(self, limit: int = 100) -> Page:
        """Returns the next messages, at most `limit`; an empty page if there are none.

        Several polls in one block go on from each other.
        """
        self._positions.require_block("poll")
        saved = self._positions.position(*self._place)
        position = saved or self._start
        operation = tracing.begin_operation()
        page, place = self._after(position, limit)
        if operation is not None and page:
            operation.received("poll", self.topic, [one.headers for one in page])
        self._blocked_by = page.blocked_by
        # Where it begins is kept, so that it is the same place after a restart.
        begins = saved is None and self._start is not None
        if begins or is_ahead(page, position):
            self._positions.save_position(*self._place, place)
        return page

    @property
    def blocked_by(self) -> BlockedBy | None:
        """The row that stopped the last poll before the end of the topic, if any."""
        return self._blocked_by

    def peek(self, limit: int = 100) -> Page:
        """Returns the messages that a block would poll now; the group stays."""
        page, _ = self._after(self.position, limit)
        return page

    def seek(self, start: StartAt, *, inclusive: bool = True) -> None:
        """Goes on from another place, with the block."""
        self._positions.require_block("seek")
        position = place_of(self._service, self.topic, start, inclusive=inclusive)
        place = of_one(position, self.topic) or BEGINNING
        self._positions.position(*self._place)  # a group begins by that
        self._positions.save_position(*self._place, place)

    @property
    def position(self) -> MessageId | None:
        """The message after which the next block goes on; None is the beginning."""
        saved = self._positions.committed_position(*self._place)
        return saved or self._start

    def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; False after the time-out.

        Call it before the block.
        """
        position = self.position
        return self._service.wait(
            self.topic,
            start=position,
            inclusive=position is None,
            isolation=COMMITTED,
            timeout_s=timeout_s,
        )

    def _after(self, position: MessageId | None, limit: int) -> tuple[Page, MessageId]:
        """Returns the next messages, and the place to go on at."""
        page = self._service.poll(
            self.topic,
            start=position,
            inclusive=position is None,
            limit=limit,
            isolation=COMMITTED,
        )
        return page, of_one(page.next, self.topic) or BEGINNING

    def __repr__(self) -> str:
        return f"<Inbox of {self.topic} for group {self.group}>"
