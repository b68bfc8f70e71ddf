"""The records and rows that are written with one sync, and the threads that wait."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from coordinator.embedded.records import Record
from coordinator.errors import Unavailable

# Called when a batch has ended, with its error, or None when the records are on disk.
Then = Callable[[Unavailable | None], None]


class End:
    """The step that follows submitted records, whether or not anybody still waits."""

    __slots__ = ("submitted", "then")

    def __init__(self, then: Then) -> None:
        self.then = then
        self.submitted = False

    def tell(self, error: Unavailable | None) -> None:
        """Has it follow, and lets go of it, as it knows this end and the payloads.

        Such a ring would be there until the collector of garbage looks.
        """
        self.then(error)
        self.then = _has_followed


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

    def tell_ends(self) -> None:
        """Tells every submitted `End` how the batch ended, in order of submission."""
        for end in self._ends:
            end.tell(self.error)

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
