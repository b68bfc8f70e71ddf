"""Batches: rows, the coordinator's records and the time are written together."""

import time
from collections.abc import Iterable
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
from txaware.model.interfaces import Write
from txaware.model.metrics import WriteCounters
from txaware.store.damage import Damaged, DamagedNotWritten, is_damage, said, way_out
from txaware.store.interfaces import RowStore
from txaware.store.keys import JOURNAL, STATE
from txaware.store.uncommitted_rows import Taken, UncommittedRows

JOURNAL_BYTES = 1 << 20
READ_ROWS = 10_000
TIME = STATE + b"time"


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
        self._in_doubt: tuple[int, list[Write], Taken] | None = None
        self.kept = False
        self._read()

    @property
    def saved_ms(self) -> int | None:
        """The time that was saved last; None in a new database."""
        data = self._database.get(TIME)
        return None if data is None else int.from_bytes(data, "big")

    def take(self, records: list[Record]) -> Taken:
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
        self, records: list[Record], rows: list[Write], taken: Taken | None = None
    ) -> None:
        """Writes records, rows and the rows that were taken; all are on disk then."""
        number, due_ms = self._number + 1, self.clock.due() if self.clock else None
        writes = [*rows]
        if taken:
            writes = [*chain.from_iterable(taken.values()), *rows]
        row_count = len(writes)
        if records:
            data = encode_records(records)
            writes.append((JOURNAL + number.to_bytes(8, "big"), data))
            self._size += len(data)
        if due_ms is not None:
            writes.append((TIME, due_ms.to_bytes(8, "big")))
        began_s = time.perf_counter()
        self._write(number, writes, taken or {})
        took_s = time.perf_counter() - began_s
        commits = 0
        for record in records:
            commits += record.__class__ is Committed
        self.counters.written(row_count, commits, took_s)
        if self.clock is not None and due_ms is not None:
            self.clock.saved(due_ms)

    def _write(self, number: int, writes: list[Write], taken: Taken) -> None:
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
            self._in_doubt = number, writes, taken
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
            if taken:
                self._held.carried(taken)
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
        number, writes, taken = self._in_doubt
        try:
            self._database.reopen()
            self._read()
            is_kept = self._database.has_batch(number, writes)
        except Exception as error:
            raise OSError(said(error)) from error
        if is_kept:
            self._number = number
            self._held.carried(taken)
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
