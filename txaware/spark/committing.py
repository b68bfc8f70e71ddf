"""The driver's part of a save: publishes what tasks stored, and commits or gives up."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.consume import Consumer
from txaware.errors import (
    BadRequest,
    NotAuthorized,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.model.markers import extent_marker, query_marker, save_marker
from txaware.model.messages import MessageId, Receipt
from txaware.model.partitions import named_partition, partition_name
from txaware.model.queues import pipe_of
from txaware.spark.options import RepeatBy
from txaware.spark.storing import Extent, by_topic, time_outs_told

_ANEW = "A new checkpoint, or a `name` that the query did not have before,"
_AGAIN = "Run it again: it finds out whether anything is left to do"
# The time-out of a short transaction, unless its caller or its server names one.
TIMEOUT_S = 3600.0
BEGINS = 3


@attrs.frozen
class Published:
    """A batch that is remembered as done; `extent` is None if nobody measured it."""

    number: int
    extent: tuple[int, int] | None = None


@attrs.frozen
class Once:
    """A batch that is published once, however often it is tried.

    The batches of one `name` have rising numbers. The last one is remembered as the
    position of a group of that name in `topic`, which moves with the commit: two tries
    of the same batch at once conflict, and a later one finds it done. A second position
    keeps the number of its rows and their digest: a checkpoint that was restored from
    an earlier copy brings the same batch number with other rows.
    """

    topic: str
    name: str
    number: int
    repeat_by: RepeatBy = "rows"
    save_id: str | None = None

    @classmethod
    def of_save(
        cls, topic: str, save_id: str, generation: int, repeat_by: RepeatBy = "rows"
    ) -> "Once":
        """Returns a save; saves to an earlier generation of the topic do not count."""
        name = save_marker(save_id)
        return cls(topic, name, generation, repeat_by, save_id)

    @classmethod
    def of_batch(
        cls,
        topic: str,
        query_id: str,
        number: int,
        *,
        name: str | None = None,
        repeat_by: RepeatBy = "rows",
    ) -> "Once":
        """Returns a micro-batch of a stream."""
        return cls(topic, query_marker(query_id, name), number, repeat_by)

    def published(self, messaging: Messaging) -> Published | None:
        """Returns the published batch, as the open transaction sees it, or now.

        Returns None if the batch is still to be published. Raises `BadRequest` if it is
        older than the last one: its checkpoint was restored from an earlier copy, and
        its rows may be other ones.
        """
        position = _group(messaging, self.topic, self.name).position
        if position is None or position.write_time_ms < self.number:
            return None
        if position.write_time_ms > self.number and self.save_id is None:
            raise BadRequest(
                f"{self._words} comes after batch {position.write_time_ms} of the same "
                f"query was published: the checkpoint was restored from an earlier "
                f"copy, and its batches may hold other rows now. Nothing of it is "
                f"published. {_ANEW} publishes all that comes from this checkpoint, "
                f"also what was published before"
            )
        return Published(position.write_time_ms, self._extent(messaging, position))

    def compares(self, published: Published) -> bool:
        """Tells whether the rows are compared with those that were published."""
        return self.repeat_by == "rows" and published.extent is not None

    def require_same(self, published: Published, extent: Extent | None) -> None:
        """Refuses other rows than those that were published."""
        if published.extent is None or extent is None or self.repeat_by != "rows":
            return
        rows, digest = published.extent
        if (rows, digest) == (extent.rows, extent.digest):
            return
        count = "as many others" if rows == extent.rows else f"{extent.rows}"
        raise BadRequest(
            f"{self._words} was published with {rows} rows, and comes again with "
            f"{count}. Nothing of it is published. {self._way_out}; repeat_by=number "
            f"takes it for a repeat, where the same data gives other rows each time "
            f"(random values, the time of day, sums of floats)"
        )

    def mark_done(
        self, messaging: Messaging, tx: Transaction, extent: Extent | None = None
    ) -> None:
        """Remembers the batch as done with the commit of the open transaction."""
        place = _place(tx.transaction_id, self.number)
        _group(messaging, self.topic, self.name).seek(place, inclusive=False)
        if extent is not None and self.repeat_by == "rows":
            group = _group(messaging, self.topic, extent_marker(self.name))
            group.seek(_extent_place(place, extent), inclusive=False)

    @contextmanager
    def told_who_else(self, messaging: Messaging) -> Iterator[None]:
        """Says who else published the batch, if the commit is refused."""
        try:
            yield
        except (TransactionConflict, TransactionNotInProgress) as error:
            if self._is_published(messaging):
                raise type(error)(
                    f"{self._words} was published, once: by another one at the same "
                    f"time, or by an earlier try of this one ({error})"
                ) from error
            if isinstance(error, TransactionConflict):
                raise  # over something else that takes part
            with time_outs_told():
                raise TransactionNotInProgress(
                    f"{self._words} is not published by this one: its time was up, or "
                    f"another one ended it to publish the same. {_AGAIN} ({error})"
                ) from error

    def _is_published(self, messaging: Messaging) -> bool:
        """Tells whether the batch is published now; False if nobody answers."""
        with suppress(TxAwareError):
            position = _group(messaging, self.topic, self.name).position
            return position is not None and position.write_time_ms >= self.number
        return False

    @property
    def _words(self) -> str:
        if self.save_id is not None:
            return f"save_id {self.save_id} in topic {self.topic}"
        return f"batch {self.number} for topic {self.topic}"

    @property
    def _way_out(self) -> str:
        if self.save_id is not None:
            return "A save_id of its own publishes it"
        return f"{_ANEW} publishes it"

    def _extent(self, messaging: Messaging, place: MessageId) -> tuple[int, int] | None:
        """Reads the rows and the digest saved with `place`; None if there are none."""
        name = extent_marker(self.name)
        found = _group(messaging, self.topic, name).position
        if found is None or found.publish_time_ms != place.publish_time_ms:
            return None
        return found.write_time_ms, found.sequence << 16 | found.payload_sequence

    def fence(self, messaging: Messaging, tx: Transaction) -> None:
        """Ends earlier transactions that published under this name and are still open.

        Readers would wait for such a transaction until its time-out. It has saved its
        position before it published anything, so it is found here. If its program is
        still alive, the coordinator refuses it from now on.
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
            with suppress(NotAuthorized):  # of another principal; its time-out ends it
                messaging.coordinator.invalidate(pointer)
            # There may be another one behind it, which it had not seen in its snapshot.
            invalids = sorted((*seeing_all.invalids, pointer))
            seeing_all = attrs.evolve(seeing_all, invalids=invalids)


def short_timeout_s(messaging: Messaging, asked_s: float | None) -> float:
    """Returns the time-out of a short transaction: an hour where none is asked for.

    It is less where the server gives less.
    """
    if asked_s is not None:
        return asked_s
    return min(TIMEOUT_S, messaging.longest_timeout_s or TIMEOUT_S)


def begin(messaging: Messaging, timeout_s: float | None) -> Transaction:
    """Begins a transaction for tasks to store in; it is long without a time-out.

    It outlives this process. A long one holds up no readers, and has nothing that
    conflicts. If the transaction is lost with its server here, nothing was written in
    it, so it is begun again, a few times.
    """
    for _ in range(BEGINS - 1):
        with suppress(Unavailable, TransactionNotInProgress):
            return _begun(messaging, timeout_s)
    return _begun(messaging, timeout_s)


def begin_for(
    messaging: Messaging, queue: str | None, timeout_s: float | None
) -> tuple[Transaction, str | None]:
    """Begins as `begin` does, and reserves a pipe of the queue, if there is one."""
    if queue is None:
        return begin(messaging, timeout_s), None
    found = messaging.queue(queue)
    _ = found.descriptor  # it has to be there
    tx = begin(messaging, timeout_s)
    try:
        return tx, found.reserve(tx)
    except TxAwareError:
        give_up(messaging, tx, is_unpublished=True)
        raise


def _begun(messaging: Messaging, timeout_s: float | None) -> Transaction:
    coordinator = messaging.coordinator
    if timeout_s is None:
        tx = coordinator.start_long(outlives_process=True)
    else:
        tx = coordinator.start_short(timeout_s, outlives_process=True)
    try:
        messaging.persist_stored(tx)  # before a row of it is on disk
    except (Unavailable, TransactionNotInProgress):
        with suppress(TxAwareError):  # or its time-out does, after a day perhaps
            coordinator.abort(tx)
        raise
    return tx


def commit(
    messaging: Messaging,
    tx: Transaction,
    *,
    receipts: Iterable[Receipt],
    once: Once | None,
    extent: Extent | None = None,
) -> bool:
    """Publishes and commits; returns False, without a publish, if `once` was done."""
    time_outs = time_outs_told() if once is None else once.told_who_else(messaging)
    with time_outs, messaging.transaction(begun=tx) as context:
        if once is not None:
            once.fence(messaging, tx)
            published = once.published(messaging)
            if published is not None:
                once.require_same(published, extent)
                context.abort()
                return False
        publish(messaging, receipts)
        if once is not None:
            once.mark_done(messaging, tx, extent)
    return True


def publish(messaging: Messaging, receipts: Iterable[Receipt]) -> None:
    """Publishes in the open transaction what tasks stored: a row for each topic.

    What they stored in a pipe is pushed to its queue.
    """
    for topic, stored in by_topic(receipts).items():
        pipe = pipe_of(topic)
        if pipe is None:
            messaging.publisher(topic).publish_stored(stored)
        else:
            messaging.queue(pipe.queue).push_stored(stored)


def give_up(messaging: Messaging, tx: Transaction, *, is_unpublished: bool) -> None:
    """Ends a transaction that failed, unless it is committed.

    Nobody can see rows that were stored and not published, so the transaction may be
    aborted. If somebody began to publish, it is invalidated instead, which changes
    nothing about a committed one.
    """
    with suppress(TransactionRefused):  # it has ended, one way or the other
        if is_unpublished:
            messaging.coordinator.abort(tx)
        else:
            messaging.coordinator.invalidate(tx)


def _group(messaging: Messaging, topic: str, name: str) -> Consumer:
    """Returns the place of a mark, which lies at the first partition of a topic."""
    is_whole = named_partition(topic)[1] is None
    first = partition_name(topic, 0) if is_whole else topic
    return messaging.consumer(first, group=name)


def _extent_place(place: MessageId, extent: Extent) -> MessageId:
    """Encodes an extent as a place of the same time as the place of its batch."""
    high, low = divmod(extent.digest, 1 << 16)
    return MessageId.of(place.publish_time_ms, high, extent.rows, low)


def _place(pointer: int, number: int) -> MessageId:
    """Encodes a transaction and a batch number as the position of a group."""
    time_ms, rest = divmod(pointer, POINTERS_PER_MS)
    return MessageId.of(time_ms, rest >> 16, number, rest & 0xFFFF)


def _pointer(place: MessageId) -> int:
    rest = place.sequence << 16 | place.payload_sequence
    return place.publish_time_ms * POINTERS_PER_MS + rest
