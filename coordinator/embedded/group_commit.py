"""A journal whose records and rows many threads write with one sync."""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol
from weakref import WeakSet

from coordinator.embedded.history import History
from coordinator.embedded.lives import NO_PLACE
from coordinator.embedded.records import Aborted, Committed, Record, Started
from coordinator.errors import NotWritten, Unavailable, closed
from coordinator.interfaces import OnWritten
from coordinator.threads import JoinableThread, turns


class End:
    """The step that follows submitted records, whether or not anybody still waits."""

    __slots__ = ("on_written", "submitted")

    def __init__(self, on_written: OnWritten) -> None:
        self.on_written = on_written
        self.submitted = False

    def notify(self, error: Unavailable | None) -> None:
        """Has it follow, and lets go of it, as it knows this end and the payloads.

        Such a ring would be there until the collector of garbage looks.
        """
        self.on_written(error)
        self.on_written = _has_followed


class Batch:
    """The records and rows that come together until a leader writes them.

    It also holds the result. At the end one waiting thread wakes the next: woken all at
    once they would only queue for the interpreter (measured: a sixth fewer commits from
    sixteen threads). The main thread is no link of that chain, since an interrupt may
    take it away.
    """

    def __init__(self) -> None:
        self.led = False
        self.handed_over = False
        self.on_disk = False
        self.error: Unavailable | None = None
        self.records: list[Record] = []
        self.rows: list[Any] = []
        self._ended = False
        self._ends: list[End] = []
        self.chain: deque[threading.Lock] = deque()
        self._alone: list[threading.Lock] = []

    def submit(
        self, records: tuple[Record, ...], end: End | None, rows: Sequence[Any] = ()
    ) -> None:
        """Adds records and rows; it calls nothing, so no interrupt comes within it."""
        if end is not None:
            end.submitted = True
            self._ends += (end,)
        self.records += records
        self.rows += rows

    def expect(self) -> threading.Lock:
        """Adds a link to the chain of waiting threads, and returns it for `wait`."""
        turn = _taken_lock()
        self.chain.append(turn)
        return turn

    def wait(self, turn: threading.Lock) -> None:
        """Returns when the batch has ended and it is the turn of this thread."""
        turn.acquire()
        self.wake_next()
        self.check()

    def expect_alone(self) -> "threading.Lock | None":
        """Returns a lock that is released at the end; None if that has passed."""
        if self._ended:
            return None
        turn = _taken_lock()
        self._alone.append(turn)
        return turn

    def notify_ends(self) -> None:
        """Tells every submitted `End` how the batch ended, in order of submission."""
        for end in self._ends:
            end.notify(self.error)

    def end(self) -> list[threading.Lock]:
        """Ends the waiting alone, and returns the locks of threads that do so."""
        self._ended = True
        return self._alone

    def wake_next(self) -> None:
        """Wakes the next thread of the chain."""
        if self.chain:
            self.chain.popleft().release()

    def check(self) -> None:
        """Raises, in one of its threads, the error that all of them have."""
        if self.error is not None:
            raise type(self.error)(str(self.error)) from self.error


def _has_followed(_: Unavailable | None) -> None:
    """Does nothing more."""


def _taken_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


Notes = dict[int, list[Record]]

# No call looks for a fork: the child closes the journals that it inherited.
_journals: "WeakSet[GroupCommit]" = WeakSet()


def _close_in_child() -> None:
    for journal in _journals:
        journal._closed = True


os.register_at_fork(after_in_child=_close_in_child)


def _nothing() -> None:
    """Has nothing left to do."""


class Destination(Protocol):
    """The place that batches are written to; only `status` is called at any time.

    All other calls come from one thread at a time.
    """

    name: str
    history: History

    @property
    def broken(self) -> bool:
        """True when a failed write has to be repaired before the next one."""

    @property
    def kept(self) -> bool:
        """True when the last repair found the batch in doubt to be on disk."""

    def repair(self) -> None:
        """Undoes or finds out what a failed write left.

        Raises `OSError`, or `NotWritten` when it is of no use to try again.
        """

    def take(self, records: list[Record]) -> Any:
        """Takes the data kept elsewhere for the batch with these records, for `write`.

        Called in one step with the choice of the records: nobody notes or submits any
        meanwhile, so it must not wait. It may be called again for the same records, if
        the write fails.
        """

    def write(self, records: list[Record], rows: list[Any], held_rows: Any) -> None:
        """Returns when all of it is on disk; `fold` the records then.

        Raises `NotWritten` when they are not and never will be, and `Unavailable` when
        that has to be left open until `repair`.
        """

    def fold(self, records: list[Record]) -> None:
        """Adds written records to the history."""

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""

    def close(self) -> None:
        """Releases everything; a second close does nothing, or what is left to do."""


class GroupCommit:
    """The port `Journal` over a destination, and rows that share its batches.

    The first thread that waits for a batch leads it: it waits for the batch before, and
    then writes all that has come together meanwhile. An interrupt (Ctrl-C) reaches only
    the main thread, so the main thread never leads. A thread of ours leads for it.
    """

    # What its program has closed with it, as errors name that.
    called = "the coordinator"

    def __init__(self, destination: Destination, *, place: bytes = NO_PLACE) -> None:
        self.place = place
        self._destination = destination
        self._queue = threading.Lock()  # guards the forming batch and the notes
        self._forming = Batch()
        self._notes: Notes = {}
        self._carried: Notes = {}
        # The notes of a batch that may be on disk or not, until a repair tells.
        self._doubtful: Notes | None = None
        self._writing = threading.Lock()  # guards the file
        self._closed = False
        self._owner = os.getpid()
        _journals.add(self)
        self._main_thread = threading.main_thread().ident
        self._to_lead: SimpleQueue[Batch | None] = SimpleQueue()
        self._leader = JoinableThread(
            target=self._lead_for_main, name="txaware-journal", daemon=True
        )
        self._leader.start()

    @property
    def history(self) -> History:
        """The sum of the records on disk."""
        return self._destination.history

    def submit(
        self, *records: Record, end: End | None = None, rows: Sequence[Any] = ()
    ) -> Callable[[], None]:
        """Puts records and rows into the next batch; returns a function that waits."""
        if self._closed:
            self._require_open()
        if threading.get_ident() == self._main_thread:
            with self._queue:
                batch = self._forming
                batch.submit(records, end, rows)
            return partial(self._wait_alone, batch)
        with self._queue:
            batch = self._forming
            batch.submit(records, end, rows)
            if batch.led:
                return partial(batch.wait, batch.expect())
            batch.led = True
        return partial(self._lead, batch)

    def hand_over(
        self, rows: Sequence[Any], end: End, records: tuple[Record, ...] = ()
    ) -> Callable[[], None]:
        """Puts rows and records into the next batch; `end` is told the result.

        Returns a function that does not wait, and has nothing left to do.

        It is for callers that must not wait, such as an event loop. A thread of ours
        leads the batch; where `turns` are set, once the turn of the caller is over.
        """
        if self._closed:
            self._require_open()
        with self._queue:
            batch = self._forming
            batch.submit(records, end, rows)
            if batch.led or batch.handed_over:
                return _nothing
            batch.handed_over = True
        if turns.call_soon is None:
            self._have_led(batch)
        else:
            turns.call_soon(self._have_led, batch)
        return _nothing

    def put(self, rows: Sequence[Any]) -> None:
        """Puts rows into the next batch, whenever somebody waits for that.

        They are not in an earlier batch than the notes made before, nor in a later one.
        """
        if self._closed:
            self._require_open()
        with self._queue:
            self._forming.submit((), None, rows)

    def append(self, *records: Record) -> None:
        """Returns when the records, and every note made before, are on disk."""
        self.submit(*records)()

    def note(self, transaction_id: int, record: Record) -> None:
        """Keeps a record for the next batch."""
        with self._queue:
            notes = self._notes
            if transaction_id not in notes or (
                # Only the abort is kept, which tells it from a commit.
                record.__class__ is Aborted
                and notes[transaction_id][0].__class__ is Started
            ):
                notes[transaction_id] = [record]
            else:
                notes[transaction_id].append(record)
        if record.__class__ is not Started:  # it nearly always is one
            self._noted(transaction_id, record)

    def _noted(self, transaction_id: int, record: Record) -> None:
        """Does nothing; a journal in a store has rows that depend on some records."""

    def sync(self, transaction_id: int) -> None:
        """Returns when every note of that transaction is on disk."""
        with self._queue:
            waiting = transaction_id in self._notes or transaction_id in self._carried
            waiting = waiting or transaction_id in (self._doubtful or ())
        if waiting:
            self.append()

    def holds_commit(self, transaction_id: int) -> bool:
        """Writes all that is waiting, and tells whether that commit is on disk."""
        self._settle()
        with self._writing:
            history = self.history
            return not (
                transaction_id in history.open or transaction_id in history.invalid
            )

    def holds_prepared(self, transaction_id: int) -> bool:
        """Writes all that is waiting, and tells whether it is prepared on disk."""
        self._settle()
        with self._writing:
            return transaction_id in self.history.prepared

    def _settle(self) -> None:
        """Returns when it is known what a failed write has left on disk."""
        try:
            self.append()
        except NotWritten as error:
            raise Unavailable(str(error)) from error

    def newest_format(self) -> Sequence[Any]:
        """Returns nothing: records of a kind that is not known are refused anyway."""
        return ()

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return self._destination.status()

    def close(self) -> None:
        """Closes the destination; in a forked child it does nothing.

        A second close does nothing, or finishes what an interrupt left.
        """
        if os.getpid() != self._owner:
            return
        self._closed = True
        if self._leader.is_alive():
            with self._queue:
                left = self._forming
            if left.handed_over:  # by a turn that is not over
                self._to_lead.put(left)
            self._to_lead.put(None)
        self._leader.join()
        with self._writing:
            self._destination.close()

    def _require_open(self) -> None:
        if os.getpid() != self._owner:
            raise Unavailable(
                f"this journal belongs to process {self._owner}, which forked; a "
                f"directory has one owner at a time"
            )
        if self._closed:
            raise closed(self.called)

    def _wait_alone(self, batch: Batch) -> None:
        """Has the main thread wait, in no chain, for a batch that another leads."""
        with self._queue:
            turn = batch.expect_alone()
        if turn is not None:
            self._have_led(batch)
            turn.acquire()
        batch.check()

    def _have_led(self, batch: Batch) -> None:
        """Has the thread of ours lead a batch."""
        self._to_lead.put(batch)
        if self._closed:  # that thread may have ended
            self._to_lead.put(None)
            self._lead_for_main()

    def _lead_for_main(self) -> None:
        """Leads the batches that the main thread waits for, until `close`."""
        while (batch := self._to_lead.get()) is not None:
            with self._queue:
                leads, batch.led = not batch.led, True
            if leads:
                with suppress(Exception):  # those who wait for the batch are told
                    self._lead(batch)

    def _lead(self, batch: Batch) -> None:
        """Writes the batch, tells what follows from it, and wakes its threads.

        Raises its error, as waiting for it would.
        """
        try:
            with self._writing:
                try:
                    self._write_with_notes(batch)
                finally:
                    # Ends are told before the next batch is written, so that they are
                    # told in the order in which they were submitted.
                    batch.notify_ends()
        finally:
            with self._queue:
                alone = batch.end()
            for turn in alone:
                turn.release()
            if batch.chain:
                batch.wake_next()
        if batch.error is not None:
            batch.check()

    def _write_with_notes(self, batch: Batch) -> None:
        """Writes the batch and the waiting notes; the batch then holds the result."""
        try:
            try:
                self._destination.repair()
            except OSError as error:
                name = self._destination.name
                raise NotWritten(f"{name} is not to be written: {error}") from error
            finally:  # if a repair takes long, others may join the batch
                records, held_rows = self._take(batch)
            self._write(batch, records, held_rows)
        except Unavailable as error:
            batch.error = error
        except BaseException as error:
            if not batch.on_disk:
                kind = Unavailable if self._destination.broken else NotWritten
                batch.error = kind(
                    f"{self._destination.name} was not written: {error!r}"
                )
            raise
        finally:
            if batch.on_disk:
                self._carried = {}
            else:
                self._take_back_notes()

    def _take(self, batch: Batch) -> tuple[list[Record], Any]:
        """Fixes in one step the records, notes and rows that the batch carries.

        Rows taken later than the notes could belong to a transaction whose start is in
        no batch yet. After a crash they would look committed.
        """
        with self._queue:
            if self._doubtful is not None and not self._destination.broken:
                if not self._destination.kept:
                    self._give_back(self._doubtful)
                self._doubtful = None
            self._forming = Batch()
            self._carried, self._notes = self._notes, {}
            records = batch.records
            return records, self._destination.take(records)

    def _take_back_notes(self) -> None:
        """Takes back the notes of the last batch, which failed.

        Those of a batch that may be on disk wait for the repair. A start that came
        behind its commit in the journal would undo it.
        """
        with self._queue:
            carried, self._carried = self._carried, {}
            if self._doubtful is None and self._destination.broken:
                self._doubtful = carried
            else:
                self._give_back(carried)

    def _give_back(self, earlier: Notes) -> None:
        """Puts notes before those that were made since."""
        for transaction_id, notes in self._notes.items():
            earlier.setdefault(transaction_id, []).extend(notes)
        self._notes = earlier

    def _write(self, batch: Batch, new: list[Record], held_rows: Any) -> None:
        # The start of a transaction need not be written together with its commit.
        over: dict[int, Committed] = {}
        for record in new:
            if record.__class__ is Committed:
                over[record.transaction_id] = record
        records: list[Record] = []
        for transaction_id, notes in self._carried.items():
            is_over = transaction_id in over and notes[0].__class__ is Started
            records += notes[1:] if is_over else notes
        records += new
        rows = batch.rows
        if records or rows or held_rows:
            self._destination.write(records, rows, held_rows)
        batch.on_disk = True
        self._destination.fold(records)
