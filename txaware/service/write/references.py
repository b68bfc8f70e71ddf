"""Keeps stored payloads and the references that name them in agreement."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from coordinator.threads import Condition
from txaware.errors import BadRequest, TransactionRefused, changed_nothing
from txaware.model.interfaces import OrderedTable, Write
from txaware.model.messages import Receipt
from txaware.model.requests import checked_attempt, checked_receipts
from txaware.model.topics import Topic
from txaware.store.columns import decode_receipts, encode_receipts
from txaware.store.keys import mark_key
from txaware.store.payload_table import PayloadTable

# The end of another process's transaction is not known here; so many are remembered.
REMEMBERED = 1000
LOOK_AGAIN_S = 0.05

# The state of a transaction in a topic, the first byte of its mark.
_OPEN, _CLOSED, _DELETED = b"o", b"c", b"d"


class Stored:
    """The payloads that one transaction has stored in one topic, counted by attempt.

    `named` are the attempts that a reference has named: they take no more payloads.
    `closed` is True after a reference that named no receipts: then no attempt takes
    more. `writing` holds the stores on their way, and `users` the callers that use this
    value now. Both are sets and not numbers, as an interrupt may keep a caller from
    leaving. While `known` is False, the state has to be read from the table first.
    `in_doubt` is True when a reference may be published and the table cannot tell.
    """

    def __init__(self, *, own: bool) -> None:
        self.own = own
        self.known = own
        self.counts: dict[bytes, int] = {}
        self.named: dict[bytes, int] = {}
        self.closed = False
        self.deleted = False
        self.in_doubt = False
        self.writing: set[object] = set()
        self.users: set[object] = set()
        self.lock = Condition()

    def mark(self) -> bytes:
        """Returns the state that has to outlive the process, as a row's value."""
        state = _DELETED if self.deleted else _CLOSED if self.closed else _OPEN
        return state + encode_receipts(self.named)

    def read_mark(self, data: bytes) -> None:
        """Takes over the state that `mark` returned."""
        self.deleted, self.closed = data[:1] == _DELETED, data[:1] == _CLOSED
        self.named = decode_receipts(data[1:])

    def wait_for_stores(self) -> None:
        """Waits until no store is on its way; releases the lock meanwhile."""
        while self.writing:
            self.lock.wait(LOOK_AGAIN_S)


class References:
    """Makes sure that a reference stands for the same payloads for ever.

    All rows of a reference must be there when it is published, and none may join them
    later.
    """

    def __init__(self, table: OrderedTable, payloads: PayloadTable) -> None:
        self._table = table
        self._payloads = payloads
        self._lock = threading.Lock()  # never held over the disk
        self._stored: OrderedDict[tuple[bytes, int], Stored] = OrderedDict()
        self.own_prefixes: dict[int, list[bytes]] = {}

    @contextmanager
    def storing(
        self, topic: Topic, pointer: int, attempt: bytes, count: int, *, own: bool
    ) -> Iterator[None]:
        """Surrounds a write of `count` payload rows; refuses one that is too late."""
        with self._using(topic.prefix, pointer, own=own) as stored:
            store = object()
            try:
                with stored.lock:
                    if not stored.known:  # or other stores' rows would be counted twice
                        stored.wait_for_stores()
                    self._read(stored, topic.prefix, pointer)
                    if stored.deleted or stored.closed or attempt in stored.named:
                        raise TransactionRefused(
                            f"transaction {pointer} stores nothing more in "
                            f"{topic.topic}{_of_attempt(attempt)}: "
                            f"{_why_closed(stored)}"
                        )
                    stored.writing.add(store)
                try:
                    yield
                except BaseException as error:
                    if not changed_nothing(error):
                        stored.known = False  # the rows may be on disk all the same
                    raise
                with stored.lock:
                    stored.counts[attempt] = stored.counts.get(attempt, 0) + count
            finally:
                stored.writing.discard(store)
                with stored.lock:
                    stored.lock.notify_all()

    def name(
        self,
        topic: Topic,
        pointer: int,
        receipts: Iterable[Receipt] | None,
        *,
        own: bool,
        publish: Callable[[bytes, list[Write]], None],
    ) -> None:
        """Calls `publish` for a reference to these receipts, and closes their attempts.

        `publish` gets the column of receipts, and the rows to write with the reference.
        """
        checked = None if receipts is None else checked_receipts(receipts)
        with self._using(topic.prefix, pointer, own=own) as stored, stored.lock:
            stored.wait_for_stores()
            self._read(stored, topic.prefix, pointer)
            if stored.deleted or stored.in_doubt:
                raise TransactionRefused(
                    f"transaction {pointer} publishes no reference in {topic.topic}: "
                    f"{_why_closed(stored)}"
                )
            named = _named(topic, pointer, stored, checked)
            before = stored.named, stored.closed
            stored.named = {**stored.named, **named}
            stored.closed = stored.closed or checked is None
            key = mark_key(topic.prefix, pointer)
            try:
                publish(encode_receipts(named), [] if own else [(key, stored.mark())])
            except BaseException as error:
                if changed_nothing(error):
                    stored.named, stored.closed = before
                else:
                    # A mark, where there is one, tells how it went. Without one this
                    # stays closed: a second reference would name nothing, and lose
                    # what was stored.
                    stored.known, stored.in_doubt = False, own
                raise

    def counts(self, topic: Topic, pointer: int, *, own: bool) -> dict[bytes, int]:
        """Returns how many rows each attempt has stored that no reference named."""
        with self._using(topic.prefix, pointer, own=own) as stored, stored.lock:
            stored.wait_for_stores()
            self._read(stored, topic.prefix, pointer)
            return {
                attempt: count
                for attempt, count in stored.counts.items()
                if attempt not in stored.named
            }

    @contextmanager
    def removing(self, prefix: bytes, pointer: int) -> Iterator[Callable[[], Write]]:
        """Surrounds the removal of payloads: nobody stores or names any meanwhile.

        It yields a function that returns the mark to write with the removal. Once that
        is called, the transaction stores and names nothing in this topic ever again.
        """
        with self._using(prefix, pointer, own=False) as stored, stored.lock:
            stored.wait_for_stores()
            self._read(stored, prefix, pointer)

            def mark() -> Write:
                stored.deleted = True
                return mark_key(prefix, pointer), stored.mark()

            yield mark

    def ended(self, pointers: Iterable[int]) -> None:
        """Forgets ended transactions of this process: they store nothing more."""
        for pointer in pointers:
            if pointer in self.own_prefixes:
                with self._lock:
                    for prefix in self.own_prefixes.pop(pointer, ()):
                        self._stored.pop((prefix, pointer), None)

    @contextmanager
    def _using(self, prefix: bytes, pointer: int, *, own: bool) -> Iterator[Stored]:
        """Yields the state of a transaction, one for all users; keeps it meanwhile."""
        key, user = (prefix, pointer), object()
        with self._lock:
            stored = self._stored.get(key)
            if stored is None:
                stored = self._stored[key] = Stored(own=own)
                if own:
                    self.own_prefixes.setdefault(pointer, []).append(prefix)
                self._forget_oldest()
            stored.users.add(user)
            self._stored.move_to_end(key)
        try:
            yield stored
        finally:
            stored.users.discard(user)

    def _read(self, stored: Stored, prefix: bytes, pointer: int) -> None:
        """Reads the state from the table if it is not known; called under its lock."""
        if stored.known:
            return
        stored.counts = self._payloads.counts(prefix, pointer)
        if not stored.own:
            stored.read_mark(self._table.get(mark_key(prefix, pointer)) or _OPEN)
        stored.known = True

    def forget(self) -> None:
        """Reads all that nobody uses now again, as another process had the rows."""
        with self._lock:
            for key, stored in [*self._stored.items()]:
                if not stored.own and not stored.users:
                    del self._stored[key]

    def _forget_oldest(self) -> None:
        """Forgets the oldest that can be read again and that nobody uses now."""
        surplus = len(self._stored) - REMEMBERED
        for key in list(islice(self._stored, max(0, surplus))):
            stored = self._stored[key]
            if not stored.own and not stored.users:
                del self._stored[key]


def _named(
    topic: Topic, pointer: int, stored: Stored, receipts: Iterable[Receipt] | None
) -> dict[bytes, int]:
    """Returns the attempts that a reference names, and their rows; all are stored."""
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
        attempt, count = checked_attempt(receipt.attempt), receipt.count
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise BadRequest(f"{receipt} has no count, which is 1 or more")
        named[attempt] = named.get(attempt, 0) + count
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
    if stored.in_doubt:
        return "one may be published already, as its answer was lost; roll back"
    if stored.deleted:
        return "what it had stored was removed, as it was over"
    return "a reference to what it had stored is published"
