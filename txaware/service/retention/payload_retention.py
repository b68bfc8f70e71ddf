"""Removes the stored payloads that nobody can need any more."""

from collections.abc import Iterator

import attrs

from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.model.topics import Topic
from txaware.service.retention.deletion import Deleting
from txaware.service.store_context import StoreContext
from txaware.store.columns import is_reference, pointer_of
from txaware.store.interfaces import pieces
from txaware.store.keys import (
    MARK,
    MESSAGE,
    PAYLOAD,
    POINTER_BYTES,
    mark_key,
    payload_prefix,
    pointer_key,
    row_key,
)
from txaware.store.message_table import MessageTable

POINTERS_AT_ONCE = 10_000
UNDER_WAY_MS = 600_000
# Pointers of Tephra are times; smaller ones are made by hand and tell no time.
FIRST_TIMED = 10**12 * POINTERS_PER_MS
_END = b"\xff" * 10


@attrs.define
class Removed:
    """The numbers of removed payloads, and of expired references gone before them."""

    payloads: int = 0
    references: int = 0


class PayloadRetention:
    """Removes the payloads of transactions that are over and that no reference names.

    The end of another coordinator's transactions is not known: their payloads go when
    they are older than the time to live and a grace.
    """

    def __init__(self, store_context: StoreContext) -> None:
        self._table = store_context.table
        self._cache = store_context.cache
        self._messages = MessageTable(store_context.table)
        self._references = store_context.references
        self._barrier = store_context.barrier
        self._settings = store_context.settings

    def has_any(self) -> bool:
        """Tells whether any topic has stored payloads."""
        return bool(self._table.scan(PAYLOAD, limit=1))

    def clean_up(
        self,
        topic: Topic,
        snapshot: Transaction,
        now_ms: int,
        deleting: Deleting,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
    ) -> Removed:
        """Removes the unneeded payloads of a topic; returns how many.

        It looks at transactions from the pointer `start` on and before `stop`, both as
        keys have them.
        """
        removed, bound = Removed(), row_key(topic.live_from_ms(now_ms))
        begin = start
        while candidates := self._candidates(
            topic, snapshot, now_ms, start=begin, stop=stop
        ):
            begin = pointer_key(max(candidates) + 1)
            # A reference that was on its way to the disk meanwhile has an earlier time.
            under_way = row_key(max(0, self._table.clock.now_ms() - UNDER_WAY_MS))
            # An expired reference names nothing, whether it is still there or not.
            looked_from = max(under_way, bound)
            named = self._named(topic, candidates, bound)
            unnamed = candidates - named
            removed.references += self._unname(topic, unnamed, bound, deleting)
            for pointer in sorted(unnamed):
                removed.payloads += self._remove(topic, pointer, looked_from, deleting)
        self._remove_marks(topic, snapshot, now_ms, deleting, start=start, stop=stop)
        return removed

    def _candidates(
        self,
        topic: Topic,
        snapshot: Transaction,
        now_ms: int,
        *,
        start: bytes,
        stop: bytes | None,
    ) -> set[int]:
        found: set[int] = set()
        for pointer, last_ms in self._pointers(topic, start, stop):
            if self._may_go(topic, pointer, last_ms, snapshot=snapshot, now_ms=now_ms):
                found.add(pointer)
                if len(found) == POINTERS_AT_ONCE:
                    break
        return found

    def _pointers(
        self, topic: Topic, start: bytes, stop: bytes | None
    ) -> Iterator[tuple[int, int]]:
        """Yields each transaction with payloads, and the time of its last payload."""
        prefix = PAYLOAD + topic.prefix
        while rows := self._table.scan(prefix, start=start, stop=stop, limit=1):
            pointer = rows[0][0][:POINTER_BYTES]
            number = int.from_bytes(pointer, "big")
            last = self._table.scan(
                payload_prefix(topic.prefix, number), limit=1, reverse=True
            )
            yield number, int.from_bytes((last or rows)[0][0][-10:-2], "big")
            start = pointer + _END + b"\0"

    def _may_go(
        self,
        topic: Topic,
        pointer: int,
        last_ms: int,
        *,
        snapshot: Transaction,
        now_ms: int,
    ) -> bool:
        if self._is_ours(pointer):
            return _is_over(pointer, snapshot)
        return last_ms + self._grace_ms(topic) < now_ms

    def _is_ours(self, pointer: int) -> bool:
        return self._barrier is None or self._is_behind_barrier(pointer)

    def _grace_ms(self, topic: Topic) -> int:
        return topic.ttl_ms + int(self._settings.orphan_grace_s * 1000)

    def _named(self, topic: Topic, pointers: set[int], bound: bytes) -> set[int]:
        """Returns the pointers that a reference within the time to live names."""
        return {
            abs(pointer)
            for _, value in self._messages.rows(topic.prefix, start=bound, stop=_END)
            if is_reference(value)
            and (pointer := pointer_of(value) or 0)
            and abs(pointer) in pointers
        }

    def _unname(
        self, topic: Topic, pointers: set[int], bound: bytes, deleting: Deleting
    ) -> int:
        """Removes expired references to these payloads, before any payload goes.

        While payloads go, or after a crash on the way, the time to live may become
        longer or the clock go back. Then a part of the payloads would be read again.
        """
        if not pointers:
            return 0
        prefix, count = MESSAGE + topic.prefix, 0
        for rows in pieces(self._table, prefix, stop=bound):
            keys = [
                prefix + key
                for key, value in rows
                if is_reference(value) and abs(pointer_of(value) or 0) in pointers
            ]
            deleting.delete(keys)
            count += len(keys)
        if count:
            self._cache.drop(topic.prefix)
        return count

    def _remove(
        self, topic: Topic, pointer: int, looked_from: bytes, deleting: Deleting
    ) -> int:
        """Removes the payloads of a pointer, unless a reference came meanwhile."""
        prefix = payload_prefix(topic.prefix, pointer)
        if self._is_behind_barrier(pointer):
            return deleting.delete_range(
                prefix
            )  # its transaction is over: no reference can come
        with self._references.removing(topic.prefix, pointer) as mark:
            if self._named(topic, {pointer}, looked_from):
                return 0
            return deleting.delete_range(prefix, with_first=mark())

    def _remove_marks(
        self,
        topic: Topic,
        snapshot: Transaction,
        now_ms: int,
        deleting: Deleting,
        *,
        start: bytes,
        stop: bytes | None,
    ) -> None:
        """Removes marks of transactions that could not write without a mark either."""
        late = (now_ms - self._grace_ms(topic)) * POINTERS_PER_MS
        for rows in pieces(self._table, MARK + topic.prefix, start=start, stop=stop):
            pointers = [int.from_bytes(key, "big") for key, _ in rows]
            deleting.delete(
                [
                    mark_key(topic.prefix, pointer)
                    for pointer in pointers
                    if _is_over(pointer, snapshot)
                    and (
                        self._is_behind_barrier(pointer) or FIRST_TIMED < pointer < late
                    )
                    and not self._table.scan(
                        payload_prefix(topic.prefix, pointer), limit=1
                    )
                ]
            )

    def _is_behind_barrier(self, pointer: int) -> bool:
        """Tells whether every write with a pointer goes through the barrier here."""
        return self._barrier is not None and self._barrier.reaches(pointer)


def _is_over(pointer: int, snapshot: Transaction) -> bool:
    return pointer < snapshot.transaction_id and not snapshot.is_in_progress(pointer)
