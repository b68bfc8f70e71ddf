"""Writes batches: rows, the coordinator's records and the time, in one."""

import time
from collections.abc import Iterable, Sequence

from coordinator.errors import JournalCorrupted, NotWritten, Unavailable
from coordinator.history import History
from coordinator.records import (
    Committed,
    Invalidated,
    Record,
    decode_records,
    encode_records,
)
from txaware.clock import StoreClock
from txaware.errors import StoreCorrupted
from txaware.interfaces import Write
from txaware.metrics import WriteCounters
from txaware.rowkeys import JOURNAL, STATE
from txaware.tables.held import HeldRows, Taken
from txaware.tables.row_store import RowBatch, RowStore

JOURNAL_BYTES = 1 << 20
READ_ROWS = 10_000
TIME = STATE + b"time"


class Batches:
    """The `Destination` of a group commit. Each batch is synced and relies on no other.

    What became of a failed write is unknown. The database is then opened again, and
    whether it holds the number of that batch says so.
    """

    def __init__(
        self,
        database: RowStore,
        held: HeldRows,
        *,
        journal_bytes: int = JOURNAL_BYTES,
    ) -> None:
        self.name = database.name
        self.broken = False
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
        self._in_doubt: Taken = {}
        self._read()

    @property
    def saved_ms(self) -> int | None:
        """The time that was saved last; None in a new database."""
        data = self._database.get(TIME)
        return None if data is None else int.from_bytes(data, "big")

    def write(self, records: list[Record], rows: list[Write]) -> None:
        """Returns when rows, records and the rows they commit are on disk."""
        committed = _committed(records, self._held)
        taken = self._held.take(committed)
        number, due_ms = self._number + 1, self.clock.due() if self.clock else None
        batch = self._database.batch(number)
        for held in taken.values():
            _fill(batch, held)
        _fill(batch, rows)
        if records:
            data = encode_records(records)
            batch.put(_journal_key(number), data)
            self._size += len(data)
        if due_ms is not None:
            batch.put(TIME, due_ms.to_bytes(8, "big"))
        began_s = time.perf_counter()
        self._write(batch, number, taken)
        took_s = time.perf_counter() - began_s
        row_count = len(rows) + sum(map(len, taken.values()))
        self.counters.written(row_count, len(committed), took_s)
        self._held.carried(taken)
        if self.clock is not None and due_ms is not None:
            self.clock.saved(due_ms)

    def _write(self, batch: RowBatch, number: int, taken: Taken) -> None:
        try:
            batch.write()
        except Exception as error:
            self._problem = f"{self.name} could not be written: {error}"
            self.counters.failed()
            self.broken, self._in_doubt = True, taken
            try:
                self.repair()
            except OSError as later:
                raise Unavailable(
                    f"{self._problem}; nor be opened again: {later}"
                ) from error
            if self._number != number:
                raise NotWritten(self._problem) from error
            self._folded = True
        self._number, self._problem = number, None

    def repair(self) -> None:
        """Opens the database again and reads what it holds; raises `OSError`."""
        if self._closed:
            raise OSError(f"{self.name} is closed")
        if not self.broken:
            return
        number = self._number
        try:
            self._database.reopen()
            self._read()
        except Exception as error:
            raise OSError(str(error)) from error
        if self._number != number:
            self._held.carried(self._in_doubt)
        self.broken, self._in_doubt = False, {}

    def fold(self, records: list[Record]) -> None:
        """Adds what was written to the history; shortens a journal that has grown."""
        if self._folded:  # it was read together with all others, after a failure
            self._folded = False
            return
        for record in records:
            self.history.apply(record)
        if self._size > self._compact_at:
            self._compact()

    def status(self) -> str:
        """`"OK"`, or a sentence about what is wrong."""
        return self._problem or "OK"

    def close(self) -> None:
        """Writes what no batch carried, and the exact time; gives the database back."""
        if self._closed:
            return
        try:
            if self.clock is not None and not self.broken:
                self._write_last(self.clock.next_ms)
        finally:
            self._closed = True
            self._database.close()

    def _write_last(self, next_ms: int) -> None:
        taken, number = self._held.take(()), self._number + 1
        batch = self._database.batch(number)
        for rows in taken.values():
            _fill(batch, rows)
        batch.put(TIME, next_ms.to_bytes(8, "big"))
        self._write(batch, number, taken)

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
        batch = self._database.batch(number)
        for earlier, _ in journal_entries(self._database):
            batch.delete(_journal_key(earlier))
        data = encode_records(self.history.records())
        batch.put(_journal_key(number), data)
        try:
            self._write(batch, number, {})
        except (NotWritten, Unavailable):
            return  # the entries stay, and status() says so
        self._folded = False  # no records of its own follow
        self._size = len(data)
        self._set_limit()


def journal_entries(database: RowStore) -> Iterable[tuple[int, bytes]]:
    """All entries of the journal, in order."""
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


def _committed(records: list[Record], held: HeldRows) -> list[int]:
    """Whose rows have to go along; those of others that ended are released."""
    committed = []
    for record in records:
        if isinstance(record, Committed):
            committed.append(record.transaction_id)
        elif isinstance(record, Invalidated):
            held.release(record.pointers)
    return committed


def _fill(batch: RowBatch, rows: Sequence[Write]) -> None:
    put = batch.put
    for key, value in rows:
        if value is None:
            batch.delete(key)
        else:
            put(key, value)


def _journal_key(number: int) -> bytes:
    return JOURNAL + number.to_bytes(8, "big")
