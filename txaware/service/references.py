"""What transactions have stored ahead, and which of it their references name."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from txaware.errors import BadRequest, TransactionRefused
from txaware.interfaces import OrderedTable, Write
from txaware.messages import Receipt
from txaware.rowkeys import mark_key
from txaware.tables.columns import decode_receipts, encode_receipts
from txaware.tables.payload_table import PayloadTable
from txaware.topics import Topic

# Transactions that are not this process's own have no end here; so many are remembered.
REMEMBERED = 1000

# What a mark says of a transaction in a topic.
_OPEN, _CLOSED, _DELETED = b"o", b"c", b"d"


class Stored:
    """What one transaction has stored in one topic, by attempt.

    `named` are the attempts that a reference has named: they take no more. `closed` is
    all of it, after a reference that named no receipts of its own. `writing` counts
    stores on their way.
    """

    def __init__(self, counts: dict[bytes, int]) -> None:
        self.counts = counts
        self.named: dict[bytes, int] = {}
        self.closed = False
        self.deleted = False
        self.writing = 0
        self.changed = threading.Condition()

    def mark(self) -> bytes:
        """What has to outlive the process."""
        state = _DELETED if self.deleted else _CLOSED if self.closed else _OPEN
        return state + encode_receipts(self.named)

    def read_mark(self, data: bytes) -> None:
        """Takes over what an earlier process left."""
        self.deleted, self.closed = data[:1] == _DELETED, data[:1] == _CLOSED
        self.named = decode_receipts(data[1:])


class References:
    """Keeps what is read by a reference the same for ever.

    Rows that belong to a reference must all be there when it is published, and none may
    join them later.
    """

    def __init__(self, table: OrderedTable, payloads: PayloadTable) -> None:
        self._table = table
        self._payloads = payloads
        self._lock = threading.Lock()
        self._stored: OrderedDict[tuple[bytes, int], Stored] = OrderedDict()
        self._own: dict[int, list[bytes]] = {}

    @contextmanager
    def storing(
        self, topic: Topic, pointer: int, attempt: bytes, count: int, *, own: bool
    ) -> Iterator[None]:
        """Around the write of `count` payload rows; refuses what comes too late."""
        stored = self._of(topic, pointer, own=own)
        with stored.changed:
            if stored.deleted or stored.closed or attempt in stored.named:
                raise TransactionRefused(
                    f"transaction {pointer} stores nothing more in {topic.topic}"
                    f"{_of_attempt(attempt)}: {_why_closed(stored)}"
                )
            stored.writing += 1
        written = False
        try:
            yield
            written = True
        finally:
            with stored.changed:
                stored.writing -= 1
                if written:
                    stored.counts[attempt] = stored.counts.get(attempt, 0) + count
                stored.changed.notify_all()

    def name(
        self,
        topic: Topic,
        pointer: int,
        receipts: Iterable[Receipt] | None,
        *,
        own: bool,
        publish: Callable[[bytes, list[Write]], None],
    ) -> None:
        """Has a reference published that names these receipts, and closes them.

        `publish` gets column r, and what else has to be written with the row.
        """
        stored = self._of(topic, pointer, own=own)
        with stored.changed:
            if stored.deleted:
                raise TransactionRefused(
                    f"transaction {pointer} publishes no reference in {topic.topic}: "
                    f"{_why_closed(stored)}"
                )
            stored.changed.wait_for(lambda: not stored.writing)
            named = _named(topic, pointer, stored, receipts)
            before = stored.named, stored.closed
            stored.named = {**stored.named, **named}
            stored.closed = stored.closed or receipts is None
            key = mark_key(topic.prefix, pointer)
            try:
                publish(encode_receipts(named), [] if own else [(key, stored.mark())])
            except BaseException:
                stored.named, stored.closed = before
                raise

    @contextmanager
    def removing(self, prefix: bytes, pointer: int) -> Iterator[Callable[[], Write]]:
        """Around the removal of payloads: nobody stores or names any meanwhile.

        What it yields answers the mark to write with the removal, and then nobody ever
        does again.
        """
        stored = self._known(prefix, pointer, own=False)
        with stored.changed:
            stored.changed.wait_for(lambda: not stored.writing)

            def mark() -> Write:
                stored.deleted = True
                return mark_key(prefix, pointer), stored.mark()

            yield mark

    def ended(self, pointers: Iterable[int]) -> None:
        """Forgets transactions of this process, which nobody can add to any more."""
        for pointer in pointers:
            if pointer in self._own:
                with self._lock:
                    for prefix in self._own.pop(pointer, ()):
                        self._stored.pop((prefix, pointer), None)

    def _of(self, topic: Topic, pointer: int, *, own: bool) -> Stored:
        return self._known(topic.prefix, pointer, own=own)

    def _known(self, prefix: bytes, pointer: int, *, own: bool) -> Stored:
        with self._lock:
            stored = self._stored.get((prefix, pointer))
            if stored is None:
                stored = Stored({}) if own else self._read(prefix, pointer)
                self._stored[prefix, pointer] = stored
                if own:
                    self._own.setdefault(pointer, []).append(prefix)
                self._forget_oldest()
            self._stored.move_to_end((prefix, pointer))
            return stored

    def _read(self, prefix: bytes, pointer: int) -> Stored:
        stored = Stored(self._payloads.counts(prefix, pointer))
        mark = self._table.get(mark_key(prefix, pointer))
        if mark is not None:
            stored.read_mark(mark)
        return stored

    def _forget_oldest(self) -> None:
        """Only what can be read again, and what nobody uses just now."""
        surplus = len(self._stored) - REMEMBERED
        if surplus <= 0:
            return
        for key, stored in list(self._stored.items())[:surplus]:
            if key[1] not in self._own and not stored.writing:
                del self._stored[key]


def _named(
    topic: Topic, pointer: int, stored: Stored, receipts: Iterable[Receipt] | None
) -> dict[bytes, int]:
    """Attempts, and how many rows of each a reference names; all of them are there."""
    if receipts is None:
        return {
            attempt: count
            for attempt, count in stored.counts.items()
            if attempt not in stored.named
        }
    named: dict[bytes, int] = {}
    for receipt in receipts:
        if receipt.pointer != pointer or receipt.topic != str(topic.topic):
            raise BadRequest(
                f"{receipt} is not of transaction {pointer} and topic {topic.topic}"
            )
        named[receipt.attempt] = named.get(receipt.attempt, 0) + receipt.count
    for attempt, count in named.items():
        found = stored.counts.get(attempt, 0)
        if found != count:
            raise TransactionRefused(
                f"the receipts of transaction {pointer}{_of_attempt(attempt)} name "
                f"{count} rows in {topic.topic}, and {found} are stored"
            )
        if attempt in stored.named:
            raise TransactionRefused(
                f"transaction {pointer}{_of_attempt(attempt)} has published its rows "
                f"in {topic.topic} already"
            )
    return named


def _of_attempt(attempt: bytes) -> str:
    return f" under attempt {attempt.hex()}" if attempt else ""


def _why_closed(stored: Stored) -> str:
    if stored.deleted:
        return "what it had stored was removed, as it was over"
    return "a reference to what it had stored is published"
