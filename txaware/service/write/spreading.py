"""Spreads the messages of one request over the partitions of a topic."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import OnWritten
from txaware.errors import BadRequest, TransactionRefused, Unavailable, changed_nothing
from txaware.model.interfaces import Write
from txaware.model.messages import PublishResponse, Receipt
from txaware.model.requests import Payloads
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import PartitionedTopic, TopicHandle
from txaware.service.write.publishing import (
    PlainPart,
    Publishing,
    by_shard,
    check_plain_topic,
)
from txaware.service.write.transaction_writes import waits_for_commit
from txaware.store.together import Together

Part = tuple[TopicHandle, Payloads]


class Spreading:
    """Publishes to a topic of several partitions, each part to its own.

    A request without a transaction is one batch: all of it is stored, or nothing. Where
    the partitions lie in several shards it is a batch in each.
    """

    def __init__(self, publishing: Publishing, store_context: StoreContext) -> None:
        self._publishing = publishing
        self._table = store_context.table
        self._references = store_context.references
        self._writes = store_context.writes

    def plain(self, place: PartitionedTopic, payloads: Payloads) -> None:
        """Publishes without a transaction; on disk when it returns."""
        parts = self._parts(place, payloads)
        if len(parts) == 1:
            self._publishing.plain(*parts[0])
            return
        self._publishing.plain_together(_plain_parts(parts))

    def plain_soon(
        self, place: PartitionedTopic, payloads: Payloads, on_written: OnWritten
    ) -> None:
        """Publishes and does not wait; `on_written` is called in another thread."""
        parts = self._parts(place, payloads)
        if len(parts) == 1:
            self._publishing.plain_soon(*parts[0], on_written)
            return

        shards = by_shard(_plain_parts(parts))
        ended = (
            on_written if len(shards) == 1 else Together(len(shards), on_written).ended
        )

        def hand_over(rows: Sequence[Write], on_batch_end: OnWritten) -> Wait:
            def written(error: Unavailable | None) -> None:
                on_batch_end(error)
                ended(error)

            self._table.hand_over(rows, written)
            return _nothing

        for own in shards:
            self._publishing.plain_parts(own, hand_over)

    def _parts(self, place: PartitionedTopic, payloads: Payloads) -> list[Part]:
        parts = place.split(payloads)
        for handle, _ in parts:
            check_plain_topic(handle)
        return parts

    def transactional(
        self, place: PartitionedTopic, payloads: Payloads, pointer: int
    ) -> PublishResponse:
        """Publishes in a transaction; answers the range that covers all parts."""
        publish, parts = self._publishing.transactional, place.split(payloads)
        if any(handle.shard for handle, _ in parts):
            return _covering(self._publishing.transactional_parts(parts, pointer))
        return _together(
            partial(publish, handle, part, pointer) for handle, part in parts
        )

    def store(
        self,
        place: PartitionedTopic,
        payloads: Payloads,
        pointer: int,
        attempt: bytes,
    ) -> Receipt:
        """Stores payloads ahead of the commit; the receipt is that of all parts."""
        store = self._publishing.store
        _in_order(
            partial(store, handle, part, pointer, attempt)
            for handle, part in place.split(payloads)
        )
        return Receipt(pointer, str(place.topic.topic), attempt, len(payloads))

    def reference(
        self,
        place: PartitionedTopic,
        pointer: int,
        receipts: list[Receipt] | None,
    ) -> PublishResponse:
        """Publishes stored payloads, with a reference in each partition of them."""
        refer = self._publishing.reference
        if receipts is None:  # none of them takes anything more
            return _together(
                partial(refer, handle, pointer, None) for handle in place.handles()
            )
        stored = self._stored(place, pointer)
        handles = {str(handle.topic.topic): handle for handle, _ in stored}
        listed = receipts_by_partition(
            str(place.topic.topic),
            pointer,
            receipts,
            {name: counts for name, (_, counts) in zip(handles, stored, strict=True)},
        )
        parts = [(handles[name], each) for name, each in listed.items()]
        return _together(
            partial(refer, handle, pointer, each)
            for handle, each in parts or [(place.at(0), [])]
        )

    def stored_in(self, handle: TopicHandle, pointer: int) -> dict[bytes, int]:
        """Returns what a transaction has stored in a partition, by attempt."""
        entry = self._writes.enter(pointer)
        try:
            own = waits_for_commit(entry, handle.shard)
            return self._references.counts(handle.topic, pointer, own=own)
        finally:
            self._writes.leave(entry)

    def _stored(
        self, place: PartitionedTopic, pointer: int
    ) -> list[tuple[TopicHandle, dict[bytes, int]]]:
        """Returns the partitions where a transaction has stored, and what there."""
        entry, counted = self._writes.enter(pointer), self._references.counts
        try:
            return [
                (handle, counts)
                for handle in place.handles()
                if (
                    counts := counted(
                        handle.topic,
                        pointer,
                        own=waits_for_commit(entry, handle.shard),
                    )
                )
            ]
        finally:
            self._writes.leave(entry)

    def roll_back(self, place: PartitionedTopic, response: PublishResponse) -> None:
        """Negates the rows of a response in all partitions."""
        for handle in place.handles():
            self._publishing.roll_back(handle, response)


def _plain_parts(parts: list[Part]) -> list[PlainPart]:
    return [PlainPart(handle, payloads, _no_more) for handle, payloads in parts]


def _no_more(_: list[bytes], rows: list[Write]) -> list[Write]:
    return rows


def _nothing() -> None:
    """Does nothing: whoever publishes hears how it ended."""


def receipts_by_partition(
    whole: str,
    pointer: int,
    named: list[Receipt],
    found: Mapping[str, Mapping[bytes, int]],
) -> dict[str, list[Receipt]]:
    """Returns the receipts of each partition, of those that were given for all.

    A receipt of one partition stays as it is; it names that partition. `found` is what
    is stored in each, by attempt.
    """
    wanted: Counter[bytes] = Counter()
    listed: dict[str, list[Receipt]] = {}
    for receipt in named:
        if receipt.topic == whole and receipt.pointer == pointer:
            wanted[receipt.attempt] += receipt.count
    for name, counts in found.items():
        own = [each for each in named if each.topic == name != whole]
        shared = [
            Receipt(pointer, name, attempt, counts[attempt])
            for attempt in wanted
            if attempt in counts
        ]
        if own or shared:
            listed[name] = own + shared
    for attempt, count in wanted.items():
        stored = sum(counts.get(attempt, 0) for counts in found.values())
        if stored != count:
            raise TransactionRefused(
                f"the receipts of transaction {pointer} name {count} rows in {whole}, "
                f"and {stored} are stored"
            )
    _check_receipts(named, pointer, {whole, *listed}, whole)
    return listed


def _check_receipts(
    receipts: Iterable[Receipt], pointer: int, topics: Collection[str], whole: str
) -> None:
    """Refuses receipts of another transaction, or of none of these topics."""
    for receipt in receipts:
        if receipt.topic not in topics or receipt.pointer != pointer:
            raise BadRequest(
                f"{receipt} is not of transaction {pointer} and topic {whole}"
            )


def _in_order(calls: Iterable[Callable[[], object]]) -> None:
    """Makes all calls; once one has written, no error says that nothing changed."""
    has_written = False
    for call in calls:
        try:
            call()
        except Exception as error:
            if has_written and changed_nothing(error):
                raise Unavailable(f"a part of it is written, and then: {error}") from (
                    error
                )
            raise
        has_written = True


def _together(calls: Iterable[Callable[[], PublishResponse]]) -> PublishResponse:
    """Makes all calls; answers the range from the first row to the last of all."""
    responses: list[PublishResponse] = []
    _in_order(partial(_kept, call, responses) for call in calls)
    return _covering(responses)


def _covering(responses: list[PublishResponse]) -> PublishResponse:
    """Returns the range from the first row to the last of all."""
    first = min((one.start_timestamp, one.start_sequence_id) for one in responses)
    last = max((one.end_timestamp, one.end_sequence_id) for one in responses)
    return PublishResponse(responses[0].transaction_write_pointer, *first, *last)


def _kept(
    call: Callable[[], PublishResponse], responses: list[PublishResponse]
) -> None:
    responses.append(call())
