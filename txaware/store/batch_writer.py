"""Batches: rows, those held until a commit, records and the time, written together."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from coordinator.embedded.history import History
from coordinator.embedded.records import (
    Committed,
    Invalidated,
    Prepared,
    Record,
    decode_records,
    encode_records,
)
from coordinator.errors import JournalCorrupted, NotWritten, Unavailable
from txaware.errors import StoreCorrupted
from txaware.model.clock import StoreClock
from txaware.model.interfaces import Row, Write
from txaware.model.metrics import WriteCounters
from txaware.store.damage import Damaged, DamagedNotWritten, is_damage, said, way_out
from txaware.store.interfaces import RowStore
from txaware.store.keys import JOURNAL, STATE, row_prefix

JOURNAL_BYTES = 1 << 20
READ_ROWS = 10_000
TIME = STATE + b"time"

HeldRows = dict[int, list[Row]]

# The ended transactions that are remembered; late rows of theirs are released at once.
REMEMBERED = 1000


class UncommittedRows:
    """Rows in memory that can be read at once, and stay until a batch has carried them.

    The rows of a committed transaction go into the batch with its commit, as they are
    then. Those of a transaction that ended otherwise are released, and go with any
    later batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the beginning of their keys: a poll then finds those of its topic at once.
        self._groups: dict[bytes, dict[bytes, bytes]] = {}
        self._keys: dict[int, list[bytes]] = {}
        self._bytes: dict[int, int] = {}
        self._released: set[int] = set()
        # The transactions that ended last: a write under way may still bring rows.
        self._ended: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._groups or self._keys)

    def hold(self, pointer: int, writes: Sequence[Write], limit_bytes: int) -> bool:
        """Takes rows; False, and none taken, if they are too many for one transaction.

        The rows that are released and not yet carried count as one transaction too.
        """
        size = sum([len(key) + len(value or b"") for key, value in writes])
        with self._lock:
            held_bytes = self._bytes.get(pointer, 0) + size
            if held_bytes > limit_bytes or (
                self._released and self._released_bytes() > limit_bytes
            ):
                # Held values of these rows would otherwise hide those written now.
                for key, _ in writes:
                    self._forget(key)
                return False
            self._bytes[pointer] = held_bytes
            self._keys.setdefault(pointer, []).extend([key for key, _ in writes])
            if pointer in self._ended:
                self._released.add(pointer)
            groups = self._groups
            for key, value in writes:
                groups.setdefault(row_prefix(key), {})[key] = value or b""
            return True

    def _released_bytes(self) -> int:
        return sum(self._bytes.get(pointer, 0) for pointer in self._released)

    def replace(self, key: bytes, value: bytes) -> bool:
        """Changes a row; False if it is not held."""
        with self._lock:
            group = self._groups.get(row_prefix(key), {})
            if key not in group:
                return False
            group[key] = value
            return True

    def release(self, pointers: Iterable[int]) -> None:
        """Releases the rows of transactions that have ended without a commit."""
        with self._lock:
            for pointer in pointers:
                self._ended[pointer] = None
                if pointer in self._keys:
                    self._released.add(pointer)
            while len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def take(self, committed: Iterable[int]) -> HeldRows:
        """Returns the next batch's rows: those of these commits, and the released."""
        with self._lock:
            if not self._keys:
                return {}
            return {
                pointer: self._rows(self._keys[pointer])
                for pointer in (*committed, *self._released)
                if pointer in self._keys
            }

    def _rows(self, keys: Iterable[bytes]) -> list[Row]:
        rows = []
        for key in keys:
            value = self._groups.get(row_prefix(key), {}).get(key)
            if value is not None:
                rows.append((key, value))
        return rows

    def carried(self, held_rows: HeldRows) -> None:
        """Forgets the rows of a batch on disk, but for those changed since."""
        with self._lock:
            for pointer, rows in held_rows.items():
                keys = self._keys.get(pointer)
                if keys is None:
                    continue
                forgotten = sum([self._forget(key, value) for key, value in rows])
                # Nearly always all rows are forgotten, and there is no other to find.
                left = forgotten < len(keys) and [key for key, _ in self._rows(keys)]
                if left:
                    self._keys[pointer] = left
                    self._released.add(pointer)
                else:
                    del self._keys[pointer], self._bytes[pointer]
                    self._released.discard(pointer)

    def _forget(self, key: bytes, value: bytes | None = None) -> bool:
        """Forgets a row unless its value has changed; answers whether it did."""
        prefix = row_prefix(key)
        group = self._groups.get(prefix)
        if group is None or (value is not None and group.get(key) is not value):
            return False
        group.pop(key, None)
        if not group:
            del self._groups[prefix]
        return True

    def drop(self, keys: Iterable[bytes]) -> None:
        """Forgets rows that are deleted before a batch has carried them."""
        with self._lock:
            for key in keys:
                self._forget(key)

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a held row; None if it is not held."""
        group = self._groups.get(row_prefix(key))
        return group.get(key) if group is not None else None

    def scan(self, prefix: bytes, start: bytes, stop: bytes) -> list[Row]:
        """Returns the held rows of a range, in any order and without the prefix."""
        cut = len(prefix)
        with self._lock:
            return [
                (key[cut:], value)
                for group in self._groups_below(prefix)
                for key, value in group.items()
                if start <= key < stop
            ]

    def _groups_below(self, prefix: bytes) -> Iterator[dict[bytes, bytes]]:
        group = self._groups.get(prefix)
        if group is not None:
            yield group
            return
        for name, group in self._groups.items():
            if name.startswith(prefix) or prefix.startswith(name):
                yield group


class BatchWriter:
    """The `Destination` of a group commit, which writes its batches to a store.

    Each batch is synced and relies on no other. The outcome of a failed write is
    unknown. The database is then opened again, and says whether it has that batch.
    """

    def __init__(
        self,
        database: RowStore,
        held: UncommittedRows,
        *,
        journal_bytes: int = JOURNAL_BYTES,
    ) -> None:
        self.name = database.name
        self.clock: StoreClock | None = None
        self.history = History()
        self.counters = WriteCounters()
        self._database = database
        self._held = held
        self._journal_bytes = journal_bytes
        self._problem: str | None = None
        self._number = 0
        self._folded = False
        self._closed = False
        # The number, the writes and the held rows among them of a batch that failed.
        self._in_doubt: tuple[int, list[Write], HeldRows] | None = None
        self.kept = False
        self._read()

    @property
    def saved_ms(self) -> int | None:
        """The time that was saved last; None in a new database."""
        data = self._database.get(TIME)
        return None if data is None else int.from_bytes(data, "big")

    def take(self, records: list[Record]) -> HeldRows:
        """Takes the rows that records commit or prepare, and those that failed.

        It first releases the rows that records say are invalid.
        """
        committed: list[int] = []
        for record in records:
            if record.__class__ is Committed or record.__class__ is Prepared:
                committed += (record.transaction_id,)
            elif record.__class__ is Invalidated:
                self._held.release(record.pointers)
        return self._held.take(committed) if self._held else {}

    def write(
        self,
        records: list[Record],
        rows: list[Write],
        held_rows: HeldRows | None = None,
    ) -> None:
        """Writes records, rows and the rows that were taken; all are on disk then."""
        number, due_ms = self._number + 1, self.clock.due() if self.clock else None
        writes = [*rows]
        if held_rows:
            writes = [*chain.from_iterable(held_rows.values()), *rows]
        row_count = len(writes)
        if records:
            data = encode_records(records)
            writes.append((JOURNAL + number.to_bytes(8, "big"), data))
            self._size += len(data)
        if due_ms is not None:
            writes.append((TIME, due_ms.to_bytes(8, "big")))
        began_s = time.perf_counter()
        self._write(number, writes, held_rows or {})
        took_s = time.perf_counter() - began_s
        commits = 0
        for record in records:
            commits += record.__class__ is Committed
        self.counters.written(row_count, commits, took_s)
        if self.clock is not None and due_ms is not None:
            self.clock.saved(due_ms)

    def _write(self, number: int, writes: list[Write], held_rows: HeldRows) -> None:
        batch = self._database.batch(number)
        put = batch.put
        for key, value in writes:
            if value is None:
                batch.delete(key)
            else:
                put(key, value)
        try:
            batch.write()
        except Exception as error:
            damage = self._database.damage(error)
            self._problem = f"{self.name} could not be written: {damage or said(error)}"
            self.counters.failed()
            self._in_doubt = number, writes, held_rows
            try:
                self._repair()
            except OSError as later:
                kind = Damaged if damage or _found_damage(later) else Unavailable
                raise kind(f"{self._problem}; nor be opened again: {later}") from error
            if self._number != number:
                no = DamagedNotWritten if damage else NotWritten
                raise no(self._problem) from error
            self._folded = True
        else:
            self._number = number
            if held_rows:
                self._held.carried(held_rows)
        self._problem = None

    @property
    def broken(self) -> bool:
        """True when a failed write has to be repaired before the next one."""
        return self._in_doubt is not None

    def repair(self) -> None:
        """Opens the database again and reads what it holds; raises `OSError`."""
        if self._in_doubt is None and not self._closed:
            return
        try:
            self._repair()
        except OSError as error:
            if _found_damage(error):
                raise DamagedNotWritten(
                    f"{self.name} cannot be opened again: it is damaged ({error}). "
                    f"{way_out(self.name)}"
                ) from error
            raise

    def _repair(self) -> None:
        if self._closed:
            raise OSError(f"{self.name} is closed")
        if self._in_doubt is None:
            return
        number, writes, held_rows = self._in_doubt
        try:
            self._database.reopen()
            self._read()
            is_kept = self._database.has_batch(number, writes)
        except Exception as error:
            raise OSError(said(error)) from error
        if is_kept:
            self._number = number
            self._held.carried(held_rows)
        self._in_doubt, self.kept = None, is_kept

    def fold(self, records: list[Record]) -> None:
        """Adds written records to the history; shortens a journal that has grown."""
        if self._folded:  # a repair has read them with all others
            self._folded = False
            return
        for record in records:
            self.history.apply(record)
        if self._size > self._compact_at:
            self._compact()

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        found = self._database.status()
        return found if found != "OK" else self._problem or "OK"

    def close(self) -> None:
        """Writes the exact time, and gives the database back."""
        try:
            if self.clock is not None and not (self.broken or self._closed):
                time_ms = self.clock.next_ms.to_bytes(8, "big")
                self._write(self._number + 1, [(TIME, time_ms)], {})
        finally:
            self._closed = True
            self._database.close()

    def _read(self) -> None:
        """Reads the journal, from which the coordinator then recovers."""
        history, self._size = History(), 0
        for number, data in journal_entries(self._database):
            try:
                for record in decode_records(data):
                    history.apply(record)
            except JournalCorrupted as error:
                raise JournalCorrupted(
                    f"{self.name}, entry {number}: {error}"
                ) from error
            self._size += len(data)
        self._number = self._database.last_batch
        self.history = history
        self._set_limit()

    def _set_limit(self) -> None:
        shortest = len(encode_records(self.history.records()))
        self._compact_at = max(self._journal_bytes, 2 * shortest)

    def _compact(self) -> None:
        """Writes the history anew in place of all entries, in one batch."""
        number = self._number + 1
        writes: list[Write] = [
            (JOURNAL + earlier.to_bytes(8, "big"), None)
            for earlier, _ in journal_entries(self._database)
        ]
        data = encode_records(self.history.records())
        writes.append((JOURNAL + number.to_bytes(8, "big"), data))
        try:
            self._write(number, writes, {})
        except (NotWritten, Unavailable):
            return  # the entries stay, and status() says so
        self._folded = False  # no records of its own follow
        self._size = len(data)
        self._set_limit()


def journal_entries(database: RowStore) -> Iterable[tuple[int, bytes]]:
    """Reads all entries of the journal, in order."""
    start = b""
    while True:
        rows = database.scan(
            JOURNAL,
            start=start,
            stop=None,
            limit=READ_ROWS,
            max_bytes=64 << 20,
            reverse=False,
        )
        for key, data in rows:
            if len(key) != 8:
                raise StoreCorrupted(f"the journal has a key {key.hex()}")
            yield int.from_bytes(key, "big"), data
        if not rows:
            return
        start = rows[-1][0] + b"\0"


def _found_damage(error: OSError) -> bool:
    """Tells whether a repair failed because what it read is damaged."""
    cause = error.__cause__
    return isinstance(cause, StoreCorrupted | JournalCorrupted) or (
        cause is not None and is_damage(cause)
    )
