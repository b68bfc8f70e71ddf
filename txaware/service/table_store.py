"""Users' tables in this process: rows judged by a snapshot, as messages are."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.interfaces import Row, Write
from txaware.keys import pointer_key
from txaware.requests import Pointer, checked_pointer, checked_snapshot
from txaware.rows import (
    PAGE_ROWS,
    KeyRange,
    RowChange,
    Rows,
    checked_changes_of_rows,
    checked_key,
    checked_range,
    checked_row_limit,
)
from txaware.service.read.reading import Reading
from txaware.service.store_context import StoreContext, carrier
from txaware.service.visibility import DELIVER, Visibility
from txaware.service.write.positions import RowCargo
from txaware.store.columns import POINTED, pointer_of
from txaware.store.journaled_table import keep_earlier_versions_away
from txaware.store.ranges import negate
from txaware.store.table_versions import (
    BEHIND_KEY,
    BEHIND_POINTER,
    ZERO,
    TableVersions,
    unescaped,
    value_at,
    version_write,
    versions_prefix,
)
from txaware.topics import TableName, checked_namespace

T = TypeVar("T")
# Each piece is up to 1 MiB; a page has no more than so many.
PAGE_PIECES = 4
# The same few names come again and again; so many are kept.
KNOWN_NAMES = 10_000


class TableStore:
    """`TableService` over one table of rows and one coordinator."""

    def __init__(self, site: StoreContext) -> None:
        self._table = site.table
        self._gate = site.gate
        self._settings = site.settings
        self._clock_ms = site.clock_ms
        self._carrier = carrier(site)
        self._retention = site.tables
        self._versions = TableVersions(site.table)
        self._reading = Reading(site)
        self._writes = site.writes
        self._names: dict[str, TableName] = {}

    def tables(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's tables that have rows, in order."""
        checked_namespace(namespace)
        names = self._versions.names()
        return [found.name for found in names if found.namespace == namespace]

    def get_row(
        self, table: str, key: bytes, *, transaction: Transaction | None = None
    ) -> bytes | None:
        """Returns the value of a key as the transaction or a fresh snapshot sees it."""
        versions = versions_prefix(self._name(table), checked_key(key))
        if transaction is not None:
            checked_snapshot(transaction)
            # Nearly always it is the newest, without a judge (a third of the time).
            newest = self._versions.newest(versions)
            if newest is not None and self._sees(transaction, pointer_of(newest) or 0):
                return self._value(newest)
        return self._as_seen(transaction, partial(self._get, versions))

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

    def save_rows(
        self, table: str, changes: Iterable[RowChange], *, transaction: Pointer
    ) -> None:
        """Writes changes that become visible with the commit of the transaction."""
        name, listed = self._name(table), self._checked(changes)
        writes = self._made(name, listed, checked_pointer(transaction))
        changed = partial(self._retention.changed, [key for key, _ in writes])
        self._writes.write(transaction, writes, then=changed)

    def take_back_rows(
        self, table: str, keys: Iterable[bytes], *, transaction: Pointer
    ) -> None:
        """Takes back what the transaction wrote of these keys."""
        name, pointer = self._name(table), checked_pointer(transaction)
        end = pointer_key(pointer)
        versions = [versions_prefix(name, checked_key(key)) + end for key in keys]
        with self._writes.undoing(pointer):
            found = [(key, self._table.get(key)) for key in versions]
            there = [(key, value) for key, value in found if value is not None]
            if there:
                negate(self._table, there)

    def row_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        tables: Iterable[tuple[str, Iterable[RowChange]]],
    ) -> RowCargo | None:
        """Returns changes as rows that the commit of `tx` carries.

        None where the coordinator cannot carry them, or where they are too many.
        """
        if coordinator is not self._carrier:
            return None
        writes: list[Write] = []
        for table, changes in tables:
            listed = self._checked(changes)
            writes += self._made(self._name(table), listed, tx.transaction_id)
        size_bytes = sum(len(key) + len(value or b"") for key, value in writes)
        if size_bytes > self._settings.sync_limit_bytes:
            return None
        return RowCargo(
            writes, lambda: self._retention.changed(key for key, _ in writes)
        )

    def _checked(self, changes: Iterable[RowChange]) -> list[RowChange]:
        limit_bytes = self._settings.message_limit_bytes
        return checked_changes_of_rows(changes, limit_bytes=limit_bytes)

    def _made(
        self, name: TableName, changes: list[RowChange], pointer: int
    ) -> list[Write]:
        keep_earlier_versions_away(self._table)
        now_ms = self._clock_ms()
        return [version_write(name, pointer, change, now_ms) for change in changes]

    def _as_seen(
        self, transaction: Transaction | None, look: Callable[[Visibility], T]
    ) -> T:
        """Looks by a snapshot; again if versions went while it looked by a fresh one.

        What an open transaction sees is never removed.
        """
        checked_snapshot(transaction)
        while True:
            removals = self._retention.removals
            found = look(self._reading.judge(transaction))
            if transaction is not None or removals == self._retention.removals:
                return found

    def _sees(self, transaction: Transaction, pointer: int) -> bool:
        """Tells whether a snapshot delivers a pointer; a judge tells the rest."""
        if pointer <= 0 or not transaction.is_visible(pointer):
            return False
        return self._gate is None or not self._gate.was_lost(pointer)

    def _get(self, versions: bytes, judge: Visibility) -> bytes | None:
        newest = self._versions.newest(versions)
        if newest is not None and judge.verdict(pointer_of(newest)) == DELIVER:
            return self._value(newest)
        for version in self._versions.newest_first(versions):
            if judge.verdict(pointer_of(version)) == DELIVER:
                return self._value(version)
        return None

    def _value(self, version: bytes) -> bytes | None:
        """Returns the value of a version that is delivered."""
        if version[0] == POINTED:
            return version[BEHIND_POINTER:]
        return value_at(version, self._clock_ms())

    def _scan(
        self, name: TableName, keys: KeyRange, limit: int, judge: Visibility
    ) -> Rows:
        """Takes the newest version of each key that the judge delivers.

        Nearly all versions have one of few pointers, and a value. Of a piece that has
        no others all are taken at once: a scan spends its time here.
        """
        found: dict[bytes, bytes] = {}  # a later version takes the place of an earlier
        pieces = self._versions.within(name, keys, at_once=limit + 1)
        for number, versions in enumerate(pieces, 1):
            heads = {version[:BEHIND_POINTER] for _, version in versions}
            if all(
                head[0] == POINTED and judge.verdict(pointer_of(head)) == DELIVER
                for head in heads
            ):
                found |= {
                    key[:-BEHIND_KEY]: version[BEHIND_POINTER:]
                    for key, version in versions
                }
            else:
                self._add(found, versions, judge)
            if len(found) > limit:
                rows = list(found.items())
                return _page(rows[:limit], rows[limit][0])
            if number >= PAGE_PIECES and len(found) > 1:
                # The last row may have newer versions behind these.
                rows = list(found.items())
                return _page(rows[:-1], rows[-1][0])
        return _page(list(found.items()))

    def _add(
        self, found: dict[bytes, bytes], versions: list[Row], judge: Visibility
    ) -> None:
        """Adds versions one by one, as the judge delivers them."""
        now_ms = self._clock_ms()
        for key, version in versions:
            if judge.verdict(pointer_of(version)) != DELIVER:
                continue
            value = value_at(version, now_ms)
            if value is None:
                found.pop(key[:-BEHIND_KEY], None)
            else:
                found[key[:-BEHIND_KEY]] = value

    def _name(self, table: str) -> TableName:
        name = self._names.get(table)
        if name is None:
            name = TableName.parse(table)
            if len(self._names) < KNOWN_NAMES:
                self._names[table] = name
        return name


def _page(rows: list[tuple[bytes, bytes]], following: bytes | None = None) -> Rows:
    """Returns rows by the keys of their users."""
    if ZERO in b"".join([key for key, _ in rows]):
        rows = [(unescaped(key), value) for key, value in rows]
    return Rows(rows, None if following is None else unescaped(following))
