"""The port for the embedded coordinator's records, and a journal that keeps nothing."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from coordinator.embedded.group_commit import End
from coordinator.embedded.history import History
from coordinator.embedded.lives import NO_PLACE
from coordinator.embedded.records import Record


class Journal(Protocol):
    """A journal that keeps the coordinator's records, for a restart to read.

    Any number of threads may call. The coordinator calls `note` and `submit` under its
    lock, so notes come in the order of their pointers, and everything else outside it.
    """

    @property
    def place(self) -> bytes:
        """The place where the journal is kept: a copy of it has another one.

        It has 16 bytes, all of them 0 where nobody can tell.
        """

    @property
    def history(self) -> History:
        """The sum of the records on disk; read once, before anything is written."""

    def submit(self, *records: Record, end: End | None = None) -> Callable[[], None]:
        """Puts records into the next batch; returns a function to wait like `append`.

        Call that function soon: the batch may be this thread's to write, and all others
        in it wait until then.

        When the result is known, some thread tells it to `end`, before anybody returns
        from waiting. It does so also when the waiting thread was interrupted. It does
        no harm to tell it again.

        A journal in a store also takes `rows` of that store, which the batch keeps with
        the records: both or neither. See `GroupCommit`.
        """

    def hand_over(
        self, rows: Sequence[Any], end: End, records: tuple[Record, ...] = ()
    ) -> Callable[[], None]:
        """Puts rows and records into the next batch, which another thread writes.

        Returns a function that does what is left to be done at once, outside of locks.
        Only a journal in a store takes rows.
        """

    def append(self, *records: Record) -> None:
        """Returns when the records, and every note made before, are on disk.

        Raises `NotWritten` when they are not and never will be. Any other error leaves
        it open until `holds_commit` is asked.
        """

    def note(self, transaction_id: int, record: Record) -> None:
        """Keeps a record for the next batch that is synced.

        A store that keeps the journal beside its rows also puts it into every batch
        with a row of that transaction. The note of an abort replaces earlier notes that
        no batch has carried yet.
        """

    def sync(self, transaction_id: int) -> None:
        """Returns when all notes of a transaction are on disk; raises like `append`."""

    def holds_commit(self, transaction_id: int) -> bool:
        """Tells whether a commit is on disk, after an error left that open.

        Raises `Unavailable`, and not `NotWritten`, as long as that cannot be told.
        """

    def holds_prepared(self, transaction_id: int) -> bool:
        """Tells whether it is prepared on disk, as `holds_commit` does of a commit."""

    def newest_format(self) -> Sequence[Any]:
        """Returns rows that keep earlier versions away; nothing where none is needed.

        They go with records that an earlier version does not know.
        """

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""

    def close(self) -> None:
        """Releases files and locks; records that were only noted are lost."""


class MemoryJournal:
    """A journal that keeps nothing, for a coordinator that ends with its process."""

    place = NO_PLACE

    def __init__(self) -> None:
        self.history = History()
        self._ends: deque[End] = deque()
        self._telling = threading.Lock()

    def submit(self, *records: Record, end: End | None = None) -> Callable[[], None]:
        """Keeps only the end; no interrupt comes between the two statements."""
        if end is not None:
            end.submitted = True
            self._ends.append(end)
        return self.append

    def hand_over(
        self, rows: Sequence[Any], end: End, records: tuple[Record, ...] = ()
    ) -> Callable[[], None]:
        """Keeps only the end, which is told by what this returns."""
        return self.submit(*records, end=end)

    def append(self, *records: Record) -> None:
        """Tells the ends that all went well; an interrupted one is told again."""
        with self._telling:
            while self._ends:
                self._ends[0].notify(None)
                self._ends.popleft()

    def note(self, transaction_id: int, record: Record) -> None:
        """Does nothing, since there is no batch."""

    def sync(self, transaction_id: int) -> None:
        """Does nothing, since there is no disk to wait for."""

    def holds_commit(self, transaction_id: int) -> bool:
        """Returns False: no append ever failed here, so none was left open."""
        return False

    def holds_prepared(self, transaction_id: int) -> bool:
        """Returns False, as `holds_commit`."""
        return False

    def newest_format(self) -> Sequence[Any]:
        """Returns nothing, since nothing is kept."""
        return ()

    def status(self) -> str:
        """Returns `"OK"`, since nothing can go wrong."""
        return "OK"

    def close(self) -> None:
        """Does nothing, since there is nothing to release."""
