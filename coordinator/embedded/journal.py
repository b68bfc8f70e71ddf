"""Where the embedded coordinator keeps its records: a port, and one that forgets."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from coordinator.embedded.group_commit import End
from coordinator.embedded.history import History
from coordinator.embedded.records import Record


class Journal(Protocol):
    """Keeps the coordinator's records, for a restart to read.

    Any number of threads may call. The coordinator calls `note` and `submit` under its
    lock, so notes come in the order of their pointers, and everything else outside it.
    """

    @property
    def history(self) -> History:
        """What the records on disk add up to; read once, before anything is written."""

    def submit(self, *records: Record, end: End | None = None) -> Callable[[], None]:
        """Puts records into the next batch; what it answers waits for that as `append`.

        When it is known how that ended, `end` is told by one thread or another, before
        anybody returns from waiting, and also when the one who waits was interrupted.
        It does no harm to tell it again.
        """

    def append(self, *records: Record) -> None:
        """Returns when the records, and every note made before, are on disk.

        Raises `NotWritten` when they are not and never will be. Any other error leaves
        it open until `holds_commit` is asked.
        """

    def note(self, transaction_id: int, record: Record) -> None:
        """Keeps a record for the next batch that is synced.

        A store that keeps the journal beside its rows puts it also into every batch
        with a row of that transaction. The note of an abort replaces the earlier ones
        where no batch carried them yet.
        """

    def sync(self, transaction_id: int) -> None:
        """Returns when all notes of a transaction are on disk; raises like `append`."""

    def holds_commit(self, transaction_id: int) -> bool:
        """Whether the commit of a transaction is on disk, after an error left it open.

        Raises `Unavailable`, and not `NotWritten`, as long as that cannot be told.
        """

    def status(self) -> str:
        """`"OK"`, or a sentence about what is wrong."""

    def close(self) -> None:
        """Gives back files and locks; what was only noted is lost."""


class MemoryJournal:
    """Keeps nothing, for a coordinator that ends with its process."""

    def __init__(self) -> None:
        self.history = History()
        self._ends: deque[End] = deque()
        self._telling = threading.Lock()

    def submit(self, *records: Record, end: End | None = None) -> Callable[[], None]:
        """There is no disk; no interrupt comes between the two statements."""
        if end is not None:
            end.submitted = True
            self._ends.append(end)
        return self.append

    def append(self, *records: Record) -> None:
        """Tells the ends; one that is interrupted on the way is told again."""
        with self._telling:
            while self._ends:
                self._ends[0].then(None)
                self._ends.popleft()

    def note(self, transaction_id: int, record: Record) -> None:
        """There is no batch to wait for."""

    def sync(self, transaction_id: int) -> None:
        """There is no disk to wait for."""

    def holds_commit(self, transaction_id: int) -> bool:
        """No append ever failed here, so none was left open."""
        return False

    def status(self) -> str:
        """Nothing can go wrong."""
        return "OK"

    def close(self) -> None:
        """There is nothing to give back."""
