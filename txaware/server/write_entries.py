"""Writes under way at other stores, which have entered the barrier of ours."""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.open_transactions import OpenTransaction
from coordinator.transaction import Transaction
from txaware.errors import TxAwareError, changed_nothing
from txaware.server.admission import Full
from txaware.service.wakeups import Signal

log = logging.getLogger(__name__)

# So many writes of one writer are under way at most; each has a thread there.
MOST_UNDER_WAY = 10_000
# Writers that have nothing under way are forgotten above this number, and ends that
# nobody fetches.
MOST_WRITERS, MOST_ENDS = 1000, 100_000

# A writer: the principal that it comes as, and the name that it has chosen.
WriterName = tuple[str, str]


class WholeConnection(Protocol):
    """A connection as a whole, which one client has and no other."""

    @property
    def is_closed(self) -> bool:
        """True when nothing can be sent any more."""


@attrs.define(eq=False)
class _Entry:
    """A write that is inside the barrier, and the connection that it came over."""

    line: WholeConnection | None
    inside: OpenTransaction | None = None


class _Writer:
    """A store elsewhere, from its opening on: its writes, and ends that it is told."""

    def __init__(self) -> None:
        self.since = secrets.token_hex(4)
        self.entries: dict[int, _Entry] = {}
        self.ended: deque[int] = deque()
        self.count = 0
        self.signal = Signal()

    def add(self, pointer: int) -> None:
        """Adds an end; where nobody fetches them, they are counted anew."""
        if len(self.ended) >= MOST_ENDS:
            self.ended.clear()
            self.since, self.count = secrets.token_hex(4), 0
        self.ended.append(pointer)
        self.count += 1
        self.signal.notify()

    def after(self, number: int) -> list[int]:
        """Returns the ends after that number of them, and forgets those before."""
        while self.ended and self.count - len(self.ended) < number:
            self.ended.popleft()
        return list(self.ended)


class WriteEntries:
    """Lets writes of other stores enter and leave, and tells these stores of ends.

    Where the connection of a writer is lost, nobody knows of its writes inside whether
    their rows are on disk, or will be: their transactions are invalidated. What came
    over HTTP has no connection of its own, and stays until its transaction times out.
    """

    def __init__(self, coordinator: EmbeddedCoordinator) -> None:
        self._coordinator = coordinator
        self._barrier = coordinator.barrier
        self._lock = threading.Lock()  # may be taken under that of the coordinator
        self._writers: dict[WriterName, _Writer] = {}
        # Those that are told of the end of a transaction.
        self._to_notify: dict[int, set[_Writer]] = {}
        # The writer of each shard that has greeted, and the numbers of our own writes.
        self._writer_of: dict[int, WriterName] = {}
        self._sent = count(-1, -1)
        # Of those: what may be done or not, of transactions that are not invalid.
        self._in_doubt: dict[tuple[WriterName, int], int] = {}
        self._hearing = threading.Lock()
        self._hears_ends = False  # before the first write no end costs anybody more

    def has_entered(self, pointer: int) -> bool:
        """Tells whether a write of the transaction was let in: its start is on disk."""
        return pointer in self._to_notify

    def enter(
        self, name: WriterName, write: int, pointer: int, line: WholeConnection | None
    ) -> str:
        """Has a write enter, once the start of its transaction is on disk.

        It waits for nothing once another one of the transaction was let in. Returns
        what the writer's ends are counted since.
        """
        self._hear_ends()
        self.persist(pointer)
        return self._entered(name, write, pointer, line)

    def _entered(
        self, name: WriterName, write: int, pointer: int, line: WholeConnection | None
    ) -> str:
        entry = _Entry(line)
        with self._lock:
            writer = self._writer(name)
            if len(writer.entries) >= MOST_UNDER_WAY:
                raise Full(
                    f"{MOST_UNDER_WAY:,} writes of this store are under way, as many "
                    f"as there may be"
                )
        entry.inside = self._barrier.enter(pointer, entry)
        with self._lock:
            before = writer.entries.get(write)
            writer.entries[write] = entry
            self._to_notify.setdefault(pointer, set()).add(writer)
        if before is not None:  # it asks again
            self._leave(before)
        if not self._barrier.is_open(pointer):
            self._have_ended((pointer,))  # just now, and nobody was to be told
        if line is not None and line.is_closed:
            self.lost(line)
        return writer.since

    def persist(self, pointer: int) -> None:
        """Sees to it that a crash cannot forget that a transaction began.

        Rows of it could outlive the crash, and nobody would know whose they are.
        """
        tx = Transaction(pointer, 0, write_pointer=pointer)
        self._coordinator.note_writers(tx, ())
        self._coordinator.persist(tx)

    def _hear_ends(self) -> None:
        with self._hearing:
            if not self._hears_ends:
                self._barrier.on_end(self._have_ended)
                self._hears_ends = True

    @contextmanager
    def sending(self, shard: int, pointer: int) -> Iterator[str]:
        """Has a write be inside that this server sends to the writer of a shard.

        The start of its transaction is on disk by then, by `persist`. Yields what the
        writer's ends are counted since; empty where no writer is known for the shard,
        which then enters itself. If the block cannot say whether the
        write was done, it may still be: its transaction is invalidated.
        """
        name = self._writer_of.get(shard)
        if name is None:
            yield ""
            return
        number = next(self._sent)
        self._hear_ends()
        self._leave_ended()
        since = self._entered(name, number, pointer, None)
        try:
            yield since
        except BaseException as error:
            if not changed_nothing(error):
                self._in_doubt[name, number] = pointer
                self._coordinator.invalidate(pointer)  # else it stays until its end
                self._in_doubt.pop((name, number), None)
            self.leave(name, [number])
            raise
        self.leave(name, [number])

    def _leave_ended(self) -> None:
        """Has writes in doubt leave whose transactions have timed out by now."""
        for (name, number), pointer in [*self._in_doubt.items()]:
            if not self._barrier.is_open(pointer):
                self.leave(name, [number])
                self._in_doubt.pop((name, number), None)

    def greet(self, name: WriterName, shards: Iterable[int]) -> None:
        """Notes that nothing of these shards is under way that entered before."""
        listed = sorted(shards)
        log.info("shards %s have greeted", listed)
        self._writer_of.update(dict.fromkeys(listed, name))
        self._barrier.greet(map(shard_shown, listed))

    def leave(self, name: WriterName, writes: Iterable[int]) -> None:
        """Has writes leave; one that never entered, or is over, does so too."""
        with self._lock:
            writer = self._writer(name)
            found = [writer.entries.pop(write, None) for write in writes]
        for entry in found:
            if entry is not None:
                self._leave(entry)

    def signal(self, name: WriterName) -> Signal:
        """Returns the signal of the ends that a writer is told."""
        with self._lock:
            return self._writer(name).signal

    def ends(self, name: WriterName, since: str, after: int) -> tuple[str, list[int]]:
        """Returns the ends that a writer has not fetched, and what they count since.

        `after` are the number of those that it has fetched since `since`.
        """
        with self._lock:
            writer = self._writer(name)
        self._tidy(writer)
        with self._lock:
            return writer.since, writer.after(after if since == writer.since else 0)

    def lost(self, line: WholeConnection) -> None:
        """Ends the transactions of writes that are inside, as their line was lost."""
        with self._lock:
            found = [
                entry
                for writer in self._writers.values()
                for entry in writer.entries.values()
                if entry.line is line
            ]
        for pointer in sorted({_pointer(entry) for entry in found}):
            log.warning(
                "a store that wrote in transaction %d is gone: it is invalidated",
                pointer,
            )
            try:
                self._coordinator.invalidate(pointer)
            except TxAwareError as error:  # its end waits until it times out
                log.warning("transaction %d is not invalidated: %s", pointer, error)
        with self._lock:
            writers = list(self._writers.values())
        for writer in writers:
            self._tidy(writer)

    def _tidy(self, writer: _Writer) -> None:
        """Forgets writes of transactions that have ended without them."""
        is_open = self._barrier.is_open
        with self._lock:
            over = [
                number
                for number, entry in writer.entries.items()
                if not is_open(_pointer(entry))
            ]
            found = [writer.entries.pop(number) for number in over]
        for entry in found:
            self._leave(entry)

    def _leave(self, entry: _Entry) -> None:
        if entry.inside is not None:
            self._barrier.leave(entry.inside, entry)

    def _have_ended(self, pointers: Iterable[int]) -> None:
        """Tells the writers of transactions that have ended."""
        if not self._to_notify:
            return
        with self._lock:
            for pointer in pointers:
                for writer in self._to_notify.pop(pointer, ()):
                    writer.add(pointer)

    def _writer(self, name: WriterName) -> _Writer:
        found = self._writers.pop(name, None)
        if found is None and len(self._writers) >= MOST_WRITERS:
            idle = (key for key, one in self._writers.items() if not one.entries)
            oldest = next(idle, None)
            if oldest is None:
                raise Full(f"{MOST_WRITERS:,} stores write here, as many as may")
            del self._writers[oldest]
        self._writers[name] = found = found or _Writer()  # the last one now
        return found


def _pointer(entry: _Entry) -> int:
    assert entry.inside is not None
    return entry.inside.transaction_id


def shard_shown(shard: int) -> str:
    """Returns a shard as the barrier names it."""
    return f"shard {shard}"
