"""The ports under a durable table, and those that only some tables offer."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from coordinator.embedded.journal import Journal
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.metrics import WriteMetrics
from txaware.model.shards import HOME
from txaware.store.columns import negated
from txaware.store.hbase.connections import HBaseConnections


class RowBatch(Protocol):
    """Writes that become part of the store together."""

    def put(self, key: bytes, value: bytes) -> None:
        """Sets the value of a key."""

    def delete(self, key: bytes) -> None:
        """Removes a row."""

    def write(self) -> None:
        """Writes the batch; all of it is kept and can be read when this returns.

        After any error it is unknown whether the batch was written, until `reopen`.
        """


class RowStore(Protocol):
    """The store under a `BatchWriter`: many threads read, one at a time writes."""

    name: str

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes,
        stop: bytes | None,
        limit: int,
        max_bytes: int,
        reverse: bool,
    ) -> list[Row]:
        """Returns rows of one consistent view; see `OrderedTable.scan`."""

    @property
    def last_batch(self) -> int:
        """The highest batch number that the store knows; 0 before the first.

        That is the number of its last batch, or of the last batch with an entry of the
        journal. It is right from `reopen` on until a write fails.
        """

    def batch(self, number: int) -> RowBatch:
        """Begins a batch to fill, with a number above that of the last one."""

    def has_batch(self, number: int, writes: Sequence[Write]) -> bool:
        """Tells whether a batch that failed is in the store; called after `reopen`.

        `writes` are all writes of that batch.
        """

    def damage(self, error: Exception) -> str | None:
        """Returns the damage that failed a write, and what helps; None without any."""

    def compact(self, start: bytes, stop: bytes) -> None:
        """Frees the space of deleted rows; see `OrderedTable.compact`."""

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about the size of a range; see `OrderedTable.size_bytes`."""

    def reopen(self) -> None:
        """Settles the outcome of a write that failed; raises if it cannot."""

    def status(self) -> str:
        """Returns at once `"OK"`, or a sentence about what is known to be wrong."""

    def close(self) -> None:
        """Gives the store back."""


@runtime_checkable
class KeepsJournal(Protocol):
    """A table that outlives the process, with the journal of its coordinator."""

    @property
    def journal(self) -> Journal:
        """The journal, whose records go into the same batches as rows."""

    def write_metrics(self) -> WriteMetrics:
        """Returns the figures about the batches."""


@runtime_checkable
class HasShards(Protocol):
    """A table of several stores, each with rows of some partitions."""

    @property
    def shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are here."""

    def store_of(self, number: int) -> OrderedTable:
        """Returns the table of a shard; raises `ShardAway` where it is elsewhere."""

    def rows_of(self, number: int) -> OrderedTable:
        """Returns the same, or what reads the rows of a shard that is elsewhere."""


def numbered_stores(table: OrderedTable) -> list[tuple[int, OrderedTable]]:
    """Returns the tables of all shards that are here, with their numbers."""
    if isinstance(table, HasShards):
        return [(number, table.store_of(number)) for number in table.shards]
    return [(HOME, table)]


def stores_of(table: OrderedTable) -> list[OrderedTable]:
    """Returns the tables of all shards that are here, or the only one."""
    return [store for _, store in numbered_stores(table)]


def is_here(table: OrderedTable, number: int) -> bool:
    """Tells whether the rows of a shard are in this process."""
    return not isinstance(table, HasShards) or number in table.shards


def table_of(table: OrderedTable, number: int) -> OrderedTable:
    """Returns the table of a shard, which is the table itself where it is alone.

    Raises `ShardAway` where the shard is elsewhere, and cannot be read from here.
    """
    return table.rows_of(number) if isinstance(table, HasShards) else table


def journaled(table: object) -> KeepsJournal | None:
    """Returns the table where it keeps its coordinator's journal, as its class says.

    One of several stores does where its first one does.
    """
    first = table.store_of(HOME) if isinstance(table, HasShards) else table
    if isinstance(first, KeepsJournal) and isinstance(table, KeepsJournal):
        return table
    return None


@runtime_checkable
class FindsLast(Protocol):
    """A table that finds the last row of a few with one look, and no more than that."""

    def last_value(self, prefix: bytes, stop: bytes) -> bytes | None:
        """Returns the value of the last row with that prefix and below `stop`.

        None says nothing: a scan tells whether there is none.
        """


@runtime_checkable
class InDirectory(Protocol):
    """A table whose rows are in a directory, where its server leaves its address."""

    @property
    def directory(self) -> Path:
        """The directory, which no other process may use meanwhile."""


@runtime_checkable
class InHBase(Protocol):
    """A table whose rows are in HBase, where others may lie beside it."""

    @property
    def connections(self) -> HBaseConnections:
        """The connections to its rows."""


@runtime_checkable
class Announces(Protocol):
    """A table that many hosts reach, and that leads them to the one that owns it."""

    def announce(self, url: str | None) -> None:
        """Tells others where this process serves the store; None takes that back."""

    def require_owned(self) -> None:
        """Raises where another process is known to have the store."""

    def look_owned(self) -> None:
        """Finds out whether another process has the store, and raises then."""


class View(Protocol):
    """All rows as they were at one moment, whatever is written meanwhile."""

    def pieces(self, piece_bytes: int) -> Iterator[list[Row]]:
        """Reads all rows in order, about `piece_bytes` of them at a time."""

    def part(self, key: bytes) -> float:
        """Returns about which part of all rows precedes a key."""

    @property
    def size_bytes(self) -> int:
        """The size of all rows, about."""

    def close(self) -> None:
        """Ends the view, so that old rows can go; a second close does nothing."""


@runtime_checkable
class HasView(Protocol):
    """A table that a backup is made of, or that says what there is instead."""

    def view(self) -> View:
        """Returns a view of the rows on disk; `BadRequest` says what else helps."""


class Notes(Protocol):
    """The findings of a check, in the making."""

    counts: Counter[str]

    def problem(self, kind: str, key: bytes, sentence: str) -> None:
        """Notes that something is wrong with a row."""


class CheckedRows(Protocol):
    """The part of a table that a check needs; every `OrderedTable` has it."""

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key, or None."""

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
    ) -> list[Row]:
        """Returns rows whose key begins with `prefix`, which is left off, in order."""


@runtime_checkable
class ChecksKeys(Protocol):
    """A table whose store can break in ways that its rows do not show."""

    def checked_keys(
        self, notes: Notes, tags: Iterable[bytes], go_on: Callable[[], object]
    ) -> CheckedRows | None:
        """Notes what is wrong with the keys; returns the rows to check after that.

        `tags` are the first bytes of all keys of ours. `go_on` is called now and then,
        and may raise. None means that nothing else can be read.
        """


def up_to(rows: list[Row], max_bytes: int) -> list[Row]:
    """Returns the first rows, up to the row that brings their values to `max_bytes`."""
    size = 0
    for at, (_, value) in enumerate(rows):
        size += len(value)
        if size >= max_bytes:
            return rows[: at + 1]
    return rows


PIECE_ROWS = 1000


def pieces(
    table: OrderedTable,
    prefix: bytes,
    *,
    start: bytes = b"",
    stop: bytes | None = None,
    limit: int = PIECE_ROWS,
) -> Iterator[list[Row]]:
    """Reads all rows of a range, a bounded number at a time.

    Each piece is a view of its own. The rows of a piece may be changed or deleted
    before the next one is asked for.
    """
    while rows := table.scan(prefix, start=start, stop=stop, limit=limit):
        yield rows
        start = rows[-1][0] + b"\0"


def negate(table: OrderedTable, rows: Iterable[Row]) -> None:
    """Marks rows, named by whole keys, as rolled back; on disk unless they are held."""
    marked = [(key, negated(value)) for key, value in rows]
    writes: list[Write] = [
        (key, value) for key, value in marked if not table.replace_held(key, value)
    ]
    if writes:
        table.submit(writes)()
