"""Publishes, stores and rolls back: the write side of the service."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

import attrs

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import (
    Cargo,
    JoinedCargo,
    Loading,
    OnBatchEnd,
    OnWritten,
    load,
)
from coordinator.optional_ports import EnteredWrite
from coordinator.transaction import POINTERS_PER_MS
from txaware.errors import BadRequest, TransactionRefused, Unavailable
from txaware.model.interfaces import Write
from txaware.model.messages import PublishResponse, Receipt
from txaware.model.metrics import TopicCounters
from txaware.model.requests import Payloads
from txaware.model.shards import HOME
from txaware.model.topics import Topic
from txaware.service.store_context import StoreContext
from txaware.service.topic_handles import TopicHandle
from txaware.service.write.message_cargo import not_in_transactions
from txaware.service.write.topic_writer import Rows
from txaware.service.write.transaction_writes import waits_for_commit
from txaware.store.columns import (
    ATTEMPT,
    RECEIPTS,
    decode,
    decode_receipts,
    message_rows,
    value_head,
)
from txaware.store.keys import payload_prefix, row_key
from txaware.store.message_table import MessageTable
from txaware.store.packed_rows import packed_rows
from txaware.store.together import Submit, at_once, submitting, wait_for_all

# Adds rows of the same batch to the rows of messages, whose keys come first.
Also = Callable[[list[bytes], list[Write]], list[Write]]
# Is told what a publish answers, or why it failed.
OnPublished = Callable[[PublishResponse | Unavailable], None]


class Publishing:
    """Writes rows; those of a transaction of this process wait for its commit."""

    def __init__(self, store_context: StoreContext) -> None:
        self._table = store_context.table
        self._messages = MessageTable(store_context.table)
        self._references = store_context.references
        self._cache = store_context.cache
        self._endings = store_context.endings
        self._foreign_pointers = store_context.foreign_pointers
        self._settings = store_context.settings
        self._clock_ms = store_context.clock_ms
        self._writes = store_context.writes

    def plain(
        self,
        place: TopicHandle,
        payloads: Payloads,
        *,
        also: Also | None = None,
        on_written: OnWritten | None = None,
    ) -> None:
        """Publishes without a transaction; on disk when it returns.

        `also` adds rows to the same batch. `on_written` is told how that ended, even if
        this thread is interrupted.
        """
        check_plain_topic(place)
        began_s = time.perf_counter()
        rows, together = self._plain_rows(place, payloads, also)
        place.writer.publish(
            len(payloads), rows, on_written=on_written, together=together
        )
        place.counters.published(
            len(payloads), payloads.size_bytes, time.perf_counter() - began_s
        )

    def plain_soon(
        self,
        place: TopicHandle,
        payloads: Payloads,
        on_written: OnWritten,
        *,
        also: Also | None = None,
    ) -> None:
        """Publishes and does not wait; `on_written` is called in another thread.

        `also` adds rows to the same batch.
        """
        check_plain_topic(place)
        began_s = time.perf_counter()

        def written(error: Unavailable | None) -> None:
            if error is None:
                place.counters.published(
                    len(payloads), payloads.size_bytes, time.perf_counter() - began_s
                )
            on_written(error)

        rows, together = self._plain_rows(place, payloads, also)
        place.writer.publish_soon(len(payloads), rows, written, together=together)

    def _plain_rows(
        self, place: TopicHandle, payloads: Payloads, also: Also | None
    ) -> tuple[Rows, bool]:
        """Returns what makes the rows, and whether all have to be of one ms.

        Messages of a compact topic come to be removed one by one, so they are not
        stored together.
        """
        prefix, packed = place.message_prefix, payloads.packed
        if packed is None or place.topic.is_compact:
            rows = partial(message_rows, prefix, payloads)
            return (rows if also is None else partial(_rows_and, rows, also)), False
        newest = self._table.packed_format()

        def batch(keys: list[bytes]) -> list[Write]:
            made = packed_rows(prefix, packed, keys)
            return [*(made if also is None else also(keys, made)), *newest]

        return batch, True

    def plain_parts(
        self,
        parts: Sequence["PlainPart"],
        submit: Submit,
    ) -> Wait:
        """Publishes parts to several places in one batch: all or none.

        The places come in the order of their keys. `submit` takes the rows under the
        locks of all, so that each place hears of its batches in their order. Returns
        the wait for them.
        """
        began_s = time.perf_counter()
        counts = _counts_of(parts)

        def written(error: Unavailable | None) -> None:
            if error is None:
                took_s = time.perf_counter() - began_s
                for counters, (count, size_bytes) in counts.items():
                    counters.published(count, size_bytes, took_s)
            for part in parts:
                part.on_written(error)

        return _submitted(parts, submit, written)

    def plain_together(self, parts: Sequence["PlainPart"]) -> None:
        """Publishes parts to several places; on disk when it returns.

        All are one batch. Where the places lie in several shards it is one in each.
        """
        waits: list[Wait] = []
        with submitting(waits):
            shards = by_shard(parts)
            submits = at_once([self._table] * len(shards))
            for own, submit in zip(shards, submits, strict=True):
                waits.append(self.plain_parts(own, submit))
        wait_for_all(waits)

    def is_there(
        self, place: TopicHandle, keys: list[bytes], payloads: Payloads
    ) -> bool:
        """Tells whether the rows under these keys, which rise, are those messages.

        Rows that are no longer there are taken for the same.
        """
        prefix = place.message_prefix
        wanted = {
            key: value or b"" for key, value in message_rows(prefix, payloads, keys)
        }
        found = self._messages.rows(
            place.topic.prefix, start=keys[0], stop=keys[-1] + b"\0"
        )
        return all(
            value == wanted[prefix + key]
            or decode(value) == decode(wanted[prefix + key])
            for key, value in found
        )

    def rows(self, place: TopicHandle, payloads: Payloads) -> Rows:
        """Returns what makes the rows of messages without a transaction."""
        return partial(message_rows, place.message_prefix, payloads)

    def transactional(
        self, place: TopicHandle, payloads: Payloads, pointer: int
    ) -> PublishResponse:
        """Publishes in a transaction, visible with its commit."""
        self._check_transactional(place.topic, pointer)
        began_s = time.perf_counter()
        prefix = place.message_prefix
        rows = partial(message_rows, prefix, payloads, pointer=pointer)
        entry = self._writes.enter(pointer)
        try:
            self._writes.require_start(entry, place.shard)
            response = self._publish(
                place, len(payloads), rows, pointer=pointer, entry=entry
            )
        finally:
            self._writes.leave(entry)
        took_s = time.perf_counter() - began_s
        place.counters.flushed(pointer, len(payloads), payloads.size_bytes, took_s)
        return response

    def transactional_parts(
        self, parts: Sequence[tuple[TopicHandle, Payloads]], pointer: int
    ) -> list[PublishResponse]:
        """Publishes to partitions in several shards: a batch in each, not for each."""
        for place, _ in parts:
            self._check_transactional(place.topic, pointer)
        began_s = time.perf_counter()
        held: list[_PartOfTransaction] = []
        written: list[_PartOfTransaction] = []
        waits: list[Wait] = []
        entry = self._writes.enter(pointer)
        try:
            self._writes.require_start(entry, max(place.shard for place, _ in parts))
            for place, payloads in parts:
                self._expect(place, pointer, entry)
                among = held if waits_for_commit(entry, place.shard) else written
                among.append(_PartOfTransaction(place, payloads, pointer))
            with submitting(waits):
                shards = by_shard(written)
                submits = at_once([self._table] * len(shards))
                for own, submit in zip(shards, submits, strict=True):
                    waits.append(_submitted(own, submit, _unheard))
                    if entry is None:
                        self._note_foreign(own)
                for part in held:
                    part.hold()
            wait_for_all(waits)
        finally:
            self._writes.leave(entry)
        took_s = time.perf_counter() - began_s
        for place, payloads in parts:
            place.counters.flushed(pointer, len(payloads), payloads.size_bytes, took_s)
        return [part.response for part in chain(held, written)]

    def transactional_soon(
        self,
        place: TopicHandle,
        payloads: Payloads,
        pointer: int,
        on_published: OnPublished,
    ) -> bool:
        """Publishes in a transaction and does not wait for the disk.

        Another thread calls `on_published` with the response, or with an error.
        Returns False, and has done nothing, for a transaction whose rows wait for its
        commit, or that another coordinator began, and where to enter may take long.
        """
        if self._writes.may_wait:
            return False
        self._check_transactional(place.topic, pointer)
        began_s, write = time.perf_counter(), object()
        entry = self._writes.enter(pointer, write)
        if entry is None or waits_for_commit(entry) or place.shard != HOME:
            self._writes.leave(entry, write)
            return False
        given: list[bytes] = []

        def rows(keys: list[bytes]) -> Sequence[Write]:
            given.extend((keys[0], keys[-1]))
            return message_rows(place.message_prefix, payloads, keys, pointer=pointer)

        def written(error: Unavailable | None) -> None:
            self._writes.leave(entry, write)
            if error is not None:
                on_published(error)
                return
            took_s = time.perf_counter() - began_s
            place.counters.flushed(pointer, len(payloads), payloads.size_bytes, took_s)
            on_published(
                PublishResponse(pointer, *_numbers(given[0]), *_numbers(given[1]))
            )

        self._endings.expect(pointer, place.writer.signal)
        try:
            place.writer.publish_soon(len(payloads), rows, written)
        except BaseException:
            self._writes.leave(entry, write)
            raise
        return True

    def reference(
        self, place: TopicHandle, pointer: int, receipts: list[Receipt] | None
    ) -> PublishResponse:
        """Publishes stored payloads with one row that refers to them."""
        self._check_transactional(place.topic, pointer)
        responses: list[PublishResponse] = []
        prefix = place.message_prefix
        entry = self._writes.enter(pointer)
        held = waits_for_commit(entry, place.shard)

        def publish(column_r: bytes, marks: list[Write]) -> None:
            head = value_head(pointer, reference=True, more={RECEIPTS: column_r})

            def rows(keys: list[bytes]) -> list[Write]:
                return [(prefix + keys[0], head), *marks]

            responses.append(
                self._publish(place, 1, rows, pointer=pointer, entry=entry)
            )
            named = sum(decode_receipts(column_r).values())
            place.counters.referred(pointer, named)

        try:
            self._writes.require_start(entry, place.shard)
            self._references.name(
                place.topic, pointer, receipts, own=held, publish=publish
            )
        finally:
            self._writes.leave(entry)
        return responses[0]

    def store(
        self, place: TopicHandle, payloads: Payloads, pointer: int, attempt: bytes
    ) -> Receipt:
        """Stores payloads ahead of the commit."""
        self._check_transactional(place.topic, pointer)
        topic, count = place.topic, len(payloads)
        more = {ATTEMPT: attempt} if attempt else {}
        prefix = payload_prefix(topic.prefix, pointer)
        rows = partial(message_rows, prefix, payloads, more=more)
        entry = self._writes.enter(pointer)
        held = waits_for_commit(entry, place.shard)
        try:
            self._writes.require_start(entry, place.shard)
            with self._references.storing(topic, pointer, attempt, count, own=held):
                wait = place.writer.store(
                    count, rows, hold_for=pointer if held else None
                )
                if wait is not None:
                    wait()
        finally:
            self._writes.leave(entry)
        place.counters.stored(count)
        return Receipt(pointer, str(topic.topic), attempt, count)

    def roll_back(self, place: TopicHandle, response: PublishResponse) -> None:
        """Negates the rows of a response that carry its pointer."""
        pointer, prefix = response.transaction_write_pointer, place.topic.prefix
        start, stop = _range(response)
        rows = self._messages.to_negate(prefix, pointer, start=start, stop=stop)
        if not rows:
            return
        with self._writes.undoing(pointer):
            self._messages.negate(prefix, rows)
            self._cache.negate(prefix, [key for key, _ in rows])
        place.counters.rolled_back(pointer)
        place.writer.signal.notify()

    def _publish(
        self,
        place: TopicHandle,
        count: int,
        rows: Rows,
        *,
        pointer: int,
        entry: EnteredWrite | None,
    ) -> PublishResponse:
        self._expect(place, pointer, entry)
        first, last = place.writer.publish(
            count,
            rows,
            hold_for=pointer if waits_for_commit(entry, place.shard) else None,
        )
        if entry is None:
            self._foreign_pointers.note(pointer, place.topic.prefix, first)
        return PublishResponse(pointer, *_numbers(first), *_numbers(last))

    def _note_foreign(self, parts: Sequence["_PartOfTransaction"]) -> None:
        for part in parts:
            prefix = part.place.topic.prefix
            self._foreign_pointers.note(part.pointer, prefix, part.first)

    def _expect(
        self, place: TopicHandle, pointer: int, entry: EnteredWrite | None
    ) -> None:
        if entry is not None:
            self._endings.expect(pointer, place.writer.signal)

    def _check_transactional(self, topic: Topic, pointer: int) -> None:
        if topic.publishing == "plain":
            raise not_in_transactions(topic)
        lifetime_s = self._settings.max_transaction_lifetime_s
        if lifetime_s is None:
            return
        if pointer // POINTERS_PER_MS + lifetime_s * 1000 <= self._clock_ms():
            raise TransactionRefused(
                f"transaction {pointer} began more than {lifetime_s:g} s ago"
            )


def _unheard(_: Unavailable | None) -> None:
    """Hears the end of a part that nobody else asks for."""


@attrs.frozen
class PlainPart:
    """A part of what is published without a transaction, to one of several places.

    `also` adds rows to the same batch, and `on_written` is told how that ended.
    """

    place: TopicHandle
    payloads: Payloads
    also: Also
    on_written: OnWritten = attrs.field(default=_unheard)

    def loading(self) -> Loading:
        """Yields the rows, under the lock of the place."""
        plain = partial(message_rows, self.place.message_prefix, self.payloads)
        rows = partial(_rows_and, plain, self.also)
        return self.place.writer.loading(len(self.payloads), rows, _nothing)


class _PartOfTransaction:
    """A part of what a transaction publishes, to one of several places."""

    def __init__(self, place: TopicHandle, payloads: Payloads, pointer: int) -> None:
        self.place = place
        self.pointer, self._payloads = pointer, payloads
        self._keys: list[bytes] = []

    def loading(self) -> Loading:
        """Yields the rows, under the lock of the place."""
        return self.place.writer.loading(len(self._payloads), self._rows, _nothing)

    def hold(self) -> None:
        """Has the rows wait for the commit, which comes from this process."""
        writer, count = self.place.writer, len(self._payloads)
        writer.publish(count, self._rows, hold_for=self.pointer)

    @property
    def first(self) -> bytes:
        """The key of the first row, once it is made."""
        return self._keys[0]

    @property
    def response(self) -> PublishResponse:
        """The answer of its publish, once the rows are made."""
        first, last = _numbers(self._keys[0]), _numbers(self._keys[-1])
        return PublishResponse(self.pointer, *first, *last)

    def _rows(self, keys: list[bytes]) -> list[Write]:
        self._keys = keys
        return message_rows(
            self.place.message_prefix, self._payloads, keys, pointer=self.pointer
        )


AnyPart = TypeVar("AnyPart", PlainPart, _PartOfTransaction)


def by_shard(parts: Sequence[AnyPart]) -> list[list[AnyPart]]:
    """Returns the parts of each shard, in the order of their locks."""
    found: dict[int, list[AnyPart]] = {}
    for part in sorted(parts, key=lambda one: one.place.message_prefix):
        found.setdefault(part.place.shard, []).append(part)
    return list(found.values())


def _submitted(parts: Sequence[Cargo], submit: Submit, on_written: OnWritten) -> Wait:
    """Submits parts in one batch, in the order of their locks."""

    def of_all(rows: Sequence[Write], on_batch_end: OnBatchEnd) -> Wait:
        def written(error: Unavailable | None) -> None:
            if (notify := on_batch_end(error)) is not None:
                notify()
            on_written(error)

        return submit(rows, written)

    wait = load(JoinedCargo(parts), of_all)
    return _nothing if wait is None else wait


def _counts_of(parts: Sequence[PlainPart]) -> dict[TopicCounters, tuple[int, int]]:
    """Returns how many messages and bytes each counter gets; some parts share one."""
    counts: dict[TopicCounters, tuple[int, int]] = {}
    for part in parts:
        count, size_bytes = counts.get(part.place.counters, (0, 0))
        more = len(part.payloads), part.payloads.size_bytes
        counts[part.place.counters] = count + more[0], size_bytes + more[1]
    return counts


def _nothing() -> None:
    """Does nothing: whoever publishes hears how it ended."""


def check_plain_topic(place: TopicHandle) -> None:
    """Raises where a topic takes no messages without a transaction."""
    if place.publishing == "transactional":
        raise BadRequest(
            f"topic {place.topic.topic} accepts messages in transactions only"
        )


def _rows_and(
    rows: Callable[[list[bytes]], list[Write]], also: Also, keys: list[bytes]
) -> list[Write]:
    return also(keys, rows(keys))


def _numbers(key: bytes) -> tuple[int, int]:
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big")


def _range(response: PublishResponse) -> tuple[bytes, bytes]:
    """Returns the keys from the first row of a response to just behind its last."""
    numbers = (
        response.start_timestamp,
        response.start_sequence_id,
        response.end_timestamp,
        response.end_sequence_id,
    )
    if not all(isinstance(number, int) for number in numbers):
        raise BadRequest(f"{response} names no rows")
    try:
        start = row_key(response.start_timestamp, response.start_sequence_id)
        end = row_key(response.end_timestamp, response.end_sequence_id)
    except OverflowError as error:
        raise BadRequest(f"{response} names no rows") from error
    return start, end + b"\0"
