"""The ports that only some coordinators offer, and nobody has to."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from coordinator.embedded.open_transactions import OpenTransaction
from coordinator.embedded.records import Record
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.interfaces import Coordinator
from coordinator.outcome import Outcome
from coordinator.transaction import Transaction


@runtime_checkable
class InProcess(Protocol):
    """The part of a coordinator in this process that answers from memory. Optional."""

    @property
    def barrier(self) -> WriteBarrier:
        """The barrier for writes of a store beside it, which knows its pointers."""

    def may_wait(self) -> bool:
        """Tells whether the next start or snapshot may have to wait for the disk."""

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns copies of the transactions in progress, in the order of beginning."""


def in_process(coordinator: Coordinator) -> InProcess | None:
    """Returns the coordinator if it lives in this process; None if it is elsewhere.

    Its class says so: one that passes on all calls to another object counts as
    elsewhere, as nobody knows what it does in between.
    """
    if not hasattr(type(coordinator), "open_transactions"):
        return None
    return coordinator if isinstance(coordinator, InProcess) else None


class EnteredWrite(Protocol):
    """A write of a transaction that was admitted, and has not left."""

    @property
    def transaction_id(self) -> int:
        """The transaction that it is of."""

    @property
    def outlives_process(self) -> bool:
        """True where its rows go to disk before it leaves, not with the commit."""


class AdmitsWrites(Protocol):
    """Admits the writes of transactions, whose ends wait for those under way.

    A store enters before each write, and leaves after it, however the write went. So no
    row comes in after its transaction has ended.
    """

    def enter(self, transaction_id: int, write: object = None) -> EnteredWrite:
        """Begins a write; `TransactionNotInProgress` unless its transaction is open.

        A write that ends in another thread has an object that stands for it.
        """

    def leave(self, entry: Any, write: object = None) -> bool:
        """Ends a write; False where its transaction is known to have ended."""

    def is_invalid(self, pointer: int) -> bool:
        """Tells whether nobody will ever see the writes made with the pointer."""

    def on_end(self, callback: Callable[[Iterable[int]], object]) -> None:
        """Has `callback` called with the pointers of writers that have ended."""


@runtime_checkable
class AdmitsElsewhere(Protocol):
    """The part of a coordinator elsewhere that admits the writes of a store here.

    Optional.
    """

    @property
    def admission(self) -> AdmitsWrites:
        """The barrier that each write of the store enters."""


@runtime_checkable
class AdmitsSent(Protocol):
    """The part of an admission that lets writes of the coordinator's server join.

    Optional.
    """

    def ticket_for(self, since: str) -> str:
        """Returns what the server's next writes join with; empty for another one."""


@runtime_checkable
class BeginsLater(Protocol):
    """The part of a coordinator elsewhere that is asked when it is needed. Optional."""

    def start_later(self, timeout_s: float | None = None) -> Transaction:
        """Returns a transaction that begins when somebody first looks at it.

        One that nobody looks at ends without a call, whatever it is ended by.
        """


def begins_later(
    coordinator: Coordinator, timeout_s: float | None
) -> Transaction | None:
    """Returns a transaction that begins when it is needed; None where each begins."""
    if isinstance(coordinator, BeginsLater):
        return coordinator.start_later(timeout_s)
    return None


@runtime_checkable
class BeginsWithCommit(Protocol):
    """The part of a coordinator elsewhere whose commits may begin themselves. Optional.

    That is one call for a block that only publishes.
    """

    def start_with_commit(self, timeout_s: float | None = None) -> Transaction | None:
        """Returns a transaction that begins with its commit, or when it is looked at.

        Returns None where the server is an older one, or its commits carry no rows.
        """


def starts_with_commit(
    coordinator: Coordinator,
) -> Callable[[float | None], Transaction | None] | None:
    """Returns what makes such transactions; None where each begins by itself."""
    if isinstance(coordinator, BeginsWithCommit):
        return coordinator.start_with_commit
    return None


@runtime_checkable
class TellsOutcomes(Protocol):
    """The part of a coordinator that lets a copy of it answer the same. Optional."""

    @property
    def first_pointer(self) -> int:
        """The first pointer that was ever given out."""

    def outcomes(self) -> Sequence[Record]:
        """Returns the records of all outcomes that it knows."""


@runtime_checkable
class KnowsLives(Protocol):
    """The part of a coordinator that tells its lives apart. Optional.

    A life goes from one opening of the data to the next. Data may be put back from a
    copy, so whoever keeps a pointer elsewhere keeps the id of its life beside it. An
    empty id stands for the lives of earlier versions, which have none.
    """

    def life_of(self, tx: Transaction | int) -> str:
        """Returns the id of the life that gave out a pointer; empty without one."""

    def outcome(self, tx: Transaction | int, *, life: str | None = None) -> Outcome:
        """Tells the outcome of a pointer of that life; without it, of a pointer."""

    def decide(
        self, tx: Transaction | int, *, committed: bool, life: str | None = None
    ) -> None:
        """Writes down what counts as the outcome of a pointer that nobody knows.

        Raises `TransactionRefused` where its outcome is known.
        """


@runtime_checkable
class NotesWriters(Protocol):
    """A coordinator that keeps who writes rows elsewhere in a transaction. Optional."""

    def note_writers(self, tx: Transaction, names: Sequence[str]) -> None:
        """Takes the names of those participants, before the call of `persist`."""


def note_writers(
    coordinator: Coordinator, tx: Transaction, names: Sequence[str]
) -> None:
    """Tells a coordinator that keeps it who writes rows elsewhere; others nothing."""
    if isinstance(coordinator, NotesWriters):
        coordinator.note_writers(tx, names)


def life_of(coordinator: Coordinator, pointer: int) -> str:
    """Returns the id of a pointer's life, to keep beside it; empty without one."""
    return coordinator.life_of(pointer) if isinstance(coordinator, KnowsLives) else ""


def outcome_of(coordinator: Coordinator, pointer: int, *, life: str) -> Outcome:
    """Tells the outcome of a pointer that was kept beside the id of its life."""
    if not isinstance(coordinator, KnowsLives) or coordinator.life_of(pointer) == life:
        return coordinator.outcome(pointer)
    return coordinator.outcome(pointer, life=life)


def way_to_decide(coordinator: Coordinator, pointer: int, *, life: str) -> str:
    """Returns what a person does about an outcome that nobody knows, for a message.

    More follows: what may be done where the pointer is kept.
    """
    way = (
        "Find out whether it has (the data may have been put back from a copy since), "
        "and "
    )
    if isinstance(coordinator, KnowsLives):
        of_life = f" --life {life}" if life else ""
        way += (
            f"say so by txaware transaction decide {pointer}{of_life} --committed, or "
            f"--rolled-back; or "
        )
    return way
