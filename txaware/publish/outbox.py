"""Takes part in a transaction for all its messages: held back, and flushed last."""

from coordinator.transaction import Transaction
from txaware.errors import MisusedTransaction
from txaware.interfaces import MessagingService, Payload
from txaware.messages import Receipt
from txaware.publish.spill import Outbox


class TransactionPublisher:
    """The participant that publishes with the commit, one for a whole transaction.

    A `publish` for each topic, in the order of their first use, after every other
    participant has written. It changes no keys, so that it never conflicts, and uses
    the first pointer of its transaction, whatever checkpoints follow.

    What it holds stays below the limit that `publish` names, for a topic and for all
    of them together; above it messages are stored ahead of the commit.
    """

    flushes_last = True

    def __init__(self, service: MessagingService, *, shares_journal: bool) -> None:
        self.shares_journal = shares_journal
        self._service = service
        self._tx: Transaction | None = None
        self._outboxes: dict[str, Outbox] = {}
        self._held_bytes = 0
        self._limit_bytes = 0

    @property
    def transaction_aware_name(self) -> str:
        """Names its topics."""
        return f"publisher of {', '.join(self._outboxes) or 'nothing'}"

    def start_tx(self, tx: Transaction) -> None:
        """From here on `publish` is for this transaction."""
        self._let_go()
        self._tx = tx

    def update_tx(self, tx: Transaction) -> None:
        """Nothing changes: it goes on with the first pointer."""

    def get_tx_changes(self) -> tuple[bytes, ...]:
        """None: two transactions may always publish to one topic."""
        return ()

    def publish(
        self, topic: str, message: Payload, *, size_bytes: int, limit_bytes: int
    ) -> None:
        """Holds a checked message for the commit.

        Where it raises, the message was not taken: a limit was reached, and what was
        held before could not be stored.
        """
        if limit_bytes > self._limit_bytes:
            self._limit_bytes = limit_bytes
        outbox = self._outbox(topic)
        if outbox.size_bytes + size_bytes > limit_bytes:
            self._held_bytes -= outbox.store()
        while self._held_bytes and self._held_bytes + size_bytes > self._limit_bytes:
            self._held_bytes -= self._largest().store()
        outbox.add(message, size_bytes)
        self._held_bytes += size_bytes

    def publish_stored(self, topic: str, receipts: list[Receipt]) -> None:
        """Publishes with the commit what others have stored."""
        outbox = self._outbox(topic)
        held_bytes = outbox.size_bytes
        outbox.add_stored(receipts)
        self._held_bytes -= held_bytes

    def store_held(self) -> None:
        """Stores what it holds, so that it comes before what others store later."""
        for outbox in self._outboxes.values():
            self._held_bytes -= outbox.store()

    def commit_tx(self) -> bool:
        """Publishes everything; one call for each topic."""
        # Readers wait from the first row that is published to the commit, so whatever
        # takes long comes before it.
        for outbox in self._outboxes.values():
            outbox.store_rest()
        for outbox in self._outboxes.values():
            outbox.publish()
        return True

    def post_tx_commit(self) -> None:
        """Lets go of all it held."""
        self._let_go()

    def rollback_tx(self) -> bool:
        """Hands every answer back; False where one was lost and rows may be left."""
        failures: list[Exception] = []
        for outbox in self._outboxes.values():
            try:
                outbox.rollback()
            except Exception as error:
                failures.append(error)
        certain = not any(outbox.in_doubt for outbox in self._outboxes.values())
        self._let_go()
        if failures:
            raise ExceptionGroup("not all messages could be rolled back", failures)
        return certain

    def _outbox(self, topic: str) -> Outbox:
        outbox = self._outboxes.get(topic)
        if outbox is None:
            outbox = self._outboxes[topic] = Outbox(self._service, topic, self._open())
        return outbox

    def _largest(self) -> Outbox:
        return max(self._outboxes.values(), key=lambda outbox: outbox.size_bytes)

    def _open(self) -> Transaction:
        if self._tx is None:
            raise MisusedTransaction("this publisher takes part in no transaction")
        return self._tx

    def _let_go(self) -> None:
        self._tx = None
        self._outboxes = {}
        self._held_bytes = self._limit_bytes = 0
