"""Users' tables in this process: rows judged by a snapshot, as messages are."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import eq, itemgetter
from typing import TypeVar

from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.model.interfaces import Row, Write
from txaware.model.reports import OutboxReport
from txaware.model.requests import Pointer, checked_pointer, checked_snapshot
from txaware.model.rows import (
    PAGE_ROWS,
    KeyRange,
    RowChange,
    Rows,
    checked_changes_of_rows,
    checked_key,
    checked_keys_of_rows,
    checked_range,
    checked_row_limit,
)
from txaware.model.topics import TableName, checked_namespace
from txaware.service.read.reading import Reading
from txaware.service.store_context import StoreContext, carrying
from txaware.service.visibility import DELIVER, Visibility
from txaware.service.write.message_cargo import RowCargo
from txaware.store.columns import POINTED, pointer_of
from txaware.store.interfaces import pieces
from txaware.store.journaled_table import keep_earlier_versions_away
from txaware.store.keys import POINTER_BYTES, TABLE, after
from txaware.store.kinds import END, USERS_ROWS, ZERO, escaped, unescaped
from txaware.store.versioned_rows import (
    BEHIND_POINTER,
    VersionedRows,
    payload_at,
    without_pointer,
)

T = TypeVar("T")
# Each piece is up to 1 MiB; a page has no more than so many.
PAGE_PIECES = 4
# The same few names come again and again; so many are kept.
KNOWN_NAMES = 10_000
# The bytes of a version's key that follow the user's key.
BEHIND_KEY = len(END) + POINTER_BYTES
# Parts of a row, and of its version: each takes half of what a step of Python takes.
KEY_OF, VALUE_OF = itemgetter(0), itemgetter(1)
USERS_KEY = itemgetter(slice(None, -BEHIND_KEY))
HEAD = itemgetter(slice(BEHIND_POINTER))
PAYLOAD = itemgetter(slice(BEHIND_POINTER, None))


class TableStore:
    """`TableService` over one table of rows and one coordinator."""

    def __init__(self, store_context: StoreContext) -> None:
        self._table = store_context.table
        self._barrier = store_context.barrier
        self._settings = store_context.settings
        self._clock_ms = store_context.clock_ms
        self._carrying = carrying(store_context)
        self._retention = store_context.versions
        self._versions = VersionedRows(store_context.table)
        self._reading = Reading(store_context)
        self._writes = store_context.writes
        self._names: dict[str, TableName] = {}

    @property
    def carrier(self) -> "TableStore":
        """The service itself: a commit of this process may carry its rows."""
        return self

    def tables(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's tables that have rows, in order."""
        checked_namespace(namespace)
        prefix = f"{namespace}:".encode("ascii")
        firsts = self._versions.first_of_each(TABLE + prefix, _before_key)
        return [key.split(b":", 2)[1].decode("ascii") for key, _ in firsts]

    def all_tables(self) -> list[str]:
        """Returns the full names of all tables that have rows, in order."""
        firsts = self._versions.first_of_each(TABLE, _before_key)
        keys = [key[len(TABLE) :].decode("ascii", "replace") for key, _ in firsts]
        places = [key.split(":", 2)[:2] for key in keys]
        return [str(TableName(name, namespace)) for namespace, name in places]

    def outboxes(self) -> list[OutboxReport]:
        """Returns what relays said last of the outboxes that they carry over."""
        prefix = OutboxReport.PREFIX
        if not self.has_versions(OutboxReport.TABLE, prefix=prefix):
            return []
        rows = self.scan_rows(OutboxReport.TABLE, prefix=prefix).rows
        return [OutboxReport.of(value) for _, value in rows]

    def get_row(
        self, table: str, key: bytes, *, transaction: Transaction | None = None
    ) -> bytes | None:
        """Returns the value of a key as the transaction or a fresh snapshot sees it."""
        versions = USERS_ROWS.prefix_of((self._name(table), checked_key(key)))
        if transaction is not None:
            checked_snapshot(transaction)
            # Nearly always it is the newest, without a judge (a third of the time).
            newest = self._versions.newest(versions)
            if newest is not None and self._sees(transaction, pointer_of(newest) or 0):
                return self._value(newest)
            return self._get(versions, self._reading.judge(transaction))
        return self._as_seen(None, partial(self._get, versions))

    def scan_rows(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        stop: bytes | None = None,
        limit: int | None = None,
        transaction: Transaction | None = None,
    ) -> Rows:
        """Returns some rows in the order of keys, and where the next ones begin."""
        name, keys = self._name(table), checked_range(prefix, start, stop)
        most = min(PAGE_ROWS, checked_row_limit(limit) or PAGE_ROWS)
        if limit == 0:
            return Rows([], None)
        return self._as_seen(
            transaction, lambda judge: self._scan(name, keys, most, judge)
        )

    def cut_rows(self, changes: Iterable[RowChange]) -> list[list[RowChange]]:
        """Returns all in one piece: rows of any number go together here."""
        return [list(changes)]

    def has_versions(self, table: str, *, prefix: bytes = b"") -> bool:
        """Tells whether any row of these keys was ever written; takes no snapshot."""
        keys = checked_range(prefix, None, None)
        return any(self._within(self._name(table), keys, at_once=1))

    def save_rows(
        self, table: str, changes: Iterable[RowChange], *, transaction: Pointer
    ) -> None:
        """Writes changes that become visible with the commit of the transaction."""
        name, listed = self._name(table), self._checked(changes)
        writes = self._made(name, listed, checked_pointer(transaction))
        self._writes.write(transaction, writes, before_end=partial(self._wrote, writes))

    def take_back_rows(
        self, table: str, keys: Iterable[bytes], *, transaction: Pointer
    ) -> None:
        """Takes back what the transaction wrote of these keys."""
        name, pointer = self._name(table), checked_pointer(transaction)
        checked = checked_keys_of_rows(keys)
        rows = [USERS_ROWS.key_of((name, key), pointer) for key in checked]
        with self._writes.undoing(pointer):
            self._versions.take_back(rows)

    def row_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        tables: Iterable[tuple[str, Iterable[RowChange]]],
    ) -> RowCargo | None:
        """Returns checked changes as rows that the commit of `tx` carries.

        None where the coordinator cannot carry them, or where they are too many.
        """
        if coordinator is not self._carrying:
            return None
        writes: list[Write] = []
        for table, changes in tables:
            writes += self._made(self._name(table), changes, tx.transaction_id)
        size_bytes = sum(len(key) + len(value or b"") for key, value in writes)
        if size_bytes > self._settings.sync_limit_bytes:
            return None
        return RowCargo(writes, partial(self._wrote, writes))

    def _checked(self, changes: Iterable[RowChange]) -> list[RowChange]:
        limit_bytes = self._settings.message_limit_bytes
        return checked_changes_of_rows(changes, limit_bytes=limit_bytes)

    def _made(
        self, name: TableName, changes: Iterable[RowChange], pointer: int
    ) -> list[Write]:
        keep_earlier_versions_away(self._table)
        now_ms = self._clock_ms()
        return [_version(name, pointer, change, now_ms) for change in changes]

    def _wrote(self, writes: Iterable[Write]) -> None:
        self._retention.wrote(USERS_ROWS, [without_pointer(key) for key, _ in writes])

    def _within(
        self, name: TableName, keys: KeyRange, *, at_once: int
    ) -> Iterator[list[Row]]:
        """Reads the versions of a range in order, without the name of the table."""
        start, stop = _bounds_of(keys)
        return pieces(
            self._table, TABLE + name.key, start=start, stop=stop, limit=at_once
        )

    def _as_seen(
        self, transaction: Transaction | None, look: Callable[[Visibility], T]
    ) -> T:
        checked_snapshot(transaction)
        return self._retention.as_seen(transaction, self._reading.judge, look)

    def _sees(self, transaction: Transaction, pointer: int) -> bool:
        """Tells whether a snapshot delivers a pointer; a judge tells the rest."""
        if pointer <= 0 or not transaction.is_visible(pointer):
            return False
        return self._barrier is None or not self._barrier.was_lost(pointer)

    def _get(self, versions: bytes, judge: Visibility) -> bytes | None:
        version = self._versions.visible(versions, judge)
        return None if version is None else self._value(version)

    def _value(self, version: bytes) -> bytes | None:
        """Returns the value of a version; nearly always without a look at the clock."""
        if version[0] == POINTED:
            return version[BEHIND_POINTER:]
        return payload_at(version, self._clock_ms())

    def _scan(
        self, name: TableName, keys: KeyRange, limit: int, judge: Visibility
    ) -> Rows:
        """Takes the newest version of each key that the judge delivers.

        Nearly always a piece is delivered as a whole, and is taken apart without a
        step of Python for each row: a scan spends its time here.
        """
        found: list[tuple[bytes, bytes]] = []
        pieces = self._within(name, keys, at_once=limit + 1)
        for number, rows in enumerate(pieces, 1):
            versions = [*map(VALUE_OF, rows)]
            if _is_delivered(versions, judge):
                _take(found, rows, versions)
            else:
                self._add(found, rows, judge)
            if len(found) > limit:
                return Rows(found[:limit], found[limit][0])
            if number >= PAGE_PIECES and len(found) > 1:
                # The last row may have newer versions behind these.
                return Rows(found[:-1], found[-1][0])
        return Rows(found, None)

    def _add(
        self, found: list[tuple[bytes, bytes]], rows: list[Row], judge: Visibility
    ) -> None:
        """Adds versions one by one, as the judge delivers them."""
        now_ms = self._clock_ms()
        for key, version in rows:
            if judge.verdict(pointer_of(version)) != DELIVER:
                continue
            users_key = unescaped(key[:-BEHIND_KEY])
            if found and found[-1][0] == users_key:
                found.pop()  # a later version takes the place of an earlier one
            value = payload_at(version, now_ms)
            if value is not None:
                found.append((users_key, value))

    def _name(self, table: str) -> TableName:
        name = self._names.get(table) if isinstance(table, str) else None
        if name is None:
            name = TableName.parse(table)
            if len(self._names) < KNOWN_NAMES:
                self._names[table] = name
        return name


def _before_key(version: bytes) -> bytes:
    """Returns the beginning of the keys of all rows of the same table."""
    return version[: version.index(b":", version.index(b":") + 1) + 1]


def _version(name: TableName, pointer: int, change: RowChange, now_ms: int) -> Write:
    """Makes the version that a change writes."""
    row, after_s = (name, change.key), change.expire_after_s
    expires_ms = None if after_s is None else now_ms + int(after_s * 1000)
    return USERS_ROWS.write(row, pointer, change.value, expires_ms=expires_ms)


def _bounds_of(keys: KeyRange) -> tuple[bytes, bytes | None]:
    """Returns where the versions of a range begin and stop, in the order of keys."""
    start, stop = escaped(keys.prefix), None
    if keys.prefix.rstrip(b"\xff"):
        stop = after(start)
    if keys.start is not None:
        start = max(start, escaped(keys.start))
    if keys.stop is not None:
        before = escaped(keys.stop)
        stop = before if stop is None else min(stop, before)
    return start, stop


def _is_delivered(versions: list[bytes], judge: Visibility) -> bool:
    """Tells whether all versions are delivered and have nothing but a value.

    The least and the greatest of them have the least and the greatest pointer.
    """
    least, greatest = min(versions), max(versions)
    if least[0] != POINTED or greatest[0] != POINTED:
        return False
    first, last = pointer_of(least) or 0, pointer_of(greatest) or 0
    if judge.delivers_between(first, last):
        return True
    heads = set(map(HEAD, versions))
    return all(judge.verdict(pointer_of(head)) == DELIVER for head in heads)


def _take(
    found: list[tuple[bytes, bytes]], rows: list[Row], versions: list[bytes]
) -> None:
    """Adds the newest version of each key of a piece that is delivered."""
    keys = [*map(USERS_KEY, map(KEY_OF, rows))]
    if ZERO in b"".join(keys):
        keys = [*map(unescaped, keys)]
    if found and found[-1][0] == keys[0]:
        found.pop()
    newest: Iterable[tuple[bytes, bytes]]
    newest = zip(keys, map(PAYLOAD, versions), strict=True)
    if any(map(eq, keys, islice(keys, 1, None))):
        newest = dict(newest).items()
    found += newest
