"""A user's table: values by key, which commit with the messages beside them."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Generic, cast

from coordinator.brief_errors import briefly
from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.joining import JoinsByItself
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.encoding import Decode, Encode, decoder, encoder
from txaware.model.messages import T
from txaware.model.rows import (
    KeyRange,
    RowChange,
    check_row_size,
    checked_expire_after_s,
    checked_key,
    checked_range,
    checked_row_limit,
    checked_value,
)
from txaware.model.table_service import TableService
from txaware.model.topics import TableName
from txaware.tables.table_changes import Conflicts, TableChanges


class Table(JoinsByItself, Generic[T]):
    """A table of rows, each a key and a value, that takes part in transactions.

    Inside a `with messaging.transaction()` block of this thread or task it reads what
    the block's snapshot sees, and the block's own changes; these become visible with
    its commit. Outside of a block each call is a transaction of its own. Two
    transactions that change one row at the same time conflict, unless `conflicts` is
    `"none"`. Any number of threads may share a table.

    Keys are bytes, and so are values, unless `encode` makes bytes of them and `decode`
    reads them.
    """

    def __init__(
        self,
        service: TableService,
        coordinator: Coordinator,
        name: str,
        *,
        encode: Encode[T] | None = None,
        decode: Decode[T] | None = None,
        conflicts: Conflicts = "row",
        shares_journal: bool = False,
        value_limit_bytes: int,
        request_bytes: int | None = None,
    ) -> None:
        if conflicts not in ("row", "none"):
            raise BadRequest(f'conflicts are "row" or "none", not {conflicts!r:.100}')
        self.name = str(TableName.parse(name))
        # Its changes are a participant of their own, which joins at the first of them.
        self.transaction_aware_name = f"table {self.name}"
        self._service = service
        self._coordinator = coordinator
        self._encode = None if encode is None else encoder(encode)
        self._decode = None if decode is None else decoder(decode)
        self._conflicts: Conflicts = conflicts
        self._shares_journal = shares_journal
        self._value_limit_bytes = value_limit_bytes
        # What one request carries; None where there are no requests.
        self._request_bytes = request_bytes
        self._key = ("table", id(service), self.name, conflicts)
        guard(self)

    def get(self, key: bytes) -> T | None:
        """Returns the value of a key; None if it has none."""
        checked_key(key)
        context = current_transaction(self._coordinator)
        if context is None:
            return self._read(self._service.get_row(self.name, key))
        change = self._joined(context).seen(key)
        if change is not None:
            return self._read(change.value)
        snapshot = context.snapshot_for("get")
        return self._read(self._service.get_row(self.name, key, transaction=snapshot))

    def put(self, key: bytes, value: T, *, ttl_s: float | None = None) -> None:
        """Sets the value of a key; with `ttl_s` the row is gone after that time."""
        written = value if self._encode is None else self._encode(value)
        change = RowChange(
            checked_key(key),
            checked_value(written, limit_bytes=self._value_limit_bytes),
            checked_expire_after_s(ttl_s),
        )
        self._change(change)

    def delete(self, key: bytes) -> None:
        """Removes a row; one that is not there stays so."""
        self._change(RowChange(checked_key(key), None))

    def scan(
        self,
        prefix: bytes = b"",
        start: bytes | None = None,
        stop: bytes | None = None,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, T]]:
        """Yields keys and values in the order of keys, as one snapshot sees them.

        The keys begin with `prefix`, and lie from `start` on and before `stop`. The
        snapshot is that of the block, or one of the scan's own: then end the scan, or
        close it, before long, as it holds a transaction open.
        """
        keys, most = checked_range(prefix, start, stop), checked_row_limit(limit)
        return islice(chain.from_iterable(self._pages(keys)), most)

    def items(self) -> Iterator[tuple[bytes, T]]:
        """Yields all keys and values; see `scan`."""
        return self.scan()

    def _pages(self, keys: KeyRange) -> Iterator[Iterable[tuple[bytes, Any]]]:
        """Yields pages of rows; a caller goes through them faster than row by row."""
        context = current_transaction(self._coordinator)
        if context is not None:
            snapshot = context.snapshot_for("scan")
            changes = self._joined(context).seen_within(keys)
            yield from self._seen(keys, snapshot, changes)
            return
        own = self._coordinator.start_short()
        try:
            yield from self._seen(keys, own, {})
        finally:
            self._coordinator.abort(own)

    def _seen(
        self, keys: KeyRange, snapshot: Transaction, changes: dict[bytes, RowChange]
    ) -> Iterator[Iterable[tuple[bytes, Any]]]:
        pages: Iterator[Iterable[tuple[bytes, bytes]]] = self._stored(keys, snapshot)
        if changes:
            pages = iter([_merged(chain.from_iterable(pages), changes)])
        if self._decode is None:
            yield from pages
            return
        for page in pages:
            yield ((key, self._read(value)) for key, value in page)

    def _stored(
        self, keys: KeyRange, snapshot: Transaction
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        start = keys.start
        while True:
            page = self._service.scan_rows(
                self.name,
                prefix=keys.prefix,
                start=start,
                stop=keys.stop,
                transaction=snapshot,
            )
            yield page.rows
            if page.next is None:
                return
            start = page.next

    @briefly
    def _change(self, change: RowChange) -> None:
        if self._request_bytes is not None:
            check_row_size(change, limit_bytes=self._request_bytes)
        context = current_transaction(self._coordinator)
        if context is not None:
            self._joined(context).change(change)
            return
        with TransactionContext(self._coordinator) as own:
            self._joined(own).change(change)

    def _joined(self, context: TransactionContext) -> TableChanges:
        return context.joined(self._key, self._make)

    def _make(self) -> TableChanges:
        return TableChanges(
            self._service,
            self.name,
            conflicts=self._conflicts,
            shares_journal=self._shares_journal,
            request_bytes=self._request_bytes,
        )

    def _read(self, value: bytes | None) -> T | None:
        if value is None or self._decode is None:
            return cast("T | None", value)
        return self._decode(value)

    def __repr__(self) -> str:
        return f"<Table {self.name}>"


def _merged(
    rows: Iterator[tuple[bytes, bytes]], changes: dict[bytes, RowChange]
) -> Iterator[tuple[bytes, bytes]]:
    """Yields rows with changes in their places; a change hides the row of its key."""
    waiting = sorted(changes.values(), reverse=True)
    for key, value in rows:
        while waiting and waiting[-1].key < key:
            yield from _kept(waiting.pop())
        if key in changes:
            continue
        yield key, value
    while waiting:
        yield from _kept(waiting.pop())


def _kept(change: RowChange) -> Iterator[tuple[bytes, bytes]]:
    if change.value is not None:
        yield change.key, change.value
