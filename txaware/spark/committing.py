"""What the driver does: publishes what tasks have stored, and commits, or ends it."""

from collections.abc import Iterable
from contextlib import suppress

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.consume import Consumer
from txaware.errors import NotAuthorized, TransactionRefused
from txaware.messages import MessageId, Receipt
from txaware.messaging import Messaging
from txaware.spark.storing import by_topic, time_outs_told

# How long work may take that has to be short, unless it says so.
TIMEOUT_S = 3600.0


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
        place = _place(tx.transaction_id, self.number)
        self._group(messaging).seek(place, inclusive=False)

    def fence(self, messaging: Messaging, tx: Transaction) -> None:
        """Ends who began to publish a batch of this name and did not come to its end.

        Readers would wait for it until its time-out. It had said which batch that is
        before anything else; should it be alive, it is refused from now on.
        """
        if not tx.in_progress:
            return
        seeing_all = attrs.evolve(tx, read_pointer=tx.transaction_id, in_progress=())
        while position := messaging.position(
            self.name, self.topic, transaction=seeing_all
        ):
            pointer = _pointer(position)
            if pointer not in tx.in_progress or pointer in seeing_all.invalids:
                return
            with suppress(NotAuthorized):  # somebody else's, which its time-out ends
                messaging.coordinator.invalidate(pointer)
            # Behind it may be one that it had not seen, as that came to it late.
            invalids = sorted((*seeing_all.invalids, pointer))
            seeing_all = attrs.evolve(seeing_all, invalids=invalids)

    def _group(self, messaging: Messaging) -> Consumer:
        return messaging.consumer(self.topic, group=self.name)


def begin(messaging: Messaging, timeout_s: float | None) -> Transaction:
    """One for tasks to store in, which outlives this process; long without a time-out.

    A long one holds up no readers, and has nothing that conflicts.
    """
    coordinator = messaging.coordinator
    if timeout_s is None:
        tx = coordinator.start_long(outlives_process=True)
    else:
        tx = coordinator.start_short(timeout_s, outlives_process=True)
    messaging.persist_stored(tx)  # before a row of it is on disk
    return tx


def commit(
    messaging: Messaging,
    tx: Transaction,
    *,
    receipts: Iterable[Receipt],
    once: Once | None,
) -> bool:
    """Publishes and commits; False, and nothing is published, where that was done."""
    with time_outs_told(), messaging.transaction(begun=tx) as context:
        if once is not None:
            once.fence(messaging, tx)
            if once.is_done(messaging):
                context.abort()
                return False
        publish(messaging, receipts)
        if once is not None:
            once.mark_done(messaging, tx)
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


def _place(pointer: int, number: int) -> MessageId:
    """A transaction and the number of a batch; for whoever lists groups, a place."""
    time_ms, rest = divmod(pointer, POINTERS_PER_MS)
    return MessageId.of(time_ms, rest >> 16, number, rest & 0xFFFF)


def _pointer(place: MessageId) -> int:
    rest = place.sequence << 16 | place.payload_sequence
    return place.publish_time_ms * POINTERS_PER_MS + rest
