"""The position of a consumer without a group: in memory, and moved by its commits."""

from collections.abc import Callable, Iterable

from coordinator.context import TransactionContext
from coordinator.transaction import Transaction
from txaware.consume.ended import Attempt
from txaware.consume.start_places import Place
from txaware.errors import MisusedTransaction
from txaware.messages import MessageId


class OwnCursor:
    """Stands at one position, and serves one transaction at a time.

    Two at once would begin at the same position, and both deliver what follows it.
    All calls but those of its participant come under the consumer's lock.
    """

    def __init__(
        self, start: MessageId | None, *, name: str, clock_s: Callable[[], float]
    ) -> None:
        self.position = start
        self._name = name
        self._clock_s = clock_s
        self._moving: OwnPosition | None = None

    def move(self, position: MessageId) -> None:
        """Goes on from there; for use outside transactions."""
        self.position = position

    def within(self, context: TransactionContext) -> Place:
        """Where it stands in a transaction."""
        return context.joined((OwnCursor, id(self)), lambda: self._join(context))

    def outside(self) -> Place:
        """Where it stands outside transactions."""
        self._require_free()
        return self

    def commit(self) -> None:
        """There is nothing to commit to."""
        raise MisusedTransaction(
            f"{self._name} has no group, so nobody keeps its position; "
            f"see `position`, and start there"
        )

    def forget(self) -> None:
        """Stays where it was before a transaction of which nobody knows the outcome."""
        if self._moving is not None and not self._moving.attempt.is_open:
            self._moving = None

    def ended(self, moving: "OwnPosition", *, committed: bool) -> None:
        """Takes over what a transaction did, or drops it."""
        if committed and self._moving is moving:
            self.position = moving.position
        if self._moving is moving:
            self._moving = None

    def _join(self, context: TransactionContext) -> "OwnPosition":
        self._require_free()
        attempt = Attempt.begin(context, self._clock_s)
        self._moving = OwnPosition(self, attempt, name=self._name)
        return self._moving

    def _require_free(self) -> None:
        moving = self._moving
        if moving is None:
            return
        if moving.attempt.is_open:
            raise MisusedTransaction(
                f"{self._name} is in use by {moving.attempt.context}; without a group "
                f"it serves one transaction at a time, so make one for each"
            )
        self.ended(moving, committed=moving.attempt.committed())


class OwnPosition:
    """Takes an in-memory position through one transaction."""

    # It writes nothing, so nothing has to be on disk before it does.
    shares_journal = True

    def __init__(self, cursor: OwnCursor, attempt: Attempt, *, name: str) -> None:
        self.position = cursor.position
        self.attempt = attempt
        self.transaction_aware_name = f"position of {name}"
        self._cursor = cursor

    def move(self, position: MessageId) -> None:
        """Goes on from there, if the transaction commits."""
        self.position = position

    def start_tx(self, tx: Transaction) -> None:
        """Nothing is read: the position is in memory."""

    def update_tx(self, tx: Transaction) -> None:
        """A checkpoint changes nothing for a position."""

    def get_tx_changes(self) -> Iterable[bytes]:
        """Nobody else can change it."""
        return ()

    def commit_tx(self) -> bool:
        """There is nothing to write."""
        return True

    def post_tx_commit(self) -> None:
        """Moves the consumer."""
        self._cursor.ended(self, committed=True)

    def rollback_tx(self) -> bool:
        """Leaves the consumer where it was."""
        self._cursor.ended(self, committed=False)
        return True
