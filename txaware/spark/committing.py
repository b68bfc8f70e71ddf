"""What the driver does: publishes what tasks have stored, and commits, or ends it."""

from collections.abc import Iterable
from contextlib import suppress

import attrs

from coordinator.transaction import Transaction
from txaware.consume import Consumer
from txaware.errors import TransactionNotInProgress, TransactionRefused
from txaware.messages import MessageId, Receipt
from txaware.messaging import Messaging
from txaware.spark.storing import by_topic


@attrs.frozen
class Once:
    """A batch that is published once, however often it is tried.

    The batches of one `name` have rising numbers. The last one is remembered as the
    position of a group of that name in `topic`, which moves with the commit: two who
    try the same batch at once conflict, and one who comes later finds it done.
    """

    topic: str
    name: str
    number: int

    def is_done(self, messaging: Messaging) -> bool:
        """Whether it is published, as the open transaction sees it, or now."""
        position = self._group(messaging).position
        return position is not None and position.write_time_ms >= self.number

    def mark_done(self, messaging: Messaging, tx: Transaction) -> None:
        """Remembers it with the commit of the open transaction."""
        # The first half is a place in the topic, for whoever lists groups.
        place = MessageId.of(tx.start_ms, 0, self.number)
        self._group(messaging).seek(place, inclusive=False)

    def _group(self, messaging: Messaging) -> Consumer:
        return messaging.consumer(self.topic, group=self.name)


def commit(
    messaging: Messaging,
    tx: Transaction,
    *,
    receipts: Iterable[Receipt],
    once: Once | None,
) -> bool:
    """Publishes and commits; False, and nothing is published, where that was done."""
    try:
        with messaging.transaction(begun=tx) as context:
            if once is not None and once.is_done(messaging):
                context.abort()
                return False
            publish(messaging, receipts)
            if once is not None:
                once.mark_done(messaging, tx)
    except TransactionNotInProgress as error:
        error.add_note(
            "it may have timed out: option timeout_s is how long it may take"
        )
        raise
    return True


def publish(messaging: Messaging, receipts: Iterable[Receipt]) -> None:
    """Publishes in the open transaction what tasks stored: a row for each topic."""
    for topic, stored in by_topic(receipts).items():
        messaging.publisher(topic).publish_stored(stored)


def give_up(messaging: Messaging, tx: Transaction, *, is_unpublished: bool) -> None:
    """Ends a transaction that failed, unless it is committed.

    Nothing shows what was stored and not published, so that it may be aborted. Where
    somebody began to publish it is invalidated, which leaves a committed one as it is.
    """
    with suppress(TransactionRefused):  # it has ended, one way or the other
        if is_unpublished:
            messaging.coordinator.abort(tx)
        else:
            messaging.coordinator.invalidate(tx)
