"""A group's consumer in and outside transactions; outside it runs ahead of the row."""

from collections.abc import Callable

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator
from txaware.consume.ended import Attempt
from txaware.consume.groups import Group, GroupPosition
from txaware.consume.start_places import Place
from txaware.errors import MisusedTransaction, TransactionConflict
from txaware.messages import MessageId


class Ahead:
    """Where a consumer has come outside transactions since its group was `saved`."""

    def __init__(
        self, cursor: "GroupCursor", saved: MessageId | None, start: MessageId | None
    ) -> None:
        self.saved = saved
        self.position = start if saved is None else saved
        self._cursor = cursor

    def move(self, position: MessageId) -> None:
        """Goes on from there, for this consumer only, until it commits."""
        self.position = position
        self._cursor.ahead = self


class GroupCursor:
    """Reads the position anew each time, but for what it polled and did not commit.

    All calls come under the consumer's lock.
    """

    def __init__(
        self, group: Group, coordinator: Coordinator, *, clock_s: Callable[[], float]
    ) -> None:
        self.ahead: Ahead | None = None
        self._group = group
        self._coordinator = coordinator
        self._clock_s = clock_s
        self._tried: Attempt | None = None

    def within(self, context: TransactionContext) -> Place:
        """Where the group stands in a transaction: one place for all its consumers."""
        if self.ahead is not None:
            raise MisusedTransaction(
                f"{self._group}: what was polled outside transactions is not saved, "
                f"and would come again in {context}; commit() or rollback() it first"
            )
        group = self._group
        key = (GroupPosition, id(group.service), group.name, group.topic)
        return context.joined(key, lambda: GroupPosition(group))

    def outside(self) -> Place:
        """Where this consumer stands outside transactions."""
        self._settle()
        if self.ahead is not None:
            return self.ahead
        return Ahead(self, self._group.saved(), self._group.start)

    def commit(self) -> None:
        """Saves how far it has come, if nobody else moved the group meanwhile."""
        self._settle()
        ahead = self.ahead
        if ahead is None and self._begun():
            return
        participant = GroupPosition(self._group)
        context = TransactionContext(self._coordinator, participant)
        try:
            with context:
                if ahead is not None:
                    self._tried = Attempt.begin(context, self._clock_s)
                    self._require_unmoved(ahead, participant)
                    participant.position = ahead.position
        except TransactionConflict:
            self.forget()
            raise
        self.forget()

    def forget(self) -> None:
        """Goes back to where the group stands."""
        self.ahead = self._tried = None

    def _begun(self) -> bool:
        """Whether there is no start to be saved for the members to come."""
        return self._group.start is None or self._group.saved() is not None

    def _require_unmoved(self, ahead: Ahead, now: GroupPosition) -> None:
        """A move that committed before this transaction began is a conflict, too."""
        if now.saved != ahead.saved:
            raise TransactionConflict(
                f"{self._group} was moved by somebody else since it was polled here, "
                f"from {ahead.saved or 'its start'} to {now.saved}; nothing was saved, "
                f"and the next poll goes on from there"
            )

    def _settle(self) -> None:
        """Finds out about a commit that was interrupted, or whose answer was lost."""
        if self._tried is None:
            return
        # Nothing was polled since: that comes here first.
        if self._tried.committed():
            self.ahead = None
        self._tried = None
