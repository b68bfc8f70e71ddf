"""The barrier of a coordinator at a server, for the writes of a store that is here."""

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from queue import SimpleQueue

import attrs

from coordinator.errors import TransactionRefused, TxAwareError
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import NO_POINTER, Transaction
from coordinator.transaction_status import INVALID, NEVER

log = logging.getLogger(__name__)

# The principal that writes of this thread or task are for; None for the program itself.
_for_principal: ContextVar[str | None] = ContextVar("for_principal", default=None)
# What the writes of this thread or task entered with at the server, which sent them.
_entered: ContextVar[tuple[str, str] | None] = ContextVar("entered", default=None)

# An answer that tells of no end comes after this time; then it is asked again.
WAIT_S = 20.0
# After a failure it is asked again after this time.
PAUSE_S = 1.0
# So many writes leave in one call, at most.
MOST_LEAVING = 1000


@contextmanager
def writing_for(principal: str | None) -> Iterator[None]:
    """Has writes of the block enter for a principal, in transactions that it began.

    None stands for somebody who may go on with transactions of all.
    """
    token = _for_principal.set(principal)
    try:
        yield
    finally:
        _for_principal.reset(token)


@contextmanager
def entered_by_the_server(since: str, ticket: str) -> Iterator[None]:
    """Has writes of the block join what the server has entered for them by itself.

    Where it could not know that they may, by what it says, they enter as any other.
    """
    token = _entered.set((since, ticket))
    try:
        yield
    finally:
        _entered.reset(token)


@attrs.define(eq=False)
class EnteredThere:
    """A write that entered at the server; its rows are on disk before it leaves.

    One without a number was entered by the server, which has it leave as well.
    """

    transaction_id: int
    number: int | None
    since: str | None = None
    has_ended: bool = False
    outlives_process: bool = True


class RemoteBarrier:
    """Has writes of this store enter and leave the barrier of a server's coordinator.

    Nobody waits for a write to leave: a thread tells that, and meanwhile the end of the
    transaction waits at the server. Another one waits there for ends, and tells them.
    Where the server may have forgotten some, all that may have ended are told.

    With `shards`, which are of the store of that server and may become others, it says
    HELLO to each server that may have forgotten something: once nothing is under way
    that entered before. It names whom a write is for, as principals are known there.

    A write that the server sends may be inside already. It joins with a ticket, which
    is another one after each report and for each life of the server: what was sent
    before may be over there, and nobody may remember that it is invalid.

    `introduce` is called first and may raise; False means that the server is older,
    and has no barrier for others: a write then enters where its start is on disk.
    """

    def __init__(
        self,
        coordinator: RemoteCoordinator,
        *,
        introduce: Callable[[], bool] = lambda: True,
        shards: Sequence[int] | None = None,
        wait_s: float = WAIT_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._coordinator = coordinator
        self._introduce = introduce
        self._wait_s, self._pause_s = wait_s, pause_s
        self._writer = secrets.token_hex(8)
        self._numbers = count(1)
        self._shards = shards
        self._lock = threading.Condition()
        # Writes under way, by pointer.
        self._inside: dict[int, set[EnteredThere]] = {}
        # The pointers whose ends were not told, with what the server counts them since.
        self._awaited: dict[int, str] = {}
        # The least pointer of those that wrote since the rows here were last reported.
        self._least = NO_POINTER
        # What the server counts ends since, as it was heard last.
        self._since = ""
        self._ticket = _new_ticket()
        self._leaving: SimpleQueue[int | None] = SimpleQueue()
        self._end_callbacks: list[Callable[[Iterable[int]], object]] = []
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()
        if shards is not None:
            with self._lock:
                self._begin()

    def on_end(self, callback: Callable[[Iterable[int]], object]) -> None:
        """Has `callback` called with pointers that have ended, or that may have."""
        self._end_callbacks.append(callback)

    def enter(self, transaction_id: int, write: object = None) -> EnteredThere:
        """Begins a write; refuses unless the transaction is open and not ending."""
        sent = _entered.get()
        if sent is not None and (joined := self._joined(transaction_id, *sent)):
            return joined
        number = next(self._numbers)
        entry = EnteredThere(transaction_id, number)
        if not self._introduce():
            tx = Transaction(transaction_id, 0, write_pointer=transaction_id)
            self._coordinator.persist(tx)
            return entry
        with self._lock:
            self._inside.setdefault(transaction_id, set()).add(entry)
            self._least = min(self._least, transaction_id)
            if not self._threads:
                self._begin()
        try:
            since = self._coordinator.enter_write(
                transaction_id,
                writer=self._writer,
                write=number,
                principal=None if self._shards is None else _for_principal.get(),
            )
        except BaseException as error:
            self._is_over(entry)
            if not isinstance(error, TransactionRefused):
                self._leaving.put(number)  # it may have entered
            raise
        with self._lock:
            entry.since = since
            self._lock.notify_all()
            if not entry.has_ended:
                self._awaited[transaction_id] = since
        return entry

    def _joined(
        self, transaction_id: int, since: str, ticket: str
    ) -> EnteredThere | None:
        """Returns a write that is inside already; None where it may be over there."""
        entry = EnteredThere(transaction_id, None, since)
        with self._lock:
            if not since or (since, ticket) != (self._since, self._ticket):
                return None
            self._inside.setdefault(transaction_id, set()).add(entry)
            self._least = min(self._least, transaction_id)
            self._awaited[transaction_id] = since
        return entry

    def ticket_for(self, since: str) -> str:
        """Returns what the server's next writes join with; empty for another one."""
        with self._lock:
            return self._ticket if since and since == self._since else ""

    def leave(self, entry: EnteredThere, write: object = None) -> bool:
        """Ends a write, however it went; False where its transaction has ended."""
        self._is_over(entry)
        if self._threads and entry.number is not None:
            self._leaving.put(entry.number)
        return not entry.has_ended

    def is_invalid(self, pointer: int) -> bool:
        """Tells whether nobody will ever see the writes made with the pointer.

        Nobody was ever given those that came from elsewhere, so they count as well.
        """
        return self._coordinator.standing(pointer).state in (INVALID, NEVER)

    @contextmanager
    def reporting(self, smallest_pointer: int) -> Iterator[int]:
        """Surrounds a report of what rows here may need; gives the pointer to report.

        A write that was under way meanwhile may have come in behind who looked at the
        rows, so all that wrote since the report before is needed.
        """
        with self._lock:
            least, self._least = self._least, min(self._inside, default=NO_POINTER)
            self._ticket = _new_ticket()
        try:
            yield min(smallest_pointer, least)
        except BaseException:
            with self._lock:
                self._least = min(self._least, least)
            raise

    def stop(self) -> None:
        """Has what is left leave; the connections are closed next, and then `join`."""
        self._closed.set()
        with self._lock:
            self._lock.notify_all()
        self._leaving.put(None)
        if self._threads:
            self._threads[0].join()

    def join(self) -> None:
        """Returns when both threads have ended."""
        for thread in self._threads:
            thread.join()

    def _begin(self) -> None:
        for run in (self._leave_all, self._hear_ends):
            thread = threading.Thread(
                target=run, name="txaware-remote-barrier", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _is_over(self, entry: EnteredThere) -> None:
        with self._lock:
            inside = self._inside.get(entry.transaction_id, set())
            inside.discard(entry)
            if not inside:
                self._inside.pop(entry.transaction_id, None)
            self._lock.notify_all()

    def _leave_all(self) -> None:
        """Tells the server who left, in the order of leaving."""
        goes_on = True
        while goes_on:
            listed = [self._leaving.get()]
            while not self._leaving.empty() and len(listed) < MOST_LEAVING:
                listed.append(self._leaving.get())
            goes_on = None not in listed
            writes = [number for number in listed if number is not None]
            try:
                if writes:
                    self._coordinator.leave_writes(writer=self._writer, writes=writes)
            except TxAwareError as error:
                # Where the connection is lost, the server takes them for dead. The end
                # of a transaction waits for what it takes to be inside.
                log.info("%d writes could not leave: %s", len(writes), error)
                if goes_on and not self._closed.wait(self._pause_s):
                    for number in writes:
                        self._leaving.put(number)

    def _hear_ends(self) -> None:
        since, after, is_heard = "", 0, True
        while not self._closed.is_set():
            try:
                ends = self._coordinator.ends(
                    writer=self._writer, since=since, after=after, wait_s=self._wait_s
                )
                if ends.since != since:
                    self._greet(ends.since)
            except TxAwareError as error:
                if is_heard and not self._closed.is_set():
                    log.info("the ends of transactions are not heard: %s", error)
                is_heard = False
                self._closed.wait(self._pause_s)
                continue
            since, after, is_heard = ends.since, ends.next, True
            with self._lock:
                missed = [
                    pointer
                    for pointer, entered_since in self._awaited.items()
                    if entered_since != since
                ]
            self._tell([*missed, *ends.pointers])

    def _greet(self, since: str) -> None:
        """Says HELLO, once what entered at another server, or before, has left."""
        with self._lock:
            self._since, self._ticket = since, _new_ticket()
        if self._shards is None:
            return
        with self._lock:
            before = [entry for one in self._inside.values() for entry in one]
            while not self._closed.is_set() and any(
                entry.since != since and self._is_inside(entry) for entry in before
            ):
                self._lock.wait()
        if not self._closed.is_set():
            self.greet()

    def greet(self) -> None:
        """Says HELLO for shards that came here, whose former owners write no more."""
        if self._shards:
            self._coordinator.greet(writer=self._writer, shards=[*self._shards])

    def _is_inside(self, entry: EnteredThere) -> bool:
        return entry in self._inside.get(entry.transaction_id, ())

    def _tell(self, pointers: Sequence[int]) -> None:
        with self._lock:
            for pointer in pointers:
                self._awaited.pop(pointer, None)
                for entry in self._inside.get(pointer, ()):
                    entry.has_ended = True
        if pointers:
            for callback in self._end_callbacks:
                callback(pointers)


def _new_ticket() -> str:
    return secrets.token_hex(8)
